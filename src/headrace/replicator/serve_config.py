"""Who may ask a control plane, as values: the file of ``headrace serve --tokens``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from headrace.replicator.relay_config import RelayTlsConfig, TokenConfig
from headrace.replicator.section import Section

__all__ = ["ControlTokenConfig", "RatesConfig", "ServeConfig"]


class ControlTokenConfig(TokenConfig):
    """One who may ask a control plane.

    Attributes:
        role: ``viewer`` looks, ``operator`` also drafts, deploys, starts, stops and deletes, ``admin`` also sees who
            did what and makes namespaces.
    """

    role: Literal["viewer", "operator", "admin"] = "viewer"


class RatesConfig(Section):
    """How often one may ask.

    Attributes:
        per_s: requests per second that each person may make in the long run.
        burst: requests that they may make at once.
        wrong_tokens: guesses per minute that an address may make; then it waits, whatever it sends.
    """

    per_s: Annotated[float, Field(ge=0.001)] = 100.0
    burst: Annotated[int, Field(ge=1)] = 1_000
    wrong_tokens: Annotated[int, Field(ge=1)] = 20


class ServeConfig(Section):
    """The file.

    Attributes:
        tokens: who may ask.
        tls: HTTPS; HTTP when absent.
        rates: how often.
    """

    tokens: tuple[ControlTokenConfig, ...]
    tls: RelayTlsConfig | None = None
    rates: RatesConfig = Field(default_factory=RatesConfig)

    @model_validator(mode="after")
    def _each_name_once(self) -> Self:
        names = [token.name for token in self.tokens]
        if len(set(names)) < len(names) or not names:
            raise ValueError("at least one token, and each name once")
        return self
