"""Versions of keys as a table that keeps them sees them: whole rows, without those that change nothing.

In: changes, and the table before. Out: the versions that count, and what ends the rows that the table holds. Shared by
the modes that keep what is gone; a batch of any size gives the same versions, wherever it is cut.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.fold.followed import ABSOLUTE
from headrace.fold.form import origin_name
from headrace.fold.versions import Versions, versions
from headrace.lake.held import Flags, Held, held_rows
from headrace.lake.keyed import missing_base
from headrace.lake.lent import filled
from headrace.lake.probe import KeySet
from headrace.lake.snapshot import Snapshot
from headrace.model.change import READ, table_arrow_schema
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableSchema

__all__ = ["Kept", "kept_versions"]

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kept:
    """Versions that change something, those of one key beside each other and in order.

    Attributes:
        rows: the table's own columns; of a row that died, those that it had.
        dead: whether the version is that there is no row.
        first: whether it is the first of its key.
        last: whether it is the last of its key.
        when: place of the change that made it.
        held: live rows that the table has at the keys, those of other keys too when it was truncated, and rows that
            are not live where a version takes their place.
        live: which of them are live.
        ended: place of the change that ends each live one, negative for none.
        replaced: which rows of ``held`` have a key with versions.
    """

    rows: pa.Table
    dead: Flags
    first: Flags
    last: Flags
    when: Places
    held: Held
    live: Flags
    ended: Places
    replaced: Flags


def kept_versions(
    snapshot: Snapshot,
    schema: TableSchema,
    changes: pa.Table,
    *,
    live: str,
    is_live: bool,
    replaces: bool,
    complete: bool,
) -> Kept:
    """Return what changes do to a table that keeps versions.

    Args:
        snapshot: the table before.
        schema: version of the changes.
        changes: as of `headrace.lake.modes.logged_schema`, in order.
        live: column of truth values that tells live rows from others.
        is_live: what it says of a live one.
        replaces: whether a version takes the place also of a row that is not live.
        complete: whether every row of the source is in the table.

    Raises:
        MissingBase: a complete table lacks the row that a change patches.
        CorruptTable: a file of the table does not read.
    """
    found = versions(schema, changes)
    form = found.rows.assemble(schema, changes)
    origins = [form[origin_name(name)] for name in schema.key]
    asks = found.rows.origins != ABSOLUTE
    # Null stands for the others, and would have every file looked into.
    lenders = pa.table(origins, names=list(schema.key)).filter(pa.array(asks))
    keys = pa.concat_tables([form.select(schema.key), lenders])
    near = KeySet(form.select(schema.key))

    def wanted(batch: pa.RecordBatch) -> Flags:
        flags: Flags = _flags(batch.column(live)) == is_live
        if replaces:
            flags[near.found_in(batch)] = True
        return flags

    held = held_rows(snapshot, None if found.wiped >= 0 else keys.combine_chunks(), wanted)
    lives = held.flags(live) == is_live
    own = table_arrow_schema(schema)
    living = held.only(lives).rows.select(own.names).cast(own)
    rows, lost = filled(schema, form, living)
    if not complete:
        # Pieced together from patches alone: cut elsewhere, the first of them would have found no row either.
        lost |= asks & ~_among(origins, living, schema)
    choice = _Choice(schema, found, changes, rows.combine_chunks(), living, lost)
    if complete and (unfounded := lost & ~found.dead & choice.last).any():
        raise missing_base(schema, form, unfounded)
    return choice.kept(held, lives)


def _among(columns: list[pa.ChunkedArray], rows: pa.Table, schema: TableSchema) -> Flags:
    """Return which keys are those of some rows."""
    return _flags(pc.is_in(encode_rows(columns), _keys(rows, schema)))


def _keys(rows: pa.Table, schema: TableSchema) -> pa.Array:
    return encode_rows([rows[name] for name in schema.key])


def _flags(array: pa.Array) -> Flags:
    return np.asarray(array.to_numpy(zero_copy_only=False), bool)


def _places(array: pa.Array) -> Places:
    return np.asarray(pc.fill_null(array, -1), np.int64)


class _Choice:
    """Which versions count.

    Args:
        schema: of the rows.
        found: all versions.
        changes: that they came from.
        rows: their own columns, cells filled in.
        lenders: live rows of the table, with the own columns.
        lost: versions with a cell that came from nowhere.
    """

    def __init__(
        self,
        schema: TableSchema,
        found: Versions,
        changes: pa.Table,
        rows: pa.Table,
        lenders: pa.Table,
        lost: Flags,
    ) -> None:
        self._schema = schema
        self._found = found
        self._changes = changes
        self._rows = rows
        self._lenders = lenders
        self._names = _keys(rows, schema)
        codes = found.codes
        changed = codes[1:] != codes[:-1]
        self.first = np.concatenate([np.ones(min(len(codes), 1), bool), changed])
        self.last = np.concatenate([changed, np.ones(min(len(codes), 1), bool)])
        # The row that was there goes, and its chunk has yet to bring the new one.
        self._gone = found.dead | lost

    def kept(self, held: Held, live: Flags) -> Kept:
        """Return those that count, and what they end."""
        before = encode_rows([self._changes[n].take(self._found.before) for n in self._schema.key])
        counts = self._counting(before)
        first, last = self._ends_among(counts)
        begun = np.flatnonzero(counts)[first]
        names = self._names.take(pa.array(begun))
        held_names = _keys(held.rows, self._schema)
        ender = _places(pc.index_in(held_names, names))
        ended = np.where(ender >= 0, self._found.when[begun][ender] if len(begun) else -1, -1)
        if self._found.wiped >= 0:
            # Nobody touched them before the truncate, so that is what ends them.
            ended = np.where(_flags(pc.is_in(held_names, before)), ended, self._found.wiped)
        return Kept(
            rows=self._rows.filter(pa.array(counts)),
            dead=self._gone[counts],
            first=first,
            last=last,
            when=self._found.when[counts],
            held=held,
            live=live,
            ended=np.where(live, ended, -1),
            replaced=ender >= 0,
        )

    def _ends_among(self, counts: Flags) -> tuple[Flags, Flags]:
        """Return which of the counting versions are the first and the last of their keys."""
        codes = self._found.codes[counts]
        changed = codes[1:] != codes[:-1]
        edge = np.ones(min(len(codes), 1), bool)
        return np.concatenate([edge, changed]), np.concatenate([changed, edge])

    def _counting(self, before: pa.Array) -> Flags:
        """Return the versions that change something."""
        place = _places(pc.index_in(self._names, _keys(self._lenders, self._schema)))
        if self._found.wiped >= 0:
            # The row was gone before; but what comes in the truncate's own transaction is one version with it.
            scn = self._changes["_scn"].to_numpy()
            later = scn[self._found.when] > scn[self._found.wiped]
            place[later & ~_flags(pc.is_in(self._names, before))] = -1
        there = np.concatenate([np.zeros(min(len(place), 1), bool), ~self._gone[:-1]])
        there = np.where(self.first, place >= 0, there)
        idle: Flags = self._gone & ~there
        read = _flags(pc.equal(self._changes["_op"].take(self._found.when), READ))
        told_again = read & ~self._gone & there
        if told_again.any():
            idle |= told_again & self._same(place)
        return ~idle

    def _same(self, place: Places) -> Flags:
        """Return which versions equal the one ahead of them, be it the row that the table holds."""
        cells = encode_rows([self._rows[name] for name in self._schema.names])
        held = encode_rows([self._lenders[name] for name in self._schema.names])
        ahead = np.arange(len(place)) - 1
        both = pa.concat_arrays([cells, held])
        ahead = np.where(self.first, place + len(place), ahead)
        none = ahead < 0
        compared = both.take(pa.array(np.where(none, 0, ahead)))
        same: Flags = _flags(pc.equal(cells, compared)) & ~none
        return same
