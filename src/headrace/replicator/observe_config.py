"""The sections ``metrics``, ``objective``, ``activity`` and ``lineage`` of a configuration, as values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from headrace.replicator.section import Section
from headrace.replicator.units import Listen

__all__ = ["ActivityConfig", "DropConfig", "LineageConfig", "MetricsConfig", "ObjectiveConfig"]


def _address(value: SecretStr | None) -> SecretStr | None:
    if value is not None and not value.get_secret_value().startswith(("http://", "https://")):
        raise ValueError("a URL such as https://host/path")
    return value


_Address = Annotated[SecretStr | None, AfterValidator(_address)]


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
    webhook: _Address = None
    secret: SecretStr | None = None

    @model_validator(mode="after")
    def _signs_what_is_sent(self) -> Self:
        if self.secret is not None and self.webhook is None:
            raise ValueError("secret only with a webhook")
        return self


class DropConfig(Section):
    """When the operations of a table have fallen, and who is told.

    Attributes:
        to: share of the usual operations below which a table's are.
        over_s: of the newest so many seconds.
        against: number of stretches as long, before those, whose median is the usual.
        least: a table with fewer usual ones is not watched.
        webhook: URL that is told of a table when its operations fall, and when they are back.
        secret: signs what is sent; put it into the environment and write ``${env:NAME}``.
    """

    to: Annotated[float, Field(gt=0, lt=1)] = 0.2
    over_s: Annotated[int, Field(ge=120, le=3_600, multiple_of=60)] = 600
    against: Annotated[int, Field(ge=3, le=12)] = 6
    least: Annotated[int, Field(ge=1)] = 100
    webhook: _Address = None
    secret: SecretStr | None = None

    @model_validator(mode="after")
    def _signs_what_is_sent(self) -> Self:
        if self.secret is not None and self.webhook is None:
            raise ValueError("secret only with a webhook")
        return self


class ActivityConfig(Section):
    """How long operations per table are kept.

    Attributes:
        minutes_s: minute by minute, for so many seconds.
        hours_s: hour by hour.
        drop: when they have fallen; None where nobody watches.
    """

    minutes_s: Annotated[int, Field(ge=3_600, le=2_592_000)] = 86_400
    hours_s: Annotated[int, Field(ge=86_400, le=315_360_000)] = 34_560_000
    drop: DropConfig | None = None


class LineageConfig(Section):
    """Who is told, in OpenLineage's words, which column of the target comes from which of the source.

    Attributes:
        url: a collector's, to which each event is posted.
        file: to which each event is appended, as a line of JSON.
        namespace: of the job, which is the replicator.
        token: sent to the collector as ``Authorization: Bearer``; put it into the environment, ``${env:NAME}``.
    """

    url: _Address = None
    file: Path | None = None
    namespace: Annotated[str, Field(min_length=1, max_length=200)] = "headrace"
    token: SecretStr | None = None

    @model_validator(mode="after")
    def _goes_somewhere(self) -> Self:
        if self.url is None and self.file is None:
            raise ValueError("url or file, or both")
        if self.token is not None and self.url is None:
            raise ValueError("token only with a url")
        return self
