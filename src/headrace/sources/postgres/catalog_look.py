"""Looks at the catalog every few seconds: tables that came, went, were renamed, or whose rows were written anew.

None of that needs more rights than a plain role has. What a look compares with is kept by the caller and outlives the
process, so what happened while nobody captured is seen by the first look. The order of catalog and log is not known
here: a look tells what is so by now, and whoever writes it down does so behind everything that the log held before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.model.schema import TableId
from headrace.sources.base import CatalogEntry, CatalogLook
from headrace.sources.naming import refuse_unnameable
from headrace.sources.postgres.catalog import TableFacts, read_tables
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.joining import Joining, Joins
from headrace.sources.postgres.publication import out_of_step
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.spelling import read_spelling, respells

__all__ = ["CatalogWatch", "Seen", "restates"]

_NAMES = """
SELECT c.oid, n.nspname, c.relname,
       CASE WHEN c.relispartition
            THEN (SELECT string_agg(a.relid::oid::text, ' ') FROM pg_partition_ancestors(c.oid) a
                   WHERE a.relid <> c.oid) END
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
   AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
"""

_SCHEMAS = "SELECT oid, nspname FROM pg_namespace"

# Storage, then for each column its number, the transaction that last wrote its description, type, modifier,
# whether rows from before it came may hold a value (2: it is generated, and in no log), and a hash of its name, which
# may hold any character.
# The heaps of a partitioned table are its partitions'; those that were ever written anew stand for all of them, so that
# partitions that come change nothing.
_SHAPES = """
SELECT c.oid, %s
  FROM (SELECT c.oid, concat(CASE c.relkind WHEN 'p' THEN (
                   SELECT ('x' || left(md5(coalesce(string_agg(concat(l.oid, '=', l.relfilenode), ',' ORDER BY l.oid),
                                                    '')), 15))::bit(60)::int8
                     FROM pg_partition_tree(c.oid::regclass) t JOIN pg_class l ON l.oid = t.relid
                    WHERE t.isleaf AND l.relfilenode <> l.oid)
               ELSE c.relfilenode::int8 END, '|', string_agg(concat_ws(':', a.attnum, a.xmin, a.atttypid,
               a.atttypmod, CASE WHEN a.attgenerated <> '' THEN 2
               ELSE (a.atthasmissing OR a.atthasdef OR a.attidentity <> '')::int END,
               left(md5(a.attname), 12)), ','
               ORDER BY a.attnum)) AS shape
          FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
               AND NOT a.attisdropped
         WHERE c.oid = ANY ($1::oid[]) GROUP BY c.oid, c.relkind, c.relfilenode) c
"""


@dataclass(slots=True)
class Seen:
    """What the stream may know of the looks; set by their thread, read by the stream's.

    Attributes:
        admitted: identities of all tables of which nothing more is to be said before they are dumped.
        tables: names of the captured tables, by identity, as they were last told.
        found: names of those that the last look found to be captured from now on. What the log says of another name of
            theirs may be older than the look.
        schemas: names of namespaces, by identity.
    """

    admitted: set[str] = field(default_factory=set)
    tables: dict[str, TableId] = field(default_factory=dict)
    found: dict[str, TableId] = field(default_factory=dict)
    schemas: dict[str, str] = field(default_factory=dict)


class CatalogWatch:
    """Makes the looks of one source; used from one thread.

    Args:
        settings: which tables.
        seen: told of each look, for the stream.
        joining: takes tables into the log; by the publication when None.
    """

    def __init__(
        self, settings: PostgresSettings, seen: Seen | None = None, joining: Joins | None = None
    ) -> None:
        self._settings = settings
        self._seen = seen or Seen()
        self._joining: Joins = joining or Joining(settings)
        self._relisting: set[int] = set()
        self._left: set[int] = set()
        self._first = True

    def look(
        self,
        session: Session,
        known: Mapping[str, CatalogEntry],
        settled: Collection[TableId],
        admitted: Collection[str],
    ) -> CatalogLook:
        """See `headrace.sources.base.CatalogReader`."""
        self._seen.admitted.update(known, admitted)
        self._seen.tables = {identity: entry.table for identity, entry in known.items()}
        names, selected, below = self._names(session)
        # A captured table that was attached to a captured root is told under that root's name: its own is gone.
        kept = {oid for oid in names if str(oid) in known} - below
        wanted = [oid for oid in names if oid in selected | kept]
        shapes, changed = _shapes(session, self._settings, wanted, known)
        old = {oid for oid in shapes if str(oid) in known}
        adopted = {oid for oid in shapes if oid not in old and names[oid] in settled}
        if self._first or changed & old:
            self._compare(session, old | adopted)
        # Strangers again: what they missed nobody will tell.
        old, adopted = old - self._left, adopted - self._left
        strangers = {oid for oid in shapes if oid in selected} - old - adopted
        ready = {oid for oid in strangers if str(oid) in admitted}
        self._relisting |= {o for o in old & changed if _respelt(known[str(o)].shape, shapes[o])}
        self._relisting &= old | adopted
        joined, refused = self._joining.step(session, self._facts(session, ready))
        self._left -= joined
        relisted = joined & self._relisting
        self._relisting -= relisted
        restated = {
            oid
            for oid in (old & changed) - self._relisting - relisted
            if restates(_own(known[str(oid)].shape), _own(shapes[oid]))
        }
        tables = {}
        for oid in old | adopted | joined:
            # What is seen of a table that waits for its writers is to be seen again afterwards.
            shape = known[str(oid)].shape if oid in self._relisting & old else shapes[oid]
            tables[str(oid)] = CatalogEntry(names[oid], shape)
        # Now, not with the next look: their dump begins with this one.
        self._seen.found = {str(oid): names[oid] for oid in (adopted | joined) - old}
        return CatalogLook(
            tables=tables,
            schemas=self._schemas(session),
            joining={str(oid): names[oid] for oid in strangers},
            joined=frozenset(str(oid) for oid in joined - old - adopted),
            restated=frozenset(str(oid) for oid in restated | relisted),
            refused={names[oid]: reason for oid, reason in refused.items()},
        )

    def _names(self, session: Session) -> tuple[dict[int, TableId], set[int], set[int]]:
        """Return every table's name by oid, which are to be captured, and which partitions travel under such a root.

        Raises:
            IncompatibleSchemaChange: one that is to be captured has the name of another.
        """
        rows = session.rows(_NAMES)
        names = {int(row[0] or 0): TableId(row[1] or "", row[2] or "") for row in rows}
        chosen = self._settings.filter
        matching = {oid for oid, table in names.items() if chosen.selects(table)}
        below = {
            int(row[0] or 0)
            for row in rows
            if row[3] is not None and matching & {int(oid) for oid in row[3].split()}
        }
        for oid in matching:
            refuse_unnameable(names[oid])
        return names, matching - below, below

    def _compare(self, session: Session, captured: set[int]) -> None:
        """See which of the captured tables our publication lacks, or has otherwise than wanted."""
        self._first = False
        facts = {f.oid: f for f in read_tables(session, self._settings.filter)}
        held = {oid: facts[oid] for oid in captured & facts.keys()}
        found = out_of_step(session, self._settings, held)
        self._relisting |= found.otherwise
        self._left |= found.left

    def _facts(self, session: Session, new: set[int]) -> list[TableFacts]:
        """Return the tables that have to join: new ones, and those that are told otherwise than before."""
        joining = new | self._relisting
        if not joining:
            return []
        return [f for f in read_tables(session, self._settings.filter) if f.oid in joining]

    def _schemas(self, session: Session) -> dict[str, str]:
        chosen = self._settings.filter
        found = {
            oid or "": name or ""
            for oid, name in session.rows(_SCHEMAS)
            if chosen.selects_schema(name or "")
        }
        self._seen.schemas = dict(found)
        return found


def _shapes(
    session: Session,
    settings: PostgresSettings,
    oids: Sequence[int],
    known: Mapping[str, CatalogEntry],
) -> tuple[dict[int, str], set[int]]:
    """Return the shape of each table that is there, and those whose shape is not the known one."""
    asked = "{" + ",".join(map(str, oids)) + "}"
    spelling = read_spelling(session, settings, oids)
    shapes: dict[int, str] = {}
    changed = set()
    for identity, digest in session.rows(_SHAPES % "md5(shape)", asked):
        oid, entry = int(identity or 0), known.get(identity or "")
        if entry is not None and _is(entry.shape, digest or "", spelling.get(oid, "")):
            shapes[oid] = entry.shape
        else:
            changed.add(oid)
    if changed:
        asked = "{" + ",".join(map(str, changed)) + "}"
        for identity, shape in session.rows(_SHAPES % "shape", asked):
            oid = int(identity or 0)
            shapes[oid] = "\n".join(filter(None, (shape, spelling.get(oid))))
    return shapes, changed & shapes.keys()


def _is(shape: str, digest: str, spelling: str) -> bool:
    """Return whether a shape has a table's own part by its digest, and a spelling."""
    own, _, rest = shape.partition("\n")
    return hashlib.md5(own.encode()).hexdigest() == digest and rest == spelling


def _own(shape: str) -> str:
    """Return what a shape says of the table itself."""
    return shape.partition("\n")[0]


def _respelt(before: str, now: str) -> bool:
    own, _, spelling = now.partition("\n")
    return respells(before.partition("\n")[2], spelling, _parse(own)[1].keys())


def restates(before: str, now: str) -> bool:
    """Return whether rows may hold values now that no log event carried.

    A column that came with a default gave its value to every row, one that was generated keeps what it was computed
    to, and one that took over another's name makes old values of that name wrong. A change of a column's type may have
    computed each value anew (``USING``), if it wrote the heap anew; that a column's description changed together with
    the heap tells it from maintenance, also when the type is the old one again.
    """
    old_storage, old, generated = _parse(before)
    storage, columns, _ = _parse(now)
    if any(number in generated or columns[number].filled for number in columns.keys() - old.keys()):
        return True
    numbers = {column.name: number for number, column in old.items()}
    if any(numbers.get(column.name, number) != number for number, column in columns.items()):
        return True
    if not (storage and old_storage):
        # Kept by an older headrace, to which a partitioned table had no heap.
        both = columns.keys() & old.keys()
        return any(columns[number].type != old[number].type for number in both)
    return storage != old_storage and any(
        number not in old or old[number].writer != column.writer
        for number, column in columns.items()
    )


class _Column(NamedTuple):
    """One column of a shape."""

    writer: str
    type: tuple[str, str]
    filled: bool
    name: str


def _parse(shape: str) -> tuple[int, dict[str, _Column], set[str]]:
    """Return storage, columns by number, and the numbers of those that are generated."""
    storage, _, listed = shape.partition("|")
    columns, generated = {}, set()
    for column in filter(None, listed.split(",")):
        number, writer, type_, modifier, filled, name = column.split(":")
        if filled == "2":
            generated.add(number)
        else:
            columns[number] = _Column(writer, (type_, modifier), filled == "1", name)
    return int(storage), columns, generated
