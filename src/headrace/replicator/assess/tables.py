"""Tables of a source for people who choose among them: which there are, and what is in one.

In: a configuration, whose target is not looked at. Out: values, and the JSON of ``listTables`` and ``describeTable``.

Source: docs/requirements.md, C94 and C95.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.errors import ConfigError, UnknownTable
from headrace.model.schema import TableId, render_type
from headrace.replicator import runner
from headrace.replicator.assess.kinds import Group
from headrace.replicator.assess.looks import AssessedSource, Looks
from headrace.replicator.assess.problems import Problem, from_finding, in_group, listed
from headrace.replicator.config import Config, DatabaseConfig
from headrace.sources.description import (
    ColumnDescription,
    Given,
    SourceDescription,
    TableDescription,
)

__all__ = [
    "Described",
    "TableList",
    "alone",
    "column_json",
    "describe_table",
    "find_table",
    "list_tables",
    "source_of",
]

EVERY = ("*.*",)
"""Patterns of all tables that are not the server's own."""


@dataclass(frozen=True, slots=True)
class TableList:
    """The tables that could be captured.

    Attributes:
        source: their descriptions.
    """

    source: SourceDescription

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in the shape of ``listTables``."""
        return {
            "tables": [
                {**named(self.source.database, table.table), "numColumns": len(table.columns)}
                for table in self.source.tables
            ]
        }


@dataclass(frozen=True, slots=True)
class Described:
    """One table.

    Attributes:
        database: that it lies in.
        table: its description.
        features: what preflight says of it.
    """

    database: str
    table: TableDescription
    features: tuple[Problem, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in the shape of ``describeTable``."""
        return {
            **named(self.database, self.table.table),
            "numColumns": len(self.table.columns),
            "primaryKey": list(self.table.primary_key),
            "columns": [column_json(column) for column in self.table.columns],
            "features": listed(self.features),
        }


def named(database: str, table: TableId) -> dict[str, str]:
    """Return what a table is called: ``name`` as in the design, ``schema`` and ``table`` as in its later versions."""
    return {
        "database": database,
        "schema": table.schema,
        "name": table.name,
        "table": table.name,
    }


def column_json(column: ColumnDescription) -> dict[str, Any]:
    """Return a column as plain values; ``properties`` are texts."""
    return {
        "name": column.name,
        "type": column.source_type,
        "nullable": column.nullable,
        "properties": {
            "standardType": "" if column.given is Given.ABSENT else render_type(column.arrow),
            "given": column.given.value,
            "captured": str(column.captured).lower(),
        },
    }


def list_tables(config: Config, *, every: bool = False, looks: Looks | None = None) -> TableList:
    """Return the tables that the configuration selects.

    Args:
        config: of the replicator, which need not be there yet.
        every: all tables of the source instead, whatever is selected.
        looks: whom to ask; those whom the configuration names when None.

    Raises:
        ConfigError: the changes come from a relay.
        SourceUnavailable: the server cannot be reached, or refuses us.
    """
    source = source_of(looks or runner.looks(config), config)
    return TableList(source.described(EVERY if every else None))


def describe_table(
    config: Config, name: str, schema: str = "", database: str = "", *, looks: Looks | None = None
) -> Described:
    """Return one table, selected or not.

    Args:
        config: of the replicator, which need not be there yet.
        name: of the table, or ``schema.name``.
        schema: that it lies in; looked for when empty.
        database: that it lies in; any when empty.
        looks: whom to ask; those whom the configuration names when None.

    Raises:
        ConfigError: the changes come from a relay.
        SourceUnavailable: the server cannot be reached, or refuses us.
        UnknownTable: the source has no such table.
    """
    asked = looks or runner.looks(config)
    found = source_of(asked, config).described(EVERY)
    table = find_table(found, name, schema, database)
    source = source_of(looks or runner.looks(alone(config, table.table)), config)
    problems = (from_finding(f) for f in source.preflight() if f.table == str(table.table))
    (described,) = source.described(only=table.table).tables
    return Described(found.database, described, in_group(problems, Group.FEATURE))


def source_of(looks: Looks, config: Config) -> AssessedSource:
    """Return the source whose catalog is to be read.

    Raises:
        ConfigError: there is none.
    """
    if looks.source is None:
        raise ConfigError(
            f"{config.name} reads its changes from a relay, which knows no tables before their changes come.",
            next_step="ask where the source's capture runs, with the file that names the database.",
        )
    return looks.source()


def find_table(
    source: SourceDescription, name: str, schema: str = "", database: str = ""
) -> TableDescription:
    """Return the table that somebody means.

    Without a schema it is looked for in all of them: in the one called like the database first, for those to whom both
    are one, and in ``public`` then.

    Raises:
        UnknownTable: there is none, or several of this name.
    """
    if not schema and "." in name:
        schema, _, name = name.partition(".")
    elsewhere = bool(database) and database != source.database
    found = [t for t in source.tables if t.table.name == name]
    if schema:
        found = [] if elsewhere else [t for t in found if t.table.schema == schema]
    elif elsewhere:
        found = [t for t in found if t.table.schema == database]
    elif len(found) > 1:
        found = [t for t in found if t.table.schema == "public"] or found
    if len(found) == 1:
        return found[0]
    asked = ".".join(part for part in (schema or database, name) if part)
    if found:
        schemas = ", ".join(sorted(t.table.schema for t in found))
        raise UnknownTable(
            f"{asked} is not one table: there is one in each of the schemas {schemas}.",
            next_step="name the schema too.",
        )
    raise UnknownTable(
        f"Database {source.database} has no table {asked}.",
        next_step=f"choose among the tables that are there{_close(source.tables, name) or '.'}",
    )


def _close(tables: Iterable[TableDescription], name: str) -> str:
    import difflib

    names = {str(table.table): table.table.name for table in tables}
    near = difflib.get_close_matches(name, list(names.values()), n=1, cutoff=0.6)
    meant = [full for full, short in names.items() if near and short == near[0]]
    return f"; did you mean {meant[0]}?" if meant else ""


def alone(config: Config, table: TableId) -> Config:
    """Return the configuration of a replicator that captures one table, so that no other one is looked at."""
    source = config.source
    wild = any(letter in part for part in table for letter in "*?.")
    if not isinstance(source, DatabaseConfig) or wild:
        return config
    return config.model_copy(
        update={"source": source.model_copy(update={"tables": (str(table),), "exclude": ()})}
    )
