"""What the design's JSON says beside its stages: tables, transformations, blocked operations, resources.

In: the document, and our configuration with its source and target. Out: further sections of ours, and a problem for
what has no counterpart there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.model.schema import TableId
from headrace.replicator.assess.problems import Problem
from headrace.replicator.seed.directives import parse_directive
from headrace.replicator.seed.secrets import ours
from headrace.sources.base import Severity

__all__ = ["Given", "read_sections"]

_HARMLESS_DDL = {
    "DROP_DATABASE": "",
    "CREATE_DATABASE": "schemas of the target are made with their first table",
    "CREATE_TABLE": "creating a table cannot be blocked",
}
"""Operations that need not be blocked here, with what is to be said of them."""
_TABLE_FIELDS = frozenset(
    {"database", "schema", "table", "columns", "dmlBlacklist", "ddlBlacklist"}
)
_COLUMN_FIELDS = frozenset({"name", "type", "suppressWarning"})


@dataclass(slots=True)
class Given:
    """A document that is being read.

    Attributes:
        document: of the design.
        mapping: our configuration; gets further sections.
        quiet: gets columns, with their tables, whose warnings are not wanted.
        names: gets the tables that are listed.
    """

    document: Mapping[str, Any]
    mapping: dict[str, Any]
    quiet: set[tuple[TableId, str]] = field(default_factory=set)
    names: list[TableId] = field(default_factory=list)

    def items(self, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield place and content of each entry of a list."""
        found = self.document.get(name)
        for number, one in enumerate(found if isinstance(found, list) else ()):
            if isinstance(one, Mapping):
                yield f"{name}[{number}]", one

    def part(self, name: str) -> Mapping[str, Any]:
        """Return a section, an empty one where there is none."""
        found = self.document.get(name)
        return found if isinstance(found, Mapping) else {}

    def settings_of(self, pattern: str) -> dict[str, Any]:
        """Return what our configuration says of some tables, to be added to."""
        tables = self.mapping.setdefault("tables", {})
        found: dict[str, Any] = tables.setdefault(pattern, {})
        return found


def read_sections(given: Given) -> Iterator[Problem]:
    """Read everything beside the stages, and yield what has no place."""
    readers: tuple[Callable[[Given], Iterator[Problem]], ...] = (
        _tables,
        _transformations,
        _blacklists,
        _retries,
        _parallelism,
        _resources,
        _places,
    )
    for reader in readers:
        yield from reader(given)
    _with_common_settings(given)


def _warning(kind: str, place: str, what: str, step: str) -> Problem:
    return Problem(kind, what, step, Severity.WARNING, field=place)


def _strange(place: str, held: Mapping[str, Any], known: frozenset[str]) -> Iterator[Problem]:
    for name in sorted(held.keys() - known):
        yield _warning(
            "field-unknown", f"{place}.{name}", f"{place} has no field {name}.", "Take it away."
        )


def _tables(given: Given) -> Iterator[Problem]:
    source = given.mapping.get("source", {})
    database = str(source.get("url", "")).rpartition("/")[2].partition("?")[0]
    for place, one in given.items("tables"):
        yield from _strange(place, one, _TABLE_FIELDS)
        said = str(one.get("database") or database)
        table = TableId(str(one.get("schema") or "public"), str(one.get("table", "")))
        if database and "$" not in database and said != database:
            yield Problem(
                "table-of-another-database",
                f"{said}.{table} lies in another database than the source, which is {database}.",
                "Correct the table's database, or make a replicator of its own for it.",
                table=str(table),
                field=f"{place}.database",
            )
            continue
        given.names.append(table)
        yield from _columns(given, place, table, one)
        yield from _blocked(given, place, one, table)
    if given.names:
        if source.get("tables", ["*.*"]) != ["*.*"]:
            yield _warning(
                "field-unsupported",
                "tables",
                "Tables are listed, and the source has patterns of tables besides: the list counts.",
                "Take one of both away.",
            )
        source["tables"] = [str(table) for table in dict.fromkeys(given.names)]


def _columns(given: Given, place: str, table: TableId, one: Mapping[str, Any]) -> Iterator[Problem]:
    found = one.get("columns")
    columns = [c for c in found if isinstance(c, Mapping)] if isinstance(found, list) else []
    for number, column in enumerate(columns):
        yield from _strange(f"{place}.columns[{number}]", column, _COLUMN_FIELDS)
        if str(column.get("suppressWarning", "")).lower() == "true":
            given.quiet.add((table, str(column.get("name"))))
    names = [str(column["name"]) for column in columns if column.get("name")]
    if names:
        chosen = given.mapping.setdefault("source", {}).setdefault("columns", {})
        chosen[str(table)] = {"include": names}


def _transformations(given: Given) -> Iterator[Problem]:
    for place, one in given.items("tableTransformations"):
        yield from _strange(place, one, frozenset({"tableName", "columnTransformations"}))
        name = str(one.get("tableName", ""))
        pattern = name if "." in name else _pattern(given, name)
        found = one.get("columnTransformations")
        for number, step in enumerate(found if isinstance(found, list) else ()):
            here = f"{place}.columnTransformations[{number}]"
            text = str(step.get("directive", "")) if isinstance(step, Mapping) else ""
            directive = parse_directive(text)
            if directive is None:
                yield Problem(
                    "directive-unknown",
                    f"A directive for {pattern} is none that is known.",
                    "Write rename <old> <new>, or mask <column> left|right <character> <count>; or say it in Spark "
                    "SQL: headrace: {tables: {<schema.table>: {mask: …, compute: …}}}.",
                    table=pattern,
                    column=str(step.get("columnName", "")) if isinstance(step, Mapping) else "",
                    field=f"{here}.directive",
                )
                continue
            settings = given.settings_of(pattern).setdefault(directive.setting, {})
            settings[directive.column] = directive.value
            yield from _strange(here, step, frozenset({"columnName", "directive"}))


def _pattern(given: Given, name: str) -> str:
    """Return the listed table of a name, a pattern for all schemas where it is not listed."""
    found = [table for table in given.names if table.name == name]
    return str(found[0]) if len(found) == 1 else f"*.{name}"


def _blacklists(given: Given) -> Iterator[Problem]:
    yield from _blocked(given, "", given.document, None)


def _blocked(
    given: Given, place: str, one: Mapping[str, Any], table: TableId | None
) -> Iterator[Problem]:
    """Read what is blocked, for one table or for all."""
    ahead = f"{place}." if place else ""
    dml = [str(op).upper() for op in one.get("dmlBlacklist") or ()]
    if dml:
        yield Problem(
            "operations-blocked",
            f"{', '.join(dml)} of {table or 'all tables'} are blocked, and headrace carries every change over.",
            "Take dmlBlacklist away. To keep rows that were deleted: softDeletes of the target; to keep every "
            "change and choose among them later: headrace: {tables: {<schema.table>: {mode: append}}}.",
            table=str(table or ""),
            field=f"{ahead}dmlBlacklist",
        )
    blocked = [str(op).upper() for op in one.get("ddlBlacklist") or ()]
    for operation in blocked:
        if operation == "DROP_TABLE":
            kept = given.settings_of(str(table)) if table else given.mapping
            kept.setdefault("changes", {})["dropped_table"] = "keep"
        elif operation in _HARMLESS_DDL:
            if reason := _HARMLESS_DDL[operation]:
                yield _warning(
                    "field-unsupported",
                    f"{ahead}ddlBlacklist",
                    f"{operation} is not blocked: {reason}.",
                    "Take it away.",
                )
        else:
            yield Problem(
                "operations-blocked",
                f"{operation} of {table or 'all tables'} is blocked, and headrace carries it over.",
                "Take it out of ddlBlacklist; changes says what happens to columns and tables that go: "
                "headrace: {changes: {incompatible: stop, dropped_column: keep}}.",
                table=str(table or ""),
                field=f"{ahead}ddlBlacklist",
            )


def _retries(given: Given) -> Iterator[Problem]:
    wanted = given.part("retries")
    yield from _strange("retries", wanted, frozenset({"maxDurationSeconds", "delaySeconds"}))
    for_s, longest_s = wanted.get("maxDurationSeconds"), wanted.get("delaySeconds")
    retry = given.mapping.setdefault("retry", {}) if for_s or longest_s else {}
    if for_s:
        # There a replicator ends with the first failure that lasts, whatever its table.
        retry |= {"for_s": for_s, "ends": "replicator"}
    if longest_s:
        retry["longest_s"] = longest_s


def _parallelism(given: Given) -> Iterator[Problem]:
    wanted = given.part("parallelism")
    if str(wanted.get("numInstances", "1")) != "1" or wanted.get("instances"):
        yield _warning(
            "field-unsupported",
            "parallelism",
            "One process reads the log for all tables, and Spark's tasks share them; a replicator is one such job.",
            "Give Spark more cores in its place: resources: {vcores: …}, or headrace: {spark: {master: …}}. Or "
            "spread the tables over several replicators that read one relay: source: {type: relay, source, tables}.",
        )
    yield from _strange("parallelism", wanted, frozenset({"numInstances", "instances"}))


def _resources(given: Given) -> Iterator[Problem]:
    wanted = given.part("resources")
    yield from _strange("resources", wanted, frozenset({"vcores", "virtualCores", "memoryMB"}))
    cores, memory = wanted.get("vcores", wanted.get("virtualCores")), wanted.get("memoryMB")
    spark = given.mapping.setdefault("spark", {}) if cores or memory else {}
    if cores:
        spark["master"] = f"local[{cores}]"
    if memory:
        spark["driver_memory"] = f"{memory}m"


def _places(given: Given) -> Iterator[Problem]:
    path = given.document.get("offsetBasePath")
    if path:
        if "://" in str(path):
            yield _warning(
                "field-unsupported",
                "offsetBasePath",
                "offsetBasePath is no folder on this machine, where headrace keeps its state.",
                "Name a folder, or take it away: the state lies beside the configuration then.",
            )
        else:
            given.mapping["state"] = {"dir": ours(str(path))}
    if given.document.get("service") is not None:
        yield _warning(
            "field-unsupported",
            "service",
            "service has no counterpart: headrace assesses by itself.",
            "Take it away.",
        )


def _with_common_settings(given: Given) -> None:
    """Put what is said for all tables behind, and into, what is said for single ones: the first that matches counts."""
    tables = given.mapping.get("tables", {})
    common = tables.pop("*.*", None)
    if common is None:
        return
    for settings in tables.values():
        for name, value in common.items():
            settings.setdefault(name, value)
    tables["*.*"] = common
