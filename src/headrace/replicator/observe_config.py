"""The sections ``metrics`` and ``objective`` of a configuration, as values."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from headrace.replicator.section import Section
from headrace.replicator.units import Listen

__all__ = ["MetricsConfig", "ObjectiveConfig"]


class MetricsConfig(Section):
    """Numbers for Prometheus over HTTP, while the replicator runs.

    Attributes:
        listen: host and port; nobody is asked who they are.
    """

    listen: Listen = "127.0.0.1:9108"

    @property
    def host(self) -> str:
        """Where it listens."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listen.rpartition(":")[2])


class ObjectiveConfig(Section):
    """How fresh the target shall be: which share of all transactions shows how soon after its commit.

    Attributes:
        share: of the transactions.
        within_s: from commit at the source to visible in the target.
        over_s: of the newest so many seconds.
        webhook: URL that is told when the objective is missed, and when it is met again.
        secret: signs what is sent; put it into the environment and write ``${env:NAME}``.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 0.99
    within_s: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    over_s: Annotated[int, Field(ge=60, le=604_800)] = 86_400
    webhook: SecretStr | None = None
    secret: SecretStr | None = None

    @field_validator("webhook")
    @classmethod
    def _is_an_address(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(("http://", "https://")):
            raise ValueError("a URL such as https://host/path")
        return value

    @model_validator(mode="after")
    def _signs_what_is_sent(self) -> Self:
        if self.secret is not None and self.webhook is None:
            raise ValueError("secret only with a webhook")
        return self
