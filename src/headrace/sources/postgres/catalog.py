"""What the system catalog says about tables; plain selects, no locks beyond their own.

The stream and the chunk reader both build a table's schema here, from the same facts: the columns as published,
their types resolved by one shared cache, and the replica identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.model.succession import column_number
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.settings import TableFilter
from headrace.sources.postgres.types import ResolvedType, arrow_type, binary_form

__all__ = [
    "Attribute",
    "Identity",
    "TableFacts",
    "TypeCache",
    "UniqueIndex",
    "published_types",
    "read_tables",
    "table_schema",
]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column as ``pg_attribute`` has it.

    ``filled`` says that rows which were there when the column came may hold a value that no log event carried;
    ``as_text`` that the configuration wants it as the server renders it.
    """

    name: str
    number: int
    type_oid: int
    modifier: int
    generated: bool
    filled: bool
    as_text: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """Which columns tell rows apart, and how far the log carries old images.

    Attributes:
        letter: ``relreplident``: d, n, f or i.
        key: columns in index order, empty without a usable key.
        check: when the key is checked.
        index: oid of the key's index, 0 without a usable key.
        nullable: columns of the key that may hold null, which PostgreSQL 18 lets pass.
    """

    letter: str
    key: tuple[str, ...]
    check: KeyCheck
    index: int = 0
    nullable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index over plain columns, checked row by row, that covers every row.

    ``nullable`` are those of its columns that may hold null: rows with null there are not told apart.
    """

    name: str
    nullable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Everything the adapter asks about one table.

    ``storage`` changes when its heap is rewritten; ``leaves`` are the partitions that hold its rows, with their own
    replica identity, ``unlogged`` and ``foreign`` those whose changes no log of the server has; ``unique`` are indexes
    that could serve as one.
    """

    oid: int
    table: TableId
    kind: str
    persistence: str
    partition: bool
    rows: int
    row_security: bool
    owned: bool
    readable: bool
    schema_usable: bool
    storage: int
    attributes: tuple[Attribute, ...]
    identity: Identity
    leaves: tuple[tuple[str, str], ...] = ()
    unlogged: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    unique: tuple[UniqueIndex, ...] = ()

    @property
    def published(self) -> tuple[Attribute, ...]:
        """Columns that the log carries: generated ones are computed, not logged."""
        return tuple(a for a in self.attributes if not a.generated)

    @property
    def numbers(self) -> dict[str, int]:
        """Number of each column that the log carries; see `headrace.model.succession`."""
        return {a.name: column_number(self.oid, a.number) for a in self.published}

    @property
    def partitioned(self) -> bool:
        """Whether the table is the root of partitions."""
        return self.kind == "p"


class TypeCache:
    """Types by oid and modifier, resolved once for the life of a source.

    The stream and the chunks share one cache, so a type that is renamed meanwhile has one name here.
    """

    def __init__(self) -> None:
        self._types: dict[tuple[int, int], ResolvedType] = {}

    def resolve(
        self, session: Session, wanted: Iterable[tuple[int, int]]
    ) -> dict[tuple[int, int], ResolvedType]:
        """Return the types of (oid, modifier) pairs, asking the server for those not seen before."""
        pairs = set(wanted)
        missing = sorted(pairs - self._types.keys())
        if missing:
            self._ask(session, missing)
        return {pair: self._types[pair] for pair in pairs}

    def _ask(self, session: Session, missing: Sequence[tuple[int, int]]) -> None:
        oids = "{" + ",".join(str(oid) for oid, _ in missing) + "}"
        modifiers = "{" + ",".join(str(modifier) for _, modifier in missing) + "}"
        for oid, modifier, name, base, base_modifier, textual in session.rows(
            _TYPES, oids, modifiers
        ):
            pair = (int(oid or 0), int(modifier or -1))
            arrow = arrow_type(int(base or 0), int(base_modifier or -1))
            form = binary_form(int(base or 0), textual=textual == "t")
            self._types[pair] = ResolvedType(arrow, name or "", form)
        for pair in missing:  # a type dropped meanwhile: its values are still text
            self._types.setdefault(
                pair, ResolvedType(arrow_type(pair[0], pair[1]), f"type {pair[0]}", gone=True)
            )


# A type's binary form is its text where the server's own functions write both from the same bytes.
_TYPES = """
WITH RECURSIVE asked AS (
    SELECT oid, modifier FROM unnest($1::oid[], $2::int4[]) AS a(oid, modifier)
), base AS (
    SELECT a.oid, a.modifier, t.oid AS base, a.modifier AS base_modifier, t.typtype,
           t.typbasetype, t.typtypmod
      FROM asked a JOIN pg_type t ON t.oid = a.oid
    UNION ALL
    SELECT b.oid, b.modifier, t.oid, CASE WHEN b.base_modifier = -1 THEN b.typtypmod
           ELSE b.base_modifier END, t.typtype, t.typbasetype, t.typtypmod
      FROM base b JOIN pg_type t ON t.oid = b.typbasetype WHERE b.typtype = 'd'
)
SELECT b.oid, b.modifier, format_type(b.oid, b.modifier), b.base, b.base_modifier,
       EXISTS (SELECT FROM pg_type t JOIN pg_proc o ON o.oid = t.typoutput JOIN pg_proc s ON s.oid = t.typsend
                WHERE t.oid = b.base AND o.prolang = 12 AND s.prolang = 12 AND (o.prosrc, s.prosrc) IN (
                      ('textout', 'textsend'), ('varcharout', 'varcharsend'), ('bpcharout', 'bpcharsend'),
                      ('nameout', 'namesend'), ('json_out', 'json_send'), ('enum_out', 'enum_send')))
  FROM base b WHERE b.typtype <> 'd'
"""

_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence, c.relispartition,
       GREATEST(c.reltuples, 0)::int8, c.relrowsecurity AND row_security_active(c.oid),
       pg_has_role(c.relowner, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),
       has_schema_privilege(n.oid, 'USAGE'), c.relfilenode, c.relreplident
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
   AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
   AND ($1::text IS NULL OR (n.nspname = $1 AND c.relname = $2))
 ORDER BY n.nspname, c.relname
"""

_ATTRIBUTES = """
SELECT attrelid, attname, attnum, atttypid, atttypmod, attgenerated <> '',
       atthasmissing OR atthasdef OR attidentity <> ''
  FROM pg_attribute
 WHERE attrelid = ANY ($1::oid[]) AND attnum > 0 AND NOT attisdropped ORDER BY attrelid, attnum
"""

# Columns that an index only carries along (INCLUDE) stand behind its key. NOT NULL may be NOT VALID from 18 on.
_INDEXES = """
SELECT i.indrelid, i.indisprimary, i.indisreplident, i.indimmediate, array_to_string(k.key, ' '),
       i.indexrelid, c.relname, ARRAY_TO_STRING(ARRAY(
           SELECT a.attnum FROM pg_attribute a
            WHERE a.attrelid = i.indrelid AND a.attnum = ANY (k.key) AND (
                  NOT a.attnotnull OR EXISTS (
                      SELECT FROM pg_constraint n WHERE n.conrelid = i.indrelid AND n.contype = 'n'
                         AND n.conkey = ARRAY[a.attnum] AND NOT n.convalidated))), ' ')
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid,
       LATERAL (SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1] AS key) k
 WHERE i.indrelid = ANY ($1::oid[]) AND i.indisvalid AND (i.indisprimary OR i.indisreplident OR (
       i.indisunique AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL))
 ORDER BY c.relname
"""

_PARTITION_ROWS = """
SELECT COALESCE(sum(GREATEST(c.reltuples, 0)), 0)::int8
  FROM pg_partition_tree($1::oid::regclass) t JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf
"""


_PARTITIONS = """
SELECT r.oid, t.relid::oid, t.isleaf, n.nspname || '.' || c.relname, c.relreplident,
       CASE WHEN c.relkind = 'f' THEN 'f' ELSE c.relpersistence END
  FROM unnest($1::oid[]) AS r(oid), LATERAL pg_partition_tree(r.oid::regclass) t
  JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE t.relid <> r.oid::regclass ORDER BY 4
"""


def read_tables(
    session: Session, selected: TableFilter | None = None, only: TableId | None = None
) -> list[TableFacts]:
    """Return the facts of all tables, of those a filter selects, or of one, by name.

    A partition is left out when the root above it is there: its rows travel under the root's name.
    """
    names = (None, None) if only is None else (only.schema, only.name)
    rows = [
        row
        for row in session.rows(_TABLES, *names)
        if selected is None or selected.selects(TableId(row[1] or "", row[2] or ""))
    ]
    oids = "{" + ",".join(row[0] or "" for row in rows) + "}"
    attributes = _attributes(session, oids)
    indexes = session.rows(_INDEXES, oids)
    facts = [_facts(row, attributes, indexes) for row in rows]
    if only is None:
        facts = _without_partitions(session, facts)
    return facts


def estimate_rows(session: Session, facts: TableFacts) -> int:
    """Return the catalog's estimate, summed over partitions."""
    if facts.partitioned:
        return int(session.value(_PARTITION_ROWS, str(facts.oid)))
    return facts.rows


def _without_partitions(session: Session, facts: list[TableFacts]) -> list[TableFacts]:
    """Drop tables whose rows travel under a root that is in the list; note each root's leaves."""
    roots = [f.oid for f in facts if f.partitioned]
    if not roots:
        return facts
    below: set[int] = set()
    parts: dict[int, list[tuple[str, str, str]]] = {}
    for root, oid, leaf, name, letter, where in session.rows(
        _PARTITIONS, "{" + ",".join(map(str, roots)) + "}"
    ):
        below.add(int(oid or 0))
        if leaf == "t":
            parts.setdefault(int(root or 0), []).append((name or "", letter or "", where or ""))
    return [_with_parts(f, parts.get(f.oid, [])) for f in facts if f.oid not in below]


def _with_parts(facts: TableFacts, parts: Sequence[tuple[str, str, str]]) -> TableFacts:
    """Return the facts with a root's partitions, each a name, a replica identity and where it lives."""
    return replace(
        facts,
        leaves=tuple((name, letter) for name, letter, where in parts if where == "p"),
        unlogged=tuple(name for name, _, where in parts if where == "u"),
        foreign=tuple(name for name, _, where in parts if where == "f"),
    )


def _attributes(session: Session, oids: str) -> dict[str, list[Attribute]]:
    found: dict[str, list[Attribute]] = {}
    for table, name, number, type_oid, modifier, generated, filled in session.rows(
        _ATTRIBUTES, oids
    ):
        found.setdefault(table or "", []).append(
            Attribute(
                name or "",
                int(number or 0),
                int(type_oid or 0),
                int(modifier or -1),
                generated == "t",
                filled == "t",
            )
        )
    return found


def _facts(
    row: Sequence[str | None],
    attributes: dict[str, list[Attribute]],
    indexes: Sequence[Sequence[str | None]],
) -> TableFacts:
    oid = row[0] or ""
    columns = attributes.get(oid, [])
    letter = row[12] or "d"
    own = [index for index in indexes if index[0] == oid]
    return TableFacts(
        oid=int(oid),
        table=TableId(row[1] or "", row[2] or ""),
        kind=row[3] or "",
        persistence=row[4] or "",
        partition=row[5] == "t",
        rows=int(row[6] or 0),
        row_security=row[7] == "t",
        owned=row[8] == "t",
        readable=row[9] == "t",
        schema_usable=row[10] == "t",
        storage=int(row[11] or 0),
        attributes=tuple(columns),
        identity=_identity(letter, columns, own),
        unique=tuple(
            UniqueIndex(index[6] or "", _named(columns, index[7]))
            for index in own
            if index[3] == "t"
        ),
    )


def _named(columns: Sequence[Attribute], numbers: str | None) -> tuple[str, ...]:
    """Return the names of columns given by their numbers."""
    names = {column.number: column.name for column in columns}
    return tuple(names[int(number)] for number in (numbers or "").split())


def _identity(
    letter: str, columns: Sequence[Attribute], indexes: Sequence[Sequence[str | None]]
) -> Identity:
    """Choose the index that tells rows apart: the primary key's, or the one that was named."""
    place = {"d": 1, "f": 1, "i": 2}.get(letter)
    chosen = [index for index in indexes if place is not None and index[place] == "t"]
    if not chosen:
        return Identity(letter, (), KeyCheck.NONE)
    _, _, _, immediate, key, oid, _, nullable = chosen[0]
    return Identity(
        letter,
        _named(columns, key),
        KeyCheck.IMMEDIATE if immediate == "t" else KeyCheck.DEFERRED,
        int(oid or 0),
        _named(columns, nullable),
    )


def table_schema(
    table: TableId,
    columns: Sequence[tuple[str, ResolvedType]],
    key: Iterable[str],
    check: KeyCheck,
) -> TableSchema:
    """Return a schema that is the same whether the log or the catalog told its facts.

    The log says nothing about NOT NULL, so only key columns are not nullable; and it names identity columns
    in table order, so the key stands in table order too.
    """
    wanted = set(key)
    names = [name for name, _ in columns]
    if not wanted <= set(names):
        wanted, check = set(), KeyCheck.NONE
    return TableSchema(
        table,
        tuple(
            Column(name, type_.arrow, type_.name, nullable=name not in wanted)
            for name, type_ in columns
        ),
        tuple(name for name in names if name in wanted),
        check,
    )


def published_types(
    session: Session, types: TypeCache, columns: Sequence[Attribute]
) -> list[tuple[str, ResolvedType]]:
    """Return the columns with their types, as the configuration wants them."""
    resolved = types.resolve(session, ((a.type_oid, a.modifier) for a in columns))
    typed = ((a, resolved[a.type_oid, a.modifier]) for a in columns)
    return [(a.name, type_.as_text() if a.as_text else type_) for a, type_ in typed]


def describe(session: Session, types: TypeCache, facts: TableFacts) -> TableSchema:
    """Return a table's schema from its catalog facts."""
    columns = published_types(session, types, facts.published)
    schema = table_schema(facts.table, columns, facts.identity.key, facts.identity.check)
    return replace(schema, numbers=facts.numbers)
