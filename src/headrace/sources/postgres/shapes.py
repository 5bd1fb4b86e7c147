"""What a look keeps of a captured table, to see the next time whether changes passed by or rows are to be read again.

A text of up to three lines: what the catalog says of the table itself; how its rows are told
(`headrace.sources.postgres.spelling`); and the names that its columns had at earlier looks and have no more, as hashes,
each with the number of the column that had it last.

The first is six parts. *Storage* changes when the heap is written anew. *Columns* are each a number, the transaction
that last wrote its description, type, modifier, whether rows from before it came may hold a value (2: it is generated,
and in no log), and a hash of its name, which may hold any character. *Key* is the replica identity, the transaction
that last altered the table's own entry in the catalog, the primary key's constraint, which the log does not name under
FULL, and the numbers of the key's columns. *Published* is who last altered the publication, whose it is, and by which
of its entries it holds the table: one that was taken out and put back has another entry. To the entry of a schema
belongs who last put the table there. *Root* is the table right above a partition. *Toast* is the youngest table of long
values that is not as old as its heap, of those that may get out of the log, and who made it: only a statement that
writes the heap anew row by row makes another one, so neither `VACUUM FULL` nor `TRUNCATE`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.sources.base import CatalogEntry
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.published import CHOOSY_VERSION
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.spelling import read_spelling, respells, respells_types

__all__ = ["passed_by", "read_shapes", "rekeys", "respells_key", "respelt", "restates"]

# The heaps of a partitioned table are its partitions'; those that were ever written anew stand for all of them, so that
# partitions that come change nothing.
_SHAPES = """
SELECT c.oid, %s
  FROM (SELECT c.oid, concat(CASE c.relkind WHEN 'p' THEN (
                   SELECT ('x' || left(md5(coalesce(string_agg(concat(l.oid, '=', l.relfilenode), ',' ORDER BY l.oid),
                                                    '')), 15))::bit(60)::int8
                     FROM pg_partition_tree(c.oid::regclass) t JOIN pg_class l ON l.oid = t.relid
                    WHERE t.isleaf AND l.relfilenode <> l.oid)
               ELSE c.relfilenode::int8 END, '|', (
                   SELECT string_agg(concat_ws(':', a.attnum, a.xmin, a.atttypid, a.atttypmod,
                              CASE WHEN a.attgenerated <> '' THEN 2
                              ELSE (a.atthasmissing OR a.atthasdef OR a.attidentity <> '')::int END,
                              left(md5(a.attname), 12)), ',' ORDER BY a.attnum)
                     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
               '|', concat_ws(' ', c.relreplident, c.xmin, coalesce((
                        SELECT oid::text FROM pg_constraint WHERE conrelid = c.oid AND contype = 'p'), '-'), (
                        SELECT array_to_string((indkey::int2[])[0:indnkeyatts - 1], ',') FROM pg_index
                         WHERE indrelid = c.oid
                           AND CASE c.relreplident WHEN 'i' THEN indisreplident ELSE indisprimary END)),
               '|', (SELECT concat_ws(' ', p.xmin, p.pubowner, CASE WHEN p.puballtables THEN p.oid END, (
                                SELECT string_agg(r.oid::text, ' ' ORDER BY r.oid) FROM pg_publication_rel r
                                 WHERE r.prpubid = p.oid AND r.prrelid IN (SELECT unnest(l.lineage))){schemas})
                       FROM pg_publication p WHERE p.pubname = $2),
               '|', CASE WHEN c.relispartition THEN (
                        SELECT inhparent FROM pg_inherits WHERE inhrelid = c.oid) ELSE 0 END,
               '|', coalesce(({toast}), '-')) AS shape
          FROM pg_class c, LATERAL (
               SELECT array_append(ARRAY(SELECT relid::oid FROM pg_partition_ancestors(c.oid)), c.oid) AS lineage) l
         WHERE c.oid = ANY ($1::oid[])) c
"""

# A table is put into a schema by the dependency on it; no other change of the table writes that anew.
_SCHEMAS = """, (
                                SELECT string_agg(concat(s.oid, '.', d.xmin), ' ' ORDER BY s.oid, d.objid)
                                  FROM pg_publication_namespace s JOIN pg_depend d
                                    ON d.refclassid = 'pg_namespace'::regclass AND d.refobjid = s.pnnspid
                                   AND d.classid = 'pg_class'::regclass AND d.objsubid = 0
                                 WHERE s.pnpubid = p.oid AND d.objid = ANY (l.lineage))"""

# A table that a publication lists by its name cannot become unlogged. What a partition was before it came is no matter.
_TOAST = """SELECT concat(h.reltoastrelid, '.', w.xmin)
                       FROM (SELECT c.oid WHERE c.relkind <> 'p' UNION ALL
                             SELECT relid FROM pg_partition_tree(c.oid::regclass) WHERE isleaf AND c.relkind = 'p') l
                       JOIN pg_class h ON h.oid = l.oid
                       JOIN pg_attribute w ON w.attrelid = h.reltoastrelid AND w.attnum = 1
                       JOIN pg_attribute s ON s.attrelid = h.oid AND s.attnum = -1
                       LEFT JOIN pg_inherits i ON i.inhrelid = h.oid AND c.relkind = 'p'
                      WHERE age(w.xmin) < age(coalesce(i.xmin, s.xmin))
                        AND NOT EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                                         WHERE r.prrelid = h.oid AND p.pubname = $2)
                      ORDER BY age(w.xmin), h.reltoastrelid DESC LIMIT 1"""

_GENERATED = "2"
_FULL = "f"


def read_shapes(
    session: Session,
    settings: PostgresSettings,
    oids: Sequence[int],
    known: Mapping[str, CatalogEntry],
) -> tuple[dict[int, str], set[int]]:
    """Return the shape of each table that is there, and those whose shape is not the known one."""
    schemas = _SCHEMAS if session.version >= CHOOSY_VERSION else ""
    sql = _SHAPES.format(schemas=schemas, toast=_TOAST)
    asked, publication = _array(oids), settings.publication_name
    spelling = read_spelling(session, settings, oids)
    shapes: dict[int, str] = {}
    changed = set()
    for identity, digest in session.rows(sql % "md5(shape)", asked, publication):
        oid, entry = int(identity or 0), known.get(identity or "")
        if entry is not None and _is(entry.shape, digest or "", spelling.get(oid, "")):
            shapes[oid] = entry.shape
        else:
            changed.add(oid)
    if changed:
        for identity, shape in session.rows(sql % "shape", _array(changed), publication):
            oid = int(identity or 0)
            entry = known.get(identity or "")
            once = _once(entry.shape, shape or "") if entry is not None else ""
            shapes[oid] = "\n".join((shape or "", spelling.get(oid, ""), once)).rstrip("\n")
    return shapes, changed & shapes.keys()


def _array(oids: Iterable[int]) -> str:
    return "{" + ",".join(map(str, oids)) + "}"


def _is(shape: str, digest: str, spelling: str) -> bool:
    """Return whether a shape has a table's own part by its digest, and a spelling."""
    own, told, _ = _lines(shape)
    return hashlib.md5(own.encode()).hexdigest() == digest and told == spelling


def _lines(shape: str) -> tuple[str, str, str]:
    """Return the table's own part of a shape, how its rows are told, and the names that columns once had."""
    own, told, once, *_ = (*shape.split("\n"), "", "")
    return own, told, once


def _names(shape: str) -> dict[str, str]:
    """Return the number of the column that has a name, or had it last."""
    names = dict(pair.split(":") for pair in _lines(shape)[2].split(",") if pair)
    return names | {column.name: number for number, column in _parse(shape).columns.items()}


def _once(before: str, own: str) -> str:
    """Return the names that columns had and have no more, by the shape of before and the table's own part of now."""
    names = _names(before)
    now = {column.name: number for number, column in _parse(own).columns.items()}
    return ",".join(
        f"{name}:{number}" for name, number in sorted(names.items()) if now.get(name) != number
    )


def respelt(before: str, now: str) -> bool:
    """Return whether rows are told otherwise now."""
    return respells(_lines(before)[1], _lines(now)[1], _parse(now).columns.keys())


def passed_by(before: str, now: str) -> bool:
    """Return whether changes of a table may have passed by between two looks that both found it published.

    They did where the publication holds the table by none of the entries of before. Somebody who altered the
    publication itself may have left out kinds of change for a while, whatever else was altered with it. And those of a
    table that was attached to another have the other's name until it is detached; those of an unlogged one no log has.
    """
    old, new = _parse(before), _parse(now)
    return _left_out(old.published, new.published) or _attached(old, new) or _was_unlogged(old, new)


def _left_out(old: _Published | None, new: _Published | None) -> bool:
    """Return whether the publication may have left out changes of a table that it holds now."""
    if not (old and new and new.entries):
        return False
    # An older headrace kept of a schema its entry alone.
    entries = new.entries | {entry.partition(".")[0] for entry in new.entries}
    return not old.entries & entries or old.writer != new.writer


def _attached(old: _Shape, new: _Shape) -> bool:
    """Return whether a table may have been a partition of another one meanwhile.

    Who attaches or detaches it describes each of its columns anew, and alters its own entry in the catalog.
    """
    if not (old.root and old.key and new.key) or old.root != new.root:
        return False
    kept = old.columns.keys() & new.columns.keys()
    return old.key.writer != new.key.writer and all(
        old.columns[number].writer != new.columns[number].writer for number in kept
    )


def _was_unlogged(old: _Shape, new: _Shape) -> bool:
    """Return whether a heap may have been out of the server's log meanwhile.

    Becoming unlogged and logged again writes it anew, with another table for long values. So does a change of a
    column's type, whose description has the same writer.
    """
    if old.toast is None or new.toast is None or new.storage == old.storage:
        return False
    if new.toast.writer in {column.writer for column in new.columns.values()}:
        return False
    return new.toast.is_younger(old.toast)


def rekeys(before: str, now: str) -> bool:
    """Return whether rows may have other keys now without a word in the log: those of before stay until it is emptied.

    A column of the key that came with a default or was computed; or one whose values a change of its type may have
    computed anew (``USING``). Nothing tells a plain change to a wider type from one that computes the values. A column
    that took over another's name has the values it had.
    """
    old, new = _parse(before), _parse(now)
    if old.key is None or new.key is None:
        return False
    key = {number: new.columns[number] for number in new.key.columns & new.columns.keys()}
    came = key.keys() - old.columns.keys()
    if any(number in old.generated or key[number].filled for number in came):
        return True
    return new.storage != old.storage and any(
        old.columns[number].writer != key[number].writer for number in key.keys() - came
    )


def respells_key(before: str, now: str) -> bool:
    """Return whether rows are told under other keys than before: those of before stay until it is emptied."""
    new = _parse(now)
    if new.key is None:
        return False
    types = [new.columns[number].type[0] for number in new.key.columns & new.columns.keys()]
    return respells_types(_lines(before)[1], _lines(now)[1], types)


def restates(before: str, now: str) -> bool:
    """Return whether rows may hold values now that no log event carried, or that were told by another key.

    A column that came with a default gave its value to every row, one that was generated keeps what it was computed
    to, and one that took over another's name makes old values of that name wrong. However long ago the other lost it:
    the log may lie behind the looks, and names are all that it tells. A change of a column's type may have computed
    each value anew (``USING``), if it wrote the heap anew; that a column's description changed together with the heap
    tells it from maintenance, also when the type is the old one again. Under FULL the log does not name the key, and
    several rows may have had one while there was none.
    """
    old, new = _parse(before), _parse(now)
    if old.key and new.key and _rekeyed(old.key, new.key):
        return True
    if any(
        n in old.generated or new.columns[n].filled for n in new.columns.keys() - old.columns.keys()
    ):
        return True
    numbers = _names(before)
    if any(numbers.get(column.name, number) != number for number, column in new.columns.items()):
        return True
    if not (new.storage and old.storage):
        # Kept by an older headrace, to which a partitioned table had no heap.
        both = new.columns.keys() & old.columns.keys()
        return any(new.columns[number].type != old.columns[number].type for number in both)
    return new.storage != old.storage and any(
        number not in old.columns or old.columns[number].writer != column.writer
        for number, column in new.columns.items()
    )


def _rekeyed(old: _Key, new: _Key) -> bool:
    """Return whether the log may have told changes of a table without its key, and without naming that."""
    if old.constraint == new.constraint:
        return False
    # Altered between two looks it may have been FULL for a while.
    return _FULL in (old.identity, new.identity) or old.writer != new.writer


class _Column(NamedTuple):
    """One column of a shape."""

    writer: str
    type: tuple[str, str]
    filled: bool
    name: str


class _Key(NamedTuple):
    """The replica identity, who last altered it or something else of the table, the primary key, and its columns."""

    identity: str
    writer: str
    constraint: str
    columns: frozenset[str]


class _Published(NamedTuple):
    """How the publication holds a table."""

    writer: str
    entries: frozenset[str]


class _Toast(NamedTuple):
    """A table of long values, and the transaction that made it; both are empty where no such table counts."""

    identity: str
    writer: str

    def is_younger(self, other: _Toast) -> bool:
        """Return whether this one was made after another; the other may be gone."""
        if not (self.writer and other.writer):
            return bool(self.writer)
        # As the server compares them: transaction numbers come round.
        later = (int(self.writer) - int(other.writer)) % (1 << 32)
        return self.identity != other.identity and later < 1 << 31


class _Shape(NamedTuple):
    """A table's own part of a shape; what an older headrace did not keep is empty.

    ``columns`` are by number; ``generated`` are the numbers of those that are computed; ``root`` is "0" of a table that
    is no partition.
    """

    storage: int
    columns: dict[str, _Column]
    generated: set[str]
    key: _Key | None
    published: _Published | None
    root: str
    toast: _Toast | None


def _parse(shape: str) -> _Shape:
    parts = _lines(shape)[0].split("|")
    storage, listed, identity, told, root, toast, *_ = (*parts, "", "", "", "")
    columns, generated = {}, set()
    for column in filter(None, listed.split(",")):
        number, writer, type_, modifier, filled, name = column.split(":")
        if filled == _GENERATED:
            generated.add(number)
        else:
            columns[number] = _Column(writer, (type_, modifier), filled == "1", name)
    key = published = None
    if identity:
        letter, altered, constraint, *numbers = identity.split()
        key = _Key(letter, altered, constraint, frozenset("".join(numbers).split(",")))
    if told:
        by, _owner, *entries = told.split()
        published = _Published(by, frozenset(entries))
    made = None
    if toast:
        name, _, writer = toast.partition(".")
        made = _Toast(name, writer)
    return _Shape(int(storage), columns, generated, key, published, root, made)
