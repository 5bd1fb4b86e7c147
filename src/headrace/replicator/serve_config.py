"""Who may ask a control plane, as values: the file of ``headrace serve --tokens``."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from headrace.replicator.relay_config import RelayTlsConfig, TokenConfig
from headrace.replicator.section import Section

__all__ = ["ControlTokenConfig", "ServeConfig"]


class ControlTokenConfig(TokenConfig):
    """One who may ask a control plane.

    Attributes:
        role: ``viewer`` looks, ``operator`` also drafts, deploys, starts, stops and deletes, ``admin`` also sees who
            did what and makes namespaces.
    """

    role: Literal["viewer", "operator", "admin"] = "viewer"


class ServeConfig(Section):
    """The file.

    Attributes:
        tokens: who may ask.
        tls: HTTPS; HTTP when absent.
    """

    tokens: tuple[ControlTokenConfig, ...]
    tls: RelayTlsConfig | None = None

    @model_validator(mode="after")
    def _each_name_once(self) -> Self:
        names = [token.name for token in self.tokens]
        if len(set(names)) < len(names) or not names:
            raise ValueError("at least one token, and each name once")
        return self
