"""What goes over HTTP, field by field: the source of the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from headrace.replicator.document_file import MOST_LEVELS, is_too_deep
from headrace.wire.plain import is_json

__all__ = [
    "ActivityShown",
    "Asked",
    "AuditLine",
    "AuditLog",
    "ConfigBody",
    "DeployBody",
    "DraftBody",
    "DraftName",
    "DraftShown",
    "ErrorShown",
    "Health",
    "LineageShown",
    "LogShown",
    "MetricsShown",
    "NamespaceName",
    "Namespaces",
    "ReplicatorDetail",
    "ReplicatorList",
    "ReplicatorName",
    "ReplicatorShown",
    "RewindBody",
    "StateBody",
    "StateShown",
    "TableBody",
    "TableInConfigBody",
    "TableShown",
]

_NAME = r"^[a-z][a-z0-9_]*(-[a-z0-9_]+)*$"
NamespaceName = Annotated[str, Path(pattern=_NAME, max_length=20)]
ReplicatorName = Annotated[str, Path(pattern=_NAME, max_length=40)]
# Not of dots alone: browsers and curl take those for the folder above, whose deletion is the namespace's.
DraftName = Annotated[str, Path(pattern=r"^\.*[A-Za-z0-9_-][A-Za-z0-9_.-]*$", max_length=200)]


def _can_be_shown(config: dict[str, Any]) -> dict[str, Any]:
    if is_too_deep(config):
        raise ValueError(f"at most {MOST_LEVELS} sections inside one another")
    if not is_json(config):
        raise ValueError("numbers and text that JSON has, in UTF-8")
    return config


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("text without NUL")
    return text


_Text = Annotated[str, AfterValidator(_without_nul)]
"""A text that every database can hold."""
_Config = Annotated[dict[str, Any], AfterValidator(_can_be_shown)]
"""A configuration that can be kept, and be part of an answer."""


class Asked(BaseModel):
    """A body: unknown names are refused, and no value is repeated in an error."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    @field_validator("*")
    @classmethod
    def _is_text(cls, value: object) -> object:
        parts = value if isinstance(value, list) else [value]
        try:
            # Half of a surrogate pair is no character: what held it could be kept, and never be shown again.
            "".join(part for part in parts if isinstance(part, str)).encode()
        except UnicodeEncodeError:
            raise ValueError("text that UTF-8 has") from None
        return value


class _Shown(BaseModel):
    """An answer."""


class DraftBody(Asked):
    """A draft to keep."""

    label: _Text = Field("", max_length=1000, description="For people.")
    config: _Config = Field(
        description="A configuration, finished or not, in headrace's form or the Replicator's; secrets by reference."
    )


class ConfigBody(Asked):
    """A configuration to assess, without keeping it."""

    config: _Config = Field(description="As of a draft.")


class TableBody(Asked):
    """A table of the source."""

    table: str = Field(max_length=200, description="Its name, or schema.name.")
    schema_: str = Field("", alias="schema", max_length=200)
    database: str = Field("", max_length=200)


class TableInConfigBody(Asked):
    """A table, and the configuration to assess it with."""

    db_table: TableBody = Field(alias="dBTable")
    config: _Config = Field(alias="deltaConfig", description="As of a draft.")


class RewindBody(Asked):
    """Where the tables are to go back to."""

    to: str = Field(max_length=64, description="An SCN, or a commit time in ISO 8601.")


class StateBody(Asked):
    """Whose state is asked for."""

    name: _Text = Field(max_length=40)
    offset_base_path: str = Field(
        "",
        alias="offsetBasePath",
        max_length=1000,
        description="Not needed: the control plane knows where.",
    )


class DeployBody(Asked):
    """What a replicator is to do; either a configuration, or a draft that has one."""

    config: _Config | None = Field(None, description="As of a draft, and complete.")
    draft: _Text | None = Field(
        None, max_length=200, description="Name of a draft of the namespace."
    )
    start: bool = Field(False, description="Start it at once.")


class ErrorText(_Shown):
    """An error of headrace."""

    type: str = Field(description="Name of the error; docs/errors.md has them.")
    message: str
    next_step: str


class ErrorShown(_Shown):
    """A refusal."""

    error: ErrorText


class DraftShown(_Shown):
    """A draft, as it was put."""

    name: str
    label: str
    config: dict[str, Any]
    createdTimeMillis: int
    updatedTimeMillis: int


class Namespaces(_Shown):
    """The namespaces."""

    namespaces: list[str]


class TableShown(_Shown):
    """One table of a replicator."""

    name: str = Field(description="schema.table")
    state: str = Field(
        description="SNAPSHOTTING, REPLICATING, FAILING, or LEFT: dropped or renamed at the source."
    )
    phase: str = Field(description="The same, in more words: waiting, copying, live, …")
    error: str
    rows_read: int
    rows_estimated: int
    rows_per_s: float
    seconds_left: float | None
    lag_changes: int
    lag_s: float | None = Field(
        description="Age of the oldest change that the target lacks; null before the first frontier."
    )
    applied_scn: int


class ReplicatorShown(_Shown):
    """A replicator, in a list."""

    namespace: str
    name: str
    generation: int
    revision: int
    state: str
    desired: str
    reason: str
    source: str = Field(description="Kind of its source.")
    target: str = Field(description="Kind of its target.")
    tables: dict[str, int] = Field(description="How many tables are in which state.")
    lag_s: float | None = Field(
        description="Age of the oldest transaction in the change log that the tables lack; null before their first "
        "frontier."
    )
    unheard: str = Field(
        description="Why the change log, and so lag_s, may lack what the source did since; empty while capture "
        "follows it."
    )
    lag_changes: int
    created_ms: int
    changed_ms: int
    seen_ms: int | None = Field(
        description="When tables and lag were looked at; null before the first time."
    )


class Positions(_Shown):
    """How far a replicator is, in SCNs."""

    captured_scn: int
    covered_scn: int
    frontier_scn: int
    frontier_changes: int


class RoleShown(_Shown):
    """One process of a replicator."""

    state: str = Field(
        description="starting, running, stopped, failed, or gone: it ended without a word."
    )
    pid: int
    said_ms: int = Field(description="When it spoke last, milliseconds since 1970 UTC.")
    error: dict[str, str] | None


class ReplicatorDetail(ReplicatorShown):
    """A replicator, with everything that is known of it."""

    config: dict[str, Any] = Field(description="As it was given, references to secrets unresolved.")
    file: str = Field(
        description="What its process reads on the control plane's machine; commands there take it as theirs."
    )
    pid: int | None = Field(
        description="Of its process; null where there is none, or it runs elsewhere."
    )
    positions: Positions | None
    log_bytes: int
    log_budget_bytes: int
    log_paused: bool
    slot: dict[str, Any]
    resync: dict[str, Any]
    held_up: str = Field(
        description="What apply has been waiting for, or busy with, for long, such as a Spark that answers nothing; "
        "empty while nothing is amiss."
    )
    objective: dict[str, Any] | None = Field(
        description="How far the freshness objective is met; null where there is none."
    )
    drops: list[dict[str, Any]] | None = Field(
        description="Tables whose operations fell suddenly; null where nobody watches."
    )
    roles: dict[str, RoleShown]
    table_list: list[TableShown]
    seen_error: str = Field(
        description="Why nobody could look, or what is shown is older; empty otherwise."
    )


class ReplicatorList(_Shown):
    """The replicators of a namespace."""

    replicators: list[ReplicatorShown]


class MetricsShown(_Shown):
    """Numbers of a replicator."""

    name: str
    samples: list[dict[str, Any]] = Field(description="Each with name, type, labels and value.")


class ActivityShown(_Shown):
    """What became visible, by minute and table, or by hour."""

    name: str
    minutes: list[dict[str, Any]] = Field(description="Operations, rows and bytes of one minute.")
    hours: list[dict[str, Any]] = Field(description="The same of one hour, when asked for hours.")


class LineageShown(_Shown):
    """Where the columns of a target come from."""

    name: str
    tables: list[dict[str, Any]] = Field(
        description="Each with its names for other tools, and per column how it is made of which of the source."
    )


class LogShown(_Shown):
    """The end of a log."""

    process: str
    lines: list[str]


class SourceError(_Shown):
    """An error in the design's shape."""

    message: str
    stackTrace: list[str]


class TableState(_Shown):
    """A table's state in the design's shape."""

    database: str
    table: str
    state: str
    error: SourceError | None


class StateShown(_Shown):
    """A replicator's state in the design's shape."""

    sourceState: str
    sourceError: SourceError | None
    tables: list[TableState]


class AuditLine(_Shown):
    """Who asked for what."""

    number: int
    at_ms: int
    who: str
    what: str
    object: str
    outcome: str


class AuditLog(_Shown):
    """The newest lines of the audit log, newest first."""

    audit: list[AuditLine]


class Health(_Shown):
    """Whether a control plane does its work."""

    status: str
    role: str = Field(description="active, or standby while another one is.")
