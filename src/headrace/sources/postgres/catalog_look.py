"""Looks at the catalog every few seconds: tables that came, went, were renamed, or whose rows were written anew.

None of that needs more rights than a plain role has. What a look compares with is kept by the caller and outlives the
process, so what happened while nobody captured is seen by the first look. The order of catalog and log is not known
here: a look tells what is so by now, and whoever writes it down does so behind everything that the log held before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.model.schema import TableId
from headrace.sources.base import CatalogEntry, CatalogLook
from headrace.sources.naming import refuse_unnameable
from headrace.sources.postgres.catalog import TableFacts, read_tables
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.joining import Joining, Joins
from headrace.sources.postgres.partitions import PartitionWatch
from headrace.sources.postgres.publication import out_of_step, unlogged
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.shapes import (
    passed_by,
    read_shapes,
    rekeys,
    respells_key,
    respelt,
    restates,
)
from headrace.sources.postgres.tables_check import misread, reads_as

__all__ = ["CatalogWatch", "Seen"]

# Column -1 is one of the server's own, which nothing writes again: it tells who made the table.
_NAMES = """
SELECT c.oid, n.nspname, c.relname,
       CASE WHEN c.relispartition
            THEN (SELECT string_agg(a.relid::oid::text, ' ') FROM pg_partition_ancestors(c.oid) a
                   WHERE a.relid <> c.oid) END, c.relpersistence = 'u' OR c.relkind = 'f',
       c.relreplident, c.relkind = 'p',
       c.relispartition AND EXISTS (
           SELECT FROM pg_inherits i JOIN pg_attribute a ON a.attrelid = i.inhrelid AND a.attnum = -1
            WHERE i.inhrelid = c.oid AND i.xmin <> a.xmin)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
   AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
"""

_SCHEMAS = "SELECT oid, nspname FROM pg_namespace"


@dataclass(slots=True)
class Seen:
    """What the stream may know of the looks; set by their thread, read by the stream's.

    Attributes:
        admitted: identities of all tables of which nothing more is to be said before they are dumped.
        tables: names of the captured tables, by identity, as they were last told.
        found: names of those that the last look found to be captured from now on. What the log says of another name of
            theirs may be older than the look.
        holders: identities of all of these, by name.
        schemas: names of namespaces, by identity.
    """

    admitted: set[str] = field(default_factory=set)
    tables: dict[str, TableId] = field(default_factory=dict)
    found: dict[str, TableId] = field(default_factory=dict)
    holders: dict[TableId, str] = field(default_factory=dict)
    schemas: dict[str, str] = field(default_factory=dict)

    def begin(self, known: Mapping[str, CatalogEntry], admitted: Collection[str]) -> None:
        """Take what a look compares with."""
        self.admitted.update(known, admitted)
        self.tables = {identity: entry.table for identity, entry in known.items()}
        self.holders = {table: identity for identity, table in self.tables.items()}

    def end(self, found: dict[str, TableId]) -> None:
        """Take what a look found to be captured from now on."""
        self.found = found
        self.holders = self.holders | {table: identity for identity, table in found.items()}


class _Names(NamedTuple):
    """Tables by oid.

    Attributes:
        tables: the name of every one.
        selected: those to be captured.
        below: partitions that travel under such a root.
        silent: of captured ones, and of roots of partitions, which table it is whose changes no log of the server has.
        misread: of roots of partitions, their replica identity, and the leaves whose old rows it does not fit.
        parts: of roots of partitions, all that lie below them.
        attached: partitions that were tables before they were that.
    """

    tables: dict[int, TableId]
    selected: set[int]
    below: set[int]
    silent: dict[int, TableId]
    misread: dict[int, tuple[str, list[TableId]]]
    parts: dict[int, dict[int, TableId]]
    attached: set[int]


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
        self._by_log = joining is None
        self._partitions = PartitionWatch()
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
        self._seen.begin(known, admitted)
        names, selected, below, silent, others, parts, attached = self._names(session)
        # A captured table that was attached to a captured root is told under that root's name: its own is gone.
        kept = {oid for oid in names if str(oid) in known} - below
        wanted = [oid for oid in names if oid in selected | kept]
        shapes, changed = read_shapes(session, self._settings, wanted, known)
        old = {oid for oid in shapes if str(oid) in known}
        if self._by_log:
            _refuse_silent(names, old, silent)
            _refuse_misread(names, old, others)
        self._partitions.look({oid: names[oid] for oid in old}, parts, attached)
        adopted = {oid for oid in shapes if oid not in old and names[oid] in settled}
        if self._first or changed & old:
            self._compare(session, old | adopted)
        # One that is on its way is taken out and put back by us.
        for oid in (old & changed) - self._relisting:
            before, now = known[str(oid)].shape, shapes[oid]
            if passed_by(before, now) or rekeys(before, now):
                self._left.add(oid)
        # Strangers again: what they missed nobody will tell, or their rows stand under other keys.
        old, adopted = old - self._left, adopted - self._left
        strangers = {oid for oid in shapes if oid in selected} - old - adopted
        ready = {oid for oid in strangers if str(oid) in admitted}
        self._relisting |= {o for o in old & changed if respelt(known[str(o)].shape, shapes[o])}
        self._relisting &= old | adopted
        joined, refused = self._joining.step(session, self._facts(session, ready))
        if joined:
            # As the publication has them from now on.
            shapes |= read_shapes(session, self._settings, [*joined & shapes.keys()], {})[0]
        self._left -= joined
        relisted = joined & self._relisting
        self._relisting -= relisted
        # Only now, when nobody writes keys of before any more, is it worth while to empty the table.
        anew = {o for o in relisted & old if respells_key(known[str(o)].shape, shapes[o])}
        self._left |= anew
        relisted -= anew
        restated = {
            oid
            for oid in (old & changed) - self._relisting - relisted - anew
            if restates(known[str(oid)].shape, shapes[oid])
        }
        tables = {}
        for oid in old | adopted | joined:
            # What is seen of a table that waits for its writers is to be seen again afterwards.
            waits = oid in old and oid in self._relisting | anew
            shape = known[str(oid)].shape if waits else shapes[oid]
            tables[str(oid)] = CatalogEntry(names[oid], shape)
        # Now, not with the next look: their dump begins with this one.
        self._seen.end({str(oid): names[oid] for oid in (adopted | joined) - old})
        return CatalogLook(
            tables=tables,
            schemas=self._schemas(session),
            joining={str(oid): names[oid] for oid in strangers},
            joined=frozenset(str(oid) for oid in joined - old - adopted),
            restated=frozenset(str(oid) for oid in restated | relisted),
            refused={names[oid]: reason for oid, reason in refused.items()},
        )

    def _names(self, session: Session) -> _Names:
        """Return the tables that there are.

        Raises:
            IncompatibleSchemaChange: one that is to be captured has the name of another.
        """
        rows = session.rows(_NAMES)
        names = {int(row[0] or 0): TableId(row[1] or "", row[2] or "") for row in rows}
        above = {int(row[0] or 0): {int(oid) for oid in (row[3] or "").split()} for row in rows}
        chosen = self._settings.filter
        matching = {oid for oid, table in names.items() if chosen.selects(table)}
        for oid in matching:
            refuse_unnameable(names[oid])
        below = {oid for oid, roots in above.items() if matching & roots}
        unlogged = [int(row[0] or 0) for row in rows if row[4] == "t"]
        silent = {root: names[oid] for oid in unlogged for root in (above[oid] | {oid})}
        letters = {int(row[0] or 0): row[5] or "" for row in rows}
        parts: dict[int, dict[int, TableId]] = {int(r[0] or 0): {} for r in rows if r[6] == "t"}
        others: dict[int, tuple[str, list[TableId]]] = {}
        for oid, table in names.items():
            # A root may have been made while we asked.
            for root in above[oid] & parts.keys():
                parts[root][oid] = table
                if oid not in parts and not reads_as(letters[root], letters[oid]):
                    others.setdefault(root, (letters[root], []))[1].append(table)
        attached = {int(row[0] or 0) for row in rows if row[7] == "t"}
        return _Names(names, matching - below, below, silent, others, parts, attached)

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


def _refuse_silent(
    names: Mapping[int, TableId], captured: Collection[int], silent: Mapping[int, TableId]
) -> None:
    """Stop where a captured table, or a partition of it, has got out of the server's log.

    Raises:
        SourceError: there is one.
    """
    for oid in sorted(silent.keys() & captured):
        raise unlogged(names[oid], silent[oid])


def _refuse_misread(
    names: Mapping[int, TableId],
    captured: Collection[int],
    others: Mapping[int, tuple[str, list[TableId]]],
) -> None:
    """Stop where partitions of a captured table are told by another replica identity than its own.

    Raises:
        SourceError: there are some.
    """
    for oid in sorted(others.keys() & captured):
        raise misread(names[oid], *others[oid])
