"""What settings of columns and rows say wrongly of one table, told without Spark.

In: a version of the source's table, and what a person asked for. Out: problems. Names are judged as Spark's own check
of them is (`headrace.lake.settings`); expressions are parsed in Spark's dialect, so an unknown function or a type that
does not fit is left for Spark, which refuses it by name at the table's first batch. No expression is ever repeated:
what masks a column may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import sqlglot
from sqlglot import exp

from headrace.errors import ConfigError
from headrace.lake.expressions import changing_word
from headrace.lake.partitioning import check_partitions
from headrace.lake.settings import IN_KEY, LEFT_OUT, UNKNOWN, TableSettings
from headrace.model.schema import Column, TableSchema
from headrace.replicator.assess.problems import Problem

__all__ = ["expected_schema", "transformation_issues"]

_KINDS = {
    UNKNOWN: "transform-column-unknown",
    IN_KEY: "transform-key-column",
    LEFT_OUT: "transform-left-out",
}
_PLACE = "correct {setting} in the section tables of the configuration"

_SEVERAL = (
    exp.AggFunc,
    exp.Window,
    exp.Query,
    exp.UDTF,
    exp.Explode,
    exp.Posexplode,
    exp.Star,
)
"""What takes or gives more than one row."""
_BY_CHANCE = (exp.Rand, exp.Randn, exp.Uuid)
_BY_PLACE = frozenset(
    {
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "shuffle",
        "random",
        "randstr",
    }
)
"""Functions whose value depends on where and when they run, and that have no class of their own."""
_UNTYPED = pa.string()
"""Stands for the type of a column that an expression makes, which Spark alone knows."""


def transformation_issues(
    schema: TableSchema, settings: TableSettings, place: str = "tables"
) -> Iterator[Problem]:
    """Yield what is wrong with the settings of one table.

    Args:
        schema: the captured columns of the source's table.
        settings: what was asked for it.
        place: where they stand in the configuration.
    """
    for issue in _issues(schema, settings):
        yield replace(issue, field=f"{place}.{issue.field}")


def _issues(schema: TableSchema, settings: TableSettings) -> Iterator[Problem]:
    """Yield them; the fields are names of settings."""
    table = str(schema.table)
    for fault in settings.faults(schema):
        yield Problem(
            _KINDS[fault.why],
            f"{fault.setting} of {table} names {fault.column}, {fault.why}.",
            f"{_PLACE.format(setting=fault.setting).capitalize()}; {table} has {_named(schema)}.",
            table=table,
            column=fault.column,
            field=fault.setting,
        )
    for setting, column, sql in _expressions(settings):
        if issue := _judged(schema, setting, sql):
            kind, what = issue
            yield Problem(
                kind,
                f"{setting} of {table} {what}.",
                f"{_PLACE.format(setting=setting).capitalize()}; {table} has {_named(schema)}.",
                table=table,
                column=column,
                field=setting.partition(" ")[0],
            )
    yield from _collisions(schema, settings)
    yield from _partitions(schema, settings)


def expected_schema(schema: TableSchema, settings: TableSettings) -> TableSchema:
    """Return the columns that a target is to have, as far as they can be told without Spark.

    Columns that an expression makes stand there as text, whatever Spark will make of them.
    """
    renamed, masked = dict(settings.rename), dict(settings.mask)
    columns = []
    for name in settings.kept(schema):
        column = schema.column(name)
        type_, source_type = (
            (_UNTYPED, "mask") if name in masked else (column.type, column.source_type)
        )
        columns.append(Column(renamed.get(name, name), type_, source_type, column.nullable))
    columns += [Column(name, _UNTYPED, "compute") for name, _ in settings.compute]
    key = tuple(renamed.get(name, name) for name in schema.key if name in settings.kept(schema))
    return TableSchema(schema.table, tuple(columns), key, schema.key_check)


def _expressions(settings: TableSettings) -> Iterator[tuple[str, str, str]]:
    """Yield setting, column and text of every expression."""
    yield from ((f"mask of {name}", name, sql) for name, sql in settings.mask)
    yield from ((f"compute of {name}", name, sql) for name, sql in settings.compute)
    if settings.where is not None:
        yield "where", "", settings.where


def _judged(schema: TableSchema, setting: str, sql: str) -> tuple[str, str] | None:
    """Return what is wrong with an expression, if anything is: the kind of problem, and the end of a sentence."""
    if found := changing_word(sql):
        return "expression-unfit", f"says {found}, which is not the same at each replay"
    try:
        parsed = _parsed(sql)
    except sqlglot.ParseError as error:
        return "expression-unreadable", f"is no Spark SQL{_place(error, sql)}"
    except sqlglot.errors.SqlglotError:
        return "expression-unreadable", "is no Spark SQL"
    if parsed is None:
        return "expression-unreadable", "is no single expression"
    if parsed.find(*_SEVERAL) is not None:
        return "expression-unfit", "takes or gives more than one row"
    named = {node.name.lower() for node in parsed.find_all(exp.Anonymous)}
    if parsed.find(*_BY_CHANCE) is not None or named & _BY_PLACE:
        return "expression-unfit", "is not the same at each replay"
    # Spark takes names of columns in any case.
    known = {name.lower() for name in schema.names}
    for column in parsed.find_all(exp.Column):
        if column.table or column.name.lower() not in known:
            return (
                "expression-column-unknown",
                f"names {_spelt(column)}, which is no column of the table",
            )
    if setting == "where" and _is_no_condition(schema, parsed):
        return "expression-unfit", "is no condition"
    return None


def _parsed(sql: str) -> exp.Expression | None:
    """Return an expression as it stands where Spark puts it, None for what is more or less than one."""
    statements = sqlglot.parse(f"({sql}) IS NULL", read="spark")
    whole = statements[0] if len(statements) == 1 else None
    inside = whole.this if isinstance(whole, exp.Is) else None
    if not isinstance(inside, exp.Paren) or isinstance(inside.this, exp.Alias):
        return None
    found = inside.this
    return found if isinstance(found, exp.Expression) else None


def _place(error: sqlglot.ParseError, sql: str) -> str:
    """Return where parsing ended; the parser's own words quote the expression."""
    found = error.errors[0] if error.errors else {}
    line, column = found.get("line"), found.get("col")
    if not line or not column:
        return ""
    # What stands ahead of it and behind it is ours.
    lines = sql.splitlines() or [""]
    column -= line == 1
    if line > len(lines) or (line == len(lines) and column > len(lines[-1])):
        return " (something is lacking at its end)"
    return f" (at line {line}, column {max(1, column)})"


def _spelt(column: exp.Column) -> str:
    return ".".join(part.name for part in column.parts)


def _is_no_condition(schema: TableSchema, parsed: exp.Expression) -> bool:
    """Return whether an expression surely gives something else than true, false or null."""
    if isinstance(parsed, exp.Column):
        types = {column.name.lower(): column.type for column in schema.columns}
        return not pa.types.is_boolean(types[parsed.name.lower()])
    return isinstance(parsed, exp.Literal | exp.Binary) and not isinstance(
        parsed, exp.Predicate | exp.Connector | exp.Dot
    )


def _collisions(schema: TableSchema, settings: TableSettings) -> Iterator[Problem]:
    """Yield names that settings give to two columns of the target."""
    table, seen = str(schema.table), dict[str, str]()
    given = {new for _, new in settings.rename} | {name for name, _ in settings.compute}
    for column in expected_schema(schema, settings).columns:
        twin = seen.setdefault(column.name.lower(), column.name)
        if twin is not column.name and {twin, column.name} & given:
            yield Problem(
                "transform-names-collide",
                f"rename or compute of {table} gives {column.name} twice.",
                f"Give each column of {table} a name of its own in rename and compute.",
                table=table,
                column=column.name,
                field="rename",
            )


def _partitions(schema: TableSchema, settings: TableSettings) -> Iterator[Problem]:
    if not settings.partition_by:
        return
    made = expected_schema(schema, settings)
    own = {name for name, _ in settings.compute} | {
        dict(settings.rename).get(name, name) for name, _ in settings.mask
    }
    # Spark knows the types of what it makes; that the names are there is known here.
    asked = [name for name in settings.partition_by if name not in own or name not in made.names]
    try:
        check_partitions(
            made, asked if len(asked) < len(settings.partition_by) else settings.partition_by
        )
    except ConfigError as error:
        yield Problem(
            "partition-column-unfit",
            error.message.removeprefix("tables: "),
            f"{error.next_step[:1].upper()}{error.next_step[1:]}",
            table=str(schema.table),
            field="partition_by",
        )


def _named(schema: TableSchema) -> str:
    names = schema.names[:12]
    more = len(schema.names) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
