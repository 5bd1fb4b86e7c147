"""What goes over HTTP of an assessment, in the names of the Replicator's service and of its later versions.

Where the two differ both are there, with one value.

Source: docs/requirements.md, C94 to C97.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["PipelineAssessed", "TableAssessed", "TableDescribed", "TablesListed"]


class _Shown(BaseModel):
    """An answer; a field that nobody described is a mistake of ours."""

    model_config = ConfigDict(extra="forbid")


class _Named(_Shown):
    """A table of the source."""

    database: str
    schema_: str = Field(alias="schema")
    name: str = Field(description="The same as table.")
    table: str


class TableListed(_Named):
    """A table, in a list."""

    numColumns: int


class TablesListed(_Shown):
    """The tables of the source that a configuration selects."""

    tables: list[TableListed]


class ProblemShown(_Shown):
    """What stands in the way, or is good to know."""

    name: str
    description: str
    suggestion: str
    impact: str
    severity: Literal["ERROR", "WARNING"]
    table: str | None
    column: str | None
    field: str | None = Field(description="Of the configuration, that it belongs beside.")


class ColumnDescribed(_Shown):
    """A column of the source."""

    name: str
    type: str
    nullable: bool
    properties: dict[str, str]


class TableDescribed(_Named):
    """A table, with its key and columns."""

    numColumns: int
    primaryKey: list[str]
    columns: list[ColumnDescribed]
    features: list[ProblemShown]


class _Problems(_Shown):
    """The lists of problems."""

    featureProblems: list[ProblemShown] = Field(description="The same as features.")
    connectivityProblems: list[ProblemShown] = Field(description="The same as connectivity.")
    features: list[ProblemShown]
    connectivity: list[ProblemShown]
    transformationIssues: list[ProblemShown]


class TableVerdict(_Named):
    """A table, with how many of its columns come through."""

    numColumns: int
    columnsNotSupported: int
    columnsPartiallySupported: int
    numColumnsNotSupported: int
    numColumnsPartiallySupported: int


class TableEstimated(_Shown):
    """What the first copy of a table takes; null where the catalog does not know."""

    schema_: str = Field(alias="schema")
    table: str
    rows: int | None
    bytes: int | None
    firstCopySeconds: float | None


class Estimated(_Shown):
    """What the first copies take, and how fast the log grows."""

    rows: int
    bytes: int
    firstCopySeconds: float
    rowsPerSecond: float
    logBytesPerHour: int | None
    logSampleSeconds: float | None
    tablesUnknown: list[str]
    tables: list[TableEstimated]


class PipelineAssessed(_Problems):
    """What was found out about a whole configuration."""

    tables: list[TableVerdict]
    estimates: Estimated | None = Field(description="Null where the source cannot be reached.")


class Details(_Shown):
    """The message, where the first versions have it."""

    message: str


class Suggestion(_Shown):
    """What helps a column through."""

    details: Details
    message: str
    transforms: list[str]


class ColumnAssessed(_Shown):
    """How a column comes through."""

    sourceName: str
    targetName: str
    sourceType: str
    targetType: str
    support: Literal["YES", "PARTIAL", "NO"]
    transforms: list[str] = Field(description="That the configuration has for it.")
    suggestion: Suggestion | None


class TableAssessed(_Named, _Problems):
    """What was found out about one table."""

    columns: list[ColumnAssessed]
