"""A whole replicator assessed, or one table of it: problems, columns, estimates; nothing is started or changed.

In: a configuration and whom to ask. Out: values, and the JSON of ``assessPipeline`` and ``assessTable``. What cannot
be reached or does not fit is a problem among the others, never an error. An object store gets one small object, which
goes again.

Source: docs/requirements.md, C96 and C97.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import HeadraceError
from headrace.lake.capabilities import unkept
from headrace.lake.settings import settings_for
from headrace.model.patterns import matches
from headrace.model.schema import TableId
from headrace.replicator import runner
from headrace.replicator.asked import capabilities, schema_prefix, table_settings
from headrace.replicator.assess.columns import TableVerdict, table_verdict
from headrace.replicator.assess.estimates import (
    SAMPLE_S,
    Estimates,
    LogSample,
    estimated,
    sample_log,
)
from headrace.replicator.assess.folders import state_folder_problems, target_folder_problems
from headrace.replicator.assess.kinds import Group
from headrace.replicator.assess.looks import Looks
from headrace.replicator.assess.problems import (
    Problem,
    errors_in,
    from_finding,
    in_group,
    listed,
    to_finding,
)
from headrace.replicator.assess.reach import (
    source_problem,
    taken_tables,
    warehouse_problems,
)
from headrace.replicator.assess.tables import alone, find_table, named
from headrace.replicator.config import (
    Config,
    PostgresConfig,
    TriggerConfig,
)
from headrace.sources.base import Finding, Severity
from headrace.sources.description import SourceDescription

__all__ = [
    "PipelineAssessment",
    "TableAssessment",
    "assess_pipeline",
    "assess_source",
    "assess_table",
    "obstacles",
]

Sampler = Callable[[Callable[[], int]], LogSample | None]
"""Looks at a log twice; see `headrace.replicator.assess.estimates.sample_log`."""


@dataclass(frozen=True, slots=True)
class PipelineAssessment:
    """What was found.

    Attributes:
        database: name of the source's, empty where it cannot be reached.
        tables: verdicts on each captured table.
        problems: all of them.
        estimates: None where the source cannot be reached, or is a relay.
    """

    database: str
    tables: tuple[TableVerdict, ...]
    problems: tuple[Problem, ...]
    estimates: Estimates | None = None

    @property
    def errors(self) -> tuple[Problem, ...]:
        """What must be dealt with before a start."""
        return errors_in(self.problems)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in the shape of ``assessPipeline``."""
        return {
            "tables": [
                {
                    **named(self.database, verdict.table),
                    "numColumns": verdict.num_columns,
                    "columnsNotSupported": verdict.not_supported,
                    "columnsPartiallySupported": verdict.partially_supported,
                    "numColumnsNotSupported": verdict.not_supported,
                    "numColumnsPartiallySupported": verdict.partially_supported,
                }
                for verdict in self.tables
            ],
            **_lists(self.problems),
            "estimates": self.estimates.to_json() if self.estimates else None,
        }


@dataclass(frozen=True, slots=True)
class TableAssessment:
    """What was found out about one table.

    Attributes:
        database: that it lies in, empty where the source cannot be reached.
        table: its name.
        verdict: on its columns, None where the source cannot be reached.
        problems: those of the table, and those of reaching source and target.
    """

    database: str
    table: TableId
    verdict: TableVerdict | None
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        """What must be dealt with before a start."""
        return errors_in(self.problems)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in the shape of ``assessTable``."""
        columns = self.verdict.columns if self.verdict else ()
        return {
            **named(self.database, self.table),
            "columns": [column.to_json() for column in columns],
            **_lists(self.problems),
        }


def _lists(problems: Iterable[Problem]) -> dict[str, Any]:
    """Return the lists of problems, under the design's names and under those of its later versions."""
    found = tuple(problems)
    features = listed(in_group(found, Group.FEATURE))
    connectivity = listed(in_group(found, Group.CONNECTIVITY))
    return {
        "featureProblems": features,
        "connectivityProblems": connectivity,
        "features": features,
        "connectivity": connectivity,
        "transformationIssues": listed(in_group(found, Group.TRANSFORMATION)),
    }


def assess_pipeline(
    config: Config,
    *,
    looks: Looks | None = None,
    sample: Sampler | None = None,
    quiet: Collection[tuple[TableId, str]] = (),
) -> PipelineAssessment:
    """Assess a replicator.

    Args:
        config: of the replicator, which need not be there yet.
        looks: whom to ask; those whom the configuration names when None.
        sample: looks at the source's log; for a second when None.
        quiet: columns, with their tables, that may be in another type without being counted.
    """
    return _Assessor(config, looks or runner.looks(config), sample or _sample, quiet).pipeline()


def obstacles(config: Config) -> list[Finding]:
    """Return what a start would find, and behind it what else must be dealt with before its tables are whole.

    Raises:
        SourceError: the source cannot be reached, or refuses a question.
    """
    found = runner.preflight(config)
    # The object store was asked by then, and has answered.
    looks = replace(runner.looks(config), store=list)
    mistakes = assess_pipeline(config, looks=looks, sample=_unwatched).errors
    return list(dict.fromkeys([*found, *map(to_finding, mistakes)]))


def assess_source(config: Config, *, looks: Looks | None = None) -> tuple[Problem, ...]:
    """Return what is wrong with the source alone; arguments as of `assess_pipeline`."""
    return _Assessor(config, looks or runner.looks(config), _unwatched, ()).source_alone()


def assess_table(
    config: Config,
    name: str,
    schema: str = "",
    database: str = "",
    *,
    looks: Looks | None = None,
    quiet: Collection[tuple[TableId, str]] = (),
) -> TableAssessment:
    """Assess one table, whether the configuration selects it or not; arguments as of `describe_table`.

    Raises:
        UnknownTable: the source can be reached, and has no such table.
    """
    asked = looks or runner.looks(config)
    unreached = TableId(schema or database or "public", name)
    if asked.source is not None:
        try:
            found = asked.source().described(("*.*",))
        except HeadraceError as error:
            return TableAssessment("", unreached, None, (source_problem(error),))
        table = find_table(found, name, schema, database).table
        config = alone(config, table)
        asked = looks or runner.looks(config)
        whole = _Assessor(config, asked, _unwatched, quiet).pipeline()
        verdict = next((v for v in whole.tables if v.table == table), None)
        problems = tuple(
            p for p in whole.problems if p.table == str(table) or p.kind.group is Group.CONNECTIVITY
        )
        return TableAssessment(found.database, table, verdict, problems)
    return TableAssessment("", unreached, None, tuple(map(from_finding, asked.relays())))


def _sample(written_bytes: Callable[[], int]) -> LogSample | None:
    return sample_log(written_bytes, SAMPLE_S)


def _unwatched(_written_bytes: Callable[[], int]) -> LogSample | None:
    """Look at no log: who asks about a table need not wait for that."""
    return None


class _Assessor:
    def __init__(
        self, config: Config, looks: Looks, sample: Sampler, quiet: Collection[tuple[TableId, str]]
    ) -> None:
        self._config = config
        self._looks = looks
        self._sample = sample
        self._quiet = frozenset(quiet)
        self._target = capabilities(config)
        self._settings = table_settings(config)
        self._problems: list[Problem] = []

    def pipeline(self) -> PipelineAssessment:
        self._unkept()
        source, log = self._source()
        self._reach_target(source)
        self._problems += state_folder_problems(self._config)
        verdicts = tuple(self._verdicts(source)) if source else ()
        for verdict in verdicts:
            self._problems += verdict.problems
        estimates = None
        if source:
            self._unmatched(source)
            limit = self._config.dump.rows_per_s
            estimates = estimated(source.tables, limit, log)
            self._uncounted(estimates)
        problems = tuple(dict.fromkeys(self._problems))
        return PipelineAssessment(source.database if source else "", verdicts, problems, estimates)

    def source_alone(self) -> tuple[Problem, ...]:
        """Return what is wrong with the source, whatever the target is."""
        self._source()
        return tuple(dict.fromkeys(self._problems))

    def _unkept(self) -> None:
        """Note what the target cannot do, before anybody is asked."""
        for place, what, step in unkept(self._settings, self._target):
            self._problems.append(
                Problem("setting-unsupported", f"{place}: {what}.", _sentence(step), field=place)
            )

    def _source(self) -> tuple[SourceDescription | None, LogSample | None]:
        """Ask the source for everything."""
        if self._looks.source is None:
            self._found(self._looks.relays())
            return None, None
        described: SourceDescription | None = None
        log: LogSample | None = None
        try:
            source = self._looks.source()
            described = source.described()
            self._found(source.preflight())
            log = self._sample(source.written_bytes)
        except HeadraceError as error:
            self._problems.append(source_problem(error))
        return described, log

    def _found(self, findings: Iterable[Finding]) -> None:
        self._problems += map(from_finding, findings)

    def _reach_target(self, source: SourceDescription | None) -> None:
        """Ask the target whether it lets us in, and what is there."""
        found = [from_finding(finding) for finding in self._looks.store()]
        found += target_folder_problems(self._config)
        if not found:
            found += warehouse_problems(self._looks.warehouse)
        self._problems += found
        warehouse = self._looks.warehouse() if not found else None
        if source and warehouse:
            tables = [table.table for table in source.tables]
            self._problems += taken_tables(warehouse, self._config.name, tables)

    def _verdicts(self, source: SourceDescription) -> Iterator[TableVerdict]:
        prefix = schema_prefix(self._config)
        for table in source.tables:
            settings = settings_for(table.table, self._settings)
            quiet = {column for named_, column in self._quiet if named_ == table.table}
            place = f"tables.{self._pattern(table.table)}"
            yield table_verdict(table, settings, self._target, prefix, quiet, place)

    def _pattern(self, table: TableId) -> str:
        """Return the first pattern of settings that a table matches."""
        return next(p for p, _ in self._settings if matches(str(table), p))

    def _unmatched(self, source: SourceDescription) -> None:
        """Note settings of tables that are not captured."""
        tables = [str(table.table) for table in source.tables]
        given = self._config.source
        places = {f"tables.{pattern}": pattern for pattern in self._config.tables}
        if isinstance(given, PostgresConfig):
            places |= {f"source.columns.{name}": name for name in given.columns}
        if isinstance(given, PostgresConfig | TriggerConfig):
            places |= {f"source.text_columns.{name}": name for name in given.text_columns}
        if isinstance(given, TriggerConfig):
            places |= {f"source.queues.{name}": name for name in given.queues}
        for place, pattern in places.items():
            if not any(matches(table, pattern) for table in tables):
                self._problems.append(
                    Problem(
                        "table-unmatched",
                        f"{place} matches no table that is captured.",
                        "Correct the name, or leave it if such a table is still to come.",
                        Severity.WARNING,
                        field=place,
                    )
                )

    def _uncounted(self, estimates: Estimates) -> None:
        for table in estimates.unknown:
            self._problems.append(
                Problem(
                    "statistics-missing",
                    f"The catalog does not say how many rows {table} has.",
                    f'ANALYZE "{table.schema}"."{table.name}";',
                    Severity.WARNING,
                    table=str(table),
                )
            )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
