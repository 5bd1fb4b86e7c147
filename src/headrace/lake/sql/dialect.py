"""What the SQL of one kind of warehouse has of its own; everything else is written once and translated.

In: statements in PostgreSQL's words, over names and values that are quoted here. Out: the same in the dialect's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp

from headrace.errors import IncompatibleSchemaChange
from headrace.model.schema import KeyCheck, TableId, TableSchema

__all__ = [
    "CATALOG",
    "DUCKDB",
    "POSTGRES",
    "Dialect",
    "literal",
    "quoted",
    "refused_name",
    "table_name",
]


CATALOG = "headrace_target"
"""Name of an open DuckDB file inside DuckDB."""


def quoted(name: str) -> str:
    """Return a name as an identifier, whatever characters it has."""
    return exp.to_identifier(name, quoted=True).sql("postgres")


def table_name(place: TableId) -> str:
    """Return the identifier of a table of the warehouse."""
    return f"{quoted(place.schema)}.{quoted(place.name)}"


def literal(value: str | int) -> str:
    """Return a value as SQL."""
    return exp.convert(value).sql("postgres")


@lru_cache(2_048)
def _written(text: str, name: str) -> str:
    (statement,) = sqlglot.transpile(text, read="postgres", write=name)
    return statement


@lru_cache(2_048)
def _type(text: str, spoken: str, name: str) -> str:
    return exp.DataType.build(text, dialect=spoken).sql(name)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of warehouse.

    Attributes:
        name: what sqlglot calls it.
        row_id: the hidden column that tells rows of one table apart while a transaction lasts.
        columns_query: SQL that lists name and type of each column of a table; has ``{schema}`` and ``{name}``.
        keeps_keys: whether a table's key is declared, so that the server finds rows by it.
        indexes_keys: whether an index serves a key that is not declared.
        updates_zeros: whether a MERGE is there, and writes a cell whose new value compares equal, as 0.0 and -0.0 do.
        tells_zeros: whether 0.0 and -0.0 are two keys.
        joins_deletes: whether a DELETE looks into another table beside its own.
        changes_types: whether a column takes another type where it stands, whatever index it is in.
        longest_name: octets of a name that are kept, None for no limit.
        folds_case: whether names that differ by case alone are the same.
        reserved: names that a schema cannot have.
        decimals_as_text: whether staged decimals are text.
        commits_ddl: whether each statement that makes, changes or drops a table is a commit.
    """

    name: str
    row_id: str
    columns_query: str
    keeps_keys: bool
    indexes_keys: bool
    updates_zeros: bool
    tells_zeros: bool
    joins_deletes: bool
    changes_types: bool
    longest_name: int | None
    folds_case: bool
    reserved: frozenset[str]
    decimals_as_text: bool
    commits_ddl: bool = False

    def written(self, text: str) -> str:
        """Return a statement of PostgreSQL's words in the dialect's."""
        return _written(text, self.name)

    def type_of(self, text: str, *, own: bool = False) -> str:
        """Return the one name of a type that has several.

        Args:
            text: the type.
            own: whether the words are the dialect's own, and not PostgreSQL's.
        """
        return _type(text, self.name if own else "postgres", self.name)

    def same_key(self, left: Sequence[str], right: Sequence[str], *, null: bool) -> str:
        """Return the condition that two keys are the same to the server.

        Args:
            left: cells of the one.
            right: cells of the other.
            null: whether some of them may be null; no index of PostgreSQL's serves the condition then.
        """
        operator = "IS NOT DISTINCT FROM" if null else "="
        pairs = zip(left, right, strict=True)
        return " AND ".join(f"{one} {operator} {other}" for one, other in pairs)

    def deletion(self, target: str, stage: str, same: str) -> str:
        """Return the statement that removes the rows ``t`` of a table for which some staged row ``s`` is the same."""
        if self.joins_deletes:
            return f"DELETE FROM {target} AS t USING {stage} AS s WHERE {same}"
        found = f"SELECT t.{self.row_id} FROM {stage} AS s JOIN {target} AS t ON {same}"
        return f"DELETE FROM {target} WHERE {self.row_id} IN ({found})"

    def check_names(self, schema: TableSchema, place: TableId) -> None:
        """Refuse names that the warehouse would cut off or mix up.

        Raises:
            IncompatibleSchemaChange: names the table and the name.
        """
        seen: dict[str, str] = {}
        for name in (place.schema, place.name, *schema.names):
            if self.longest_name is not None and len(name.encode()) > self.longest_name:
                raise refused_name(schema, f"{name[:40]}…", "is longer than the warehouse keeps")
        if place.schema.lower() in self.reserved:
            raise refused_name(schema, place.schema, "is one of the warehouse's own")
        for name in schema.names:
            if self.folds_case and (twin := seen.get(name.lower())):
                raise refused_name(schema, name, f"differs from {twin} by case alone")
            # A column of that name hides the warehouse's own, by which these rows are removed.
            by_row_id = not self.joins_deletes or schema.key_check is KeyCheck.NONE
            if by_row_id and (name.lower() if self.folds_case else name) == self.row_id:
                raise refused_name(
                    schema, name, "is that by which the warehouse itself tells rows apart"
                )
            seen[name.lower()] = name


def refused_name(schema: TableSchema, name: str, why: str) -> IncompatibleSchemaChange:
    """Return the error of a name that the warehouse does not take; ``why`` begins with a verb."""
    return IncompatibleSchemaChange(
        f"The name {name} of {schema.table} {why}.",
        next_step="rename it at the source, or leave the table or column out: source.exclude, source.columns.",
    )


POSTGRES = Dialect(
    name="postgres",
    row_id="ctid",
    columns_query=(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a "
        "JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = {schema} AND c.relname = {name} AND a.attnum > 0 AND NOT a.attisdropped"
    ),
    keeps_keys=True,
    indexes_keys=False,
    updates_zeros=True,
    tells_zeros=False,
    joins_deletes=True,
    changes_types=True,
    longest_name=63,
    folds_case=False,
    reserved=frozenset(),
    # Only the server knows how to write its own numerics.
    decimals_as_text=True,
)
DUCKDB = Dialect(
    name="duckdb",
    row_id="rowid",
    columns_query=(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = {schema} "
        "AND table_name = {name} AND database_name = current_database()"
    ),
    # Its indexes refuse a key that one transaction removes and brings back.
    keeps_keys=False,
    indexes_keys=False,
    updates_zeros=False,
    tells_zeros=False,
    joins_deletes=True,
    changes_types=True,
    longest_name=None,
    folds_case=True,
    # Names of databases inside one, which hide schemas.
    reserved=frozenset({CATALOG, "memory", "system", "temp"}),
    decimals_as_text=False,
)
