"""The verdict on one table: each of its columns, and what stands in the way of it.

Pure: what the source says of the table, what was asked for it, what the target can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from headrace.lake.capabilities import Capabilities
from headrace.lake.settings import TableSettings
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.replicator.assess.expressions import expected_schema, transformation_issues
from headrace.replicator.assess.names import name_problems
from headrace.replicator.assess.problems import Problem
from headrace.replicator.assess.support import (
    ColumnSupport,
    Support,
    column_support,
    computed_support,
    target_types,
)
from headrace.sources.description import Given, TableDescription

__all__ = ["TableVerdict", "captured_schema", "table_verdict"]


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """One table.

    Attributes:
        table: which.
        columns: verdicts on the columns that are wanted, in the source's order; computed ones behind them.
        problems: what stands in the way.
        quiet: columns that may be in another type without being counted.
    """

    table: TableId
    columns: tuple[ColumnSupport, ...]
    problems: tuple[Problem, ...]
    quiet: frozenset[str] = frozenset()

    @property
    def num_columns(self) -> int:
        """How many of the source's columns are wanted."""
        return sum(bool(column.source_name) for column in self.columns)

    @property
    def not_supported(self) -> int:
        """How many columns do not come over."""
        return sum(column.support is Support.NO for column in self.columns)

    @property
    def partially_supported(self) -> int:
        """How many come over in another type, and were not agreed to."""
        return sum(
            column.support is Support.PARTIAL and column.source_name not in self.quiet
            for column in self.columns
        )


def table_verdict(
    table: TableDescription,
    settings: TableSettings,
    target: Capabilities,
    prefix: str = "",
    quiet: Collection[str] = (),
    place: str = "tables",
) -> TableVerdict:
    """Return the verdict on one table.

    Args:
        table: as the source describes it.
        settings: what was asked for it.
        target: what its kind can do.
        prefix: put before the names of schemas at the target.
        quiet: columns that may be in another type without being counted.
        place: where the settings stand in the configuration.
    """
    schema = captured_schema(table)
    issues = list(transformation_issues(schema, settings, place))
    problems = list(name_problems(expected_schema(schema, settings), settings.mode, target, prefix))
    supports = [
        *_of_source(table, settings, target, {*issues, *problems}),
        *(_stopped(one, {*issues, *problems}) for one in computed_support(settings)),
    ]
    return TableVerdict(table.table, tuple(supports), (*problems, *issues), frozenset(quiet))


def captured_schema(table: TableDescription) -> TableSchema:
    """Return the columns that the log carries, as a version of the table."""
    columns = tuple(
        Column(c.name, c.arrow, c.source_type, c.name not in table.key)
        for c in table.columns
        if c.captured and c.given is not Given.ABSENT
    )
    check = KeyCheck.IMMEDIATE if table.key else KeyCheck.NONE
    return TableSchema(table.table, columns, table.key, check)


def _of_source(
    table: TableDescription,
    settings: TableSettings,
    target: Capabilities,
    problems: Collection[Problem],
) -> Iterator[ColumnSupport]:
    types = target_types(target)
    for column in table.columns:
        found = column_support(table.table, column, column.name in table.key, settings, types)
        if found is not None:
            yield _stopped(found, problems)


def _stopped(support: ColumnSupport, problems: Collection[Problem]) -> ColumnSupport:
    """Return a verdict as it is once a problem stops its column."""
    names = {name for name in (support.source_name, support.target_name) if name}
    for problem in problems:
        if problem.is_error and problem.column in names:
            return replace(
                support,
                support=Support.NO,
                message=f"{problem.description} {problem.suggestion}",
                remedies=_remedies(problem, support),
                problem=problem.name,
            )
    return support


def _remedies(problem: Problem, support: ColumnSupport) -> tuple[str, ...]:
    if problem.name.startswith("column-name"):
        plain = "".join(c if c.isalnum() or c == "_" else "_" for c in support.source_name)
        other = plain if plain != support.target_name else f"{plain}_2"
        return (f"rename {support.source_name} {other[:60]}",)
    return ()
