"""The pure heart of DBLog: which rows of a chunk may still leave, and how they look.

In: streamed blocks, chunks with what their select saw. Out: the surviving rows of a chunk. No I/O, no clock.

The paper lets a log event between the low and the high watermark remove its key from the chunk. Two things are
stricter here:

- *Visibility.* A commit can be in the log before a select sees it, so the edges of the window do not say what the chunk
  saw. We remember every streamed transaction until a snapshot of ours has seen it, and a chunk row yields to each
  remembered transaction that its own snapshot did not surely see, streamed before the low mark or after it.
- *Partial images.* An event that changes a row in place but leaves columns out does not carry the row, so the chunk row
  stays and is patched; it leaves whole.

What an event does to a row is asked of `headrace.fold`, the same function that apply uses, so the two cannot differ.

Source: DBLog, Algorithm 1 steps 6 and 7; docs/paper_map.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.fold import ALL_DEAD, ROW, fold, origin_name, promote
from headrace.model.block import Block, Body, SystemKind
from headrace.model.change import UPDATE_NEW, missing_matrix
from headrace.model.rowkey import encode_rows
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.model.snapshot import UNKNOWN, YES, Visibility

__all__ = ["DROPPED", "KEPT", "PATCHED", "Reconciled", "Reconciler", "moved_in"]

_IDLE_SHARE = 8

_LEFT_BYTES = 1 << 22
_LEFT_AT_ONCE = 4
"""What was forgotten is let go of by and by, so many blocks with each that comes: to give the memory of a second's
small blocks back takes five thousandths of a second, for which the log would stand still."""

KEPT, DROPPED, PATCHED = 0, 1, 2
"""What became of a row of a chunk: it leaves as it was read, yields to the log, or took cells from it."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What became of a chunk.

    Attributes:
        rows: surviving rows, whole, in the chunk's order; the table's own columns.
        fate: `KEPT`, `DROPPED` or `PATCHED` for each row that the chunk had.
        unsettled: rows that moved in with missing columns and that the chunk did not surely see, of which only
            the key columns mean anything; nobody has emitted them whole.
        met: the changes that the chunk did not surely see, in order; ``truncates`` as ``(scn, ord)`` likewise.
    """

    rows: pa.RecordBatch
    fate: npt.NDArray[np.int8]
    unsettled: pa.RecordBatch
    met: tuple[pa.RecordBatch, ...] = ()
    truncates: tuple[tuple[int, int], ...] = ()

    @property
    def dropped(self) -> int:
        """Chunk rows that yielded to the log."""
        return int((self.fate == DROPPED).sum())

    @property
    def patched(self) -> int:
        """Surviving rows that took cells from the log."""
        return int((self.fate == PATCHED).sum())


@dataclass(slots=True)
class _Remembered:
    """The transactions of one streamed block that no snapshot has seen yet."""

    scn: npt.NDArray[np.int64]
    xid: npt.NDArray[np.int64]
    bodies: tuple[Body, ...]
    truncates: tuple[tuple[TableId, int, int], ...]
    nbytes: int = 0
    lost: bool = False


class Reconciler:
    """Remembers streamed transactions, and reconciles chunks with them.

    Args:
        schema_of: returns the table version of a schema id.
        memory_bytes: rows of remembered transactions that may be held. Past it the rows are let go, the
            transactions are not, and no chunk may be reconciled until a snapshot has seen them all.
    """

    def __init__(
        self, schema_of: Callable[[int], TableSchema], memory_bytes: int = 64 << 20
    ) -> None:
        self._schema_of = schema_of
        self._memory_bytes = memory_bytes
        self._recent: list[_Remembered] = []
        self._left: deque[_Remembered] = deque()
        self._left_bytes = 0
        self._bytes = 0
        self._remembered_scn = 0

    @property
    def remembered(self) -> int:
        """Transactions that no snapshot has seen."""
        return sum(len(item.scn) for item in self._recent)

    @property
    def nbytes(self) -> int:
        """Bytes of rows held."""
        return self._bytes

    @property
    def can_reconcile(self) -> bool:
        """Whether every remembered transaction still has its rows."""
        return not any(item.lost for item in self._recent)

    @property
    def unseen_floor(self) -> int | None:
        """Lowest SCN that no snapshot has seen, None when all are seen."""
        return min((int(item.scn[0]) for item in self._recent), default=None)

    def remember(self, block: Block, *, idle: bool = False) -> None:
        """Keep the transactions of a streamed block until a snapshot has seen them.

        What comes again after a reconnect is kept once.

        Args:
            block: as it was streamed.
            idle: nothing is dumped, and an eighth of the memory has to do. What is held stays, for it may wait long to
                be seen; rows beyond are let go, and no chunk is reconciled until a snapshot has seen their
                transactions.
        """
        self._let_go(_LEFT_AT_ONCE)
        block = block.after(self._remembered_scn)
        if not len(block.index):
            return
        whole = block.index["scn"][block.index["last_piece"] == 1]
        self._remembered_scn = int(whole.max(initial=self._remembered_scn))
        truncates = tuple(
            (e.table, e.scn, e.ord) for e in block.system if e.kind is SystemKind.TRUNCATE
        )
        scn, xid = block.index["scn"].copy(), block.index["xid"].copy()
        # Also while older rows are lost: on a busy source something is always unseen, and only what is lost
        # holds chunks back.
        nbytes = block.nbytes
        if idle and self._bytes + nbytes > self._memory_bytes // _IDLE_SHARE:
            self._recent.append(_Remembered(scn, xid, (), truncates, lost=True))
            return
        self._recent.append(_Remembered(scn, xid, block.bodies, truncates, nbytes))
        self._bytes += nbytes
        if self._bytes > self._memory_bytes:
            self._let_rows_go()

    def rewind(self, scn: int) -> None:
        """Forget every transaction above an SCN: they come again."""
        self._remembered_scn = min(self._remembered_scn, scn)
        self._recent = [
            _narrow(item, item.scn <= scn) for item in self._recent if item.scn[0] <= scn
        ]
        self._bytes = sum(item.nbytes for item in self._recent)

    def remember_unseen(self, scn: npt.NDArray[np.int64], xid: npt.NDArray[np.int64]) -> None:
        """Keep transactions whose rows are not at hand: those streamed before a restart.

        No chunk is reconciled until a snapshot has seen them.
        """
        if len(scn):
            self._remembered_scn = max(self._remembered_scn, int(scn[-1]))
            self._recent.insert(0, _Remembered(scn, xid, (), (), lost=True))

    def hold_chunks(self) -> None:
        """Let no chunk be reconciled until a snapshot has seen everything streamed so far."""
        self._let_rows_go()

    def _let_rows_go(self) -> None:
        self._bytes = 0
        for item in self._recent:
            item.bodies, item.nbytes, item.lost = (), 0, True

    def forget(self, seen_by: Visibility) -> None:
        """Forget the transactions that a snapshot has seen; visibility never shrinks.

        What is behind one of which nobody can say stays: only that proves that the doubtful one was seen, too, and
        without it the next chunk would be patched with what the row was before. Source: docs/paper_map.md W4.
        """
        if not self._recent:
            return
        scn, xid = self.transactions()
        vis = seen_by.sees(xid, scn)
        stays = (vis != YES) | np.logical_or.accumulate(vis == UNKNOWN)
        kept = []
        for item, any_, all_ in zip(self._recent, *self._by_item(stays), strict=True):
            if all_:
                kept.append(item)
            else:
                self._left.append(item)
                self._left_bytes += item.nbytes
                if any_:
                    kept.append(_narrow(item, np.isin(item.scn, scn[stays])))
        self._recent = kept
        self._bytes = sum(item.nbytes for item in kept)
        while self._left_bytes > _LEFT_BYTES:
            self._let_go(_LEFT_AT_ONCE)

    def _let_go(self, most: int) -> None:
        """Give the memory of some blocks back that were forgotten."""
        for _ in range(min(most, len(self._left))):
            self._left_bytes -= self._left.popleft().nbytes

    def changes_of(self, table: TableId) -> Iterator[tuple[TableSchema, pa.RecordBatch]]:
        """Yield the remembered changes of a table, each batch with its version; none of those that were let go."""
        for item in self._recent:
            for body in item.bodies:
                if body.table == table:
                    yield self._schema_of(body.schema_id), body.batch

    def reconcile(self, schema: TableSchema, rows: pa.RecordBatch, saw: Visibility) -> Reconciled:
        """Return the rows of a chunk that may leave at its high mark.

        Call when the high mark has been received: by then every commit that the chunk could have missed
        or seen has been streamed, or comes behind the rows.

        Args:
            schema: the chunk's table version.
            rows: the table's own columns.
            saw: what the chunk's select saw, taken in its snapshot.
        """
        changes, truncates = self._unseen(schema, saw)
        result = _unmet(rows)
        if changes or truncates:
            keys = encode_rows([rows.column(name) for name in schema.key])
            if truncates or _may_meet(schema, keys, changes):
                result = _meet(schema, rows, keys, changes, fold(schema, changes, truncates))
        return replace(result, met=tuple(changes), truncates=tuple(truncates))

    def transactions(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return SCN and transaction id of everything remembered, in order."""
        scn = [item.scn for item in self._recent]
        xid = [item.xid for item in self._recent]
        none = np.empty(0, np.int64)
        return np.concatenate([none, *scn]), np.concatenate([none, *xid])

    def untouched(
        self, schema: TableSchema, keys: pa.RecordBatch, saw: Visibility
    ) -> pa.RecordBatch:
        """Return those keys that no transaction touched which the chunk did not surely see.

        A key without a row in the chunk surely has none at the high mark if it is among them; of any other the log
        has already said what became of it.

        Args:
            schema: the chunk's table version.
            keys: the table's own columns, of which only the key columns mean anything.
            saw: what the chunk's select saw.
        """
        folded = fold(schema, *self._unseen(schema, saw))
        if ALL_DEAD in folded["_effect"].to_pylist():
            return keys.slice(0, 0)
        touched = set(encode_rows([folded[name] for name in schema.key]).to_pylist())
        asked = encode_rows([keys.column(name) for name in schema.key]).to_pylist()
        return keys.filter(pa.array([key not in touched for key in asked], pa.bool_()))

    def _unseen(
        self, schema: TableSchema, saw: Visibility
    ) -> tuple[list[pa.RecordBatch], list[tuple[int, int]]]:
        """Return the remembered changes and truncates of a table that the chunk did not surely see."""
        if not self._recent:
            return [], []
        scn, xid = self.transactions()
        vis = saw.sees(xid, scn)
        # What was seen says something of its keys only where there is doubt about others.
        doubtful = bool((vis == UNKNOWN).any())
        changes: list[pa.RecordBatch] = []
        truncates: list[tuple[int, int]] = []
        seen_truncate = (-1, -1)
        for item, unseen in zip(self._recent, self._by_item(vis != YES)[0], strict=True):
            if doubtful or unseen:
                changes += self._rows_of(schema, item)
            for table, at_scn, order in item.truncates:
                if table == schema.table:
                    if vis[np.searchsorted(scn, at_scn)] == YES:
                        seen_truncate = max(seen_truncate, (at_scn, order))
                    else:
                        truncates.append((at_scn, order))
        truncates = [t for t in truncates if t > seen_truncate]
        if not changes:
            return [], truncates
        # As one batch: a busy log leaves many blocks of one row each.
        rows = _in_order(pa.concat_batches(changes))
        of_rows = vis[np.searchsorted(scn, rows.column("_scn").to_numpy())]
        unseen = _drop_seen(schema, rows, of_rows, seen_truncate)
        return [unseen] if unseen.num_rows else [], truncates

    def _by_item(
        self, marked: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return for each remembered item whether any of its transactions is marked, and whether all are."""
        # At once: a busy log leaves many blocks of one transaction each.
        starts = np.cumsum([0, *(len(item.scn) for item in self._recent[:-1])])
        return np.logical_or.reduceat(marked, starts), np.logical_and.reduceat(marked, starts)

    def _rows_of(self, schema: TableSchema, item: _Remembered) -> list[pa.RecordBatch]:
        """Return an item's rows of the table in the chunk's version."""
        return [
            promote(body.batch, self._schema_of(body.schema_id), schema)
            for body in item.bodies
            if body.table == schema.table
        ]


def _in_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows by ``(scn, ord)``: two versions of a table in one block may each hold rows from among the other's."""
    scn, order = (rows.column(name).to_numpy() for name in ("_scn", "_ord"))
    rises = (scn[1:] > scn[:-1]) | ((scn[1:] == scn[:-1]) & (order[1:] > order[:-1]))
    return rows if rises.all() else rows.sort_by([("_scn", "ascending"), ("_ord", "ascending")])


def _narrow(item: _Remembered, keep: npt.NDArray[np.bool_]) -> _Remembered:
    """Return the item with only the transactions to keep."""
    scn = item.scn[keep]
    bodies = []
    for body in item.bodies:
        rows = np.isin(body.batch.column("_scn").to_numpy(), scn)
        if rows.any():
            bodies.append(Body(body.schema_id, body.table, body.batch.filter(pa.array(rows))))
    return _Remembered(
        scn,
        item.xid[keep],
        tuple(bodies),
        tuple(t for t in item.truncates if (scn == t[1]).any()),
        sum(body.batch.nbytes for body in bodies),
        item.lost,
    )


def _drop_seen(
    schema: TableSchema,
    rows: pa.RecordBatch,
    vis: npt.NDArray[np.int8],
    seen_truncate: tuple[int, int],
) -> pa.RecordBatch:
    """Leave out what the chunk saw, and what it must have seen before that on the same key."""
    scn, order = rows.column("_scn").to_numpy(), rows.column("_ord").to_numpy()
    behind = (scn < seen_truncate[0]) | ((scn == seen_truncate[0]) & (order < seen_truncate[1]))
    seen = (vis == YES) | behind
    if (vis == UNKNOWN).any() and schema.key:
        seen = _close_prefixes(encode_rows([rows.column(name) for name in schema.key]), scn, seen)
    return rows.filter(pa.array(~seen))


def _close_prefixes(
    keys: pa.Array, scn: npt.NDArray[np.int64], seen: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Mark as seen what lies before a seen event on the same key, and the rest of such transactions.

    Row locks are held until a commit is visible, so the visible events of one key are a prefix; and a
    transaction becomes visible as a whole. Source: docs/paper_map.md W4.
    """
    codes = np.asarray(keys.dictionary_encode().indices)
    while True:
        last_seen = np.full(int(codes.max()) + 1, -1, np.int64)
        np.maximum.at(last_seen, codes[seen], np.flatnonzero(seen))
        grown = seen | (np.arange(len(codes)) <= last_seen[codes])
        grown |= np.isin(scn, scn[grown])
        if bool((grown == seen).all()):
            return np.asarray(grown, bool)
        seen = grown


def _unmet(rows: pa.RecordBatch) -> Reconciled:
    return Reconciled(rows, np.full(rows.num_rows, KEPT, np.int8), rows.slice(0, 0))


def _may_meet(schema: TableSchema, keys: pa.Array, changes: list[pa.RecordBatch]) -> bool:
    """Whether changes say anything of a chunk's rows: most windows of a large table meet none, while the log waits.

    Whole images act on the keys that they name and on no other; one with columns left out may also want a row read
    again that is in no chunk.
    """
    for batch in changes:
        if batch.column("_missing").null_count < batch.num_rows:
            return True
        named = encode_rows([batch.column(name) for name in schema.key])
        if pc.any(pc.is_in(keys, value_set=named)).as_py():
            return True
    return False


def _meet(
    schema: TableSchema,
    rows: pa.RecordBatch,
    chunk_keys: pa.Array,
    changes: list[pa.RecordBatch],
    folded: pa.Table,
) -> Reconciled:
    """Return what is left of the chunk's rows after the folded effect of what it did not see."""
    if folded.num_rows == 0:
        return _unmet(rows)
    fate = np.full(rows.num_rows, KEPT, np.int8)
    missing = missing_matrix(folded["_missing"].combine_chunks(), len(schema.columns))
    effects = np.array(folded["_effect"].to_pylist())
    keys = encode_rows([folded[name] for name in schema.key])
    origins = encode_rows([folded[origin_name(name)] for name in schema.key])
    own = np.asarray(pc.equal(keys, origins))
    for batch in changes:
        # A row that left its key and came back may have met another one there, which is what a chunk in doubt has.
        back = moved_in(schema, batch)[1]
        own &= ~np.asarray(pc.is_in(keys, value_set=encode_rows([back[n] for n in schema.key])))
    # A row that one event carried whole has no origin; patches that add up to a whole row still need the chunk's,
    # since a target that misses the base skips each of them.
    grown = np.asarray(folded[origin_name(schema.key[0])].combine_chunks().is_valid())
    holes = folded["_hole"].to_numpy()
    moved = (effects == ROW) & ((grown & ~own) | holes)
    late = folded.select(schema.names).filter(pa.array(moved)).combine_chunks().to_batches()
    unsettled = late[0] if late else rows.slice(0, 0)
    if ALL_DEAD in effects:
        fate[:] = DROPPED
        return Reconciled(rows.slice(0, 0), fate, unsettled)
    found = pc.fill_null(pc.index_in(chunk_keys, value_set=keys), -1)
    effect_at = np.asarray(found).astype(np.int64)
    hit = effect_at >= 0
    patched = np.zeros(len(hit), bool)
    patched[hit] = ((effects == ROW) & grown & own)[effect_at[hit]]
    fate[hit] = DROPPED
    fate[patched] = PATCHED
    kept = _patch(schema, rows, folded, np.where(patched, effect_at, -1), missing)
    return Reconciled(kept.filter(pa.array(fate != DROPPED)), fate, unsettled)


def _patch(
    schema: TableSchema,
    rows: pa.RecordBatch,
    folded: pa.Table,
    effect_at: npt.NDArray[np.int64],
    missing: npt.NDArray[np.bool_],
) -> pa.RecordBatch:
    """Return the rows with the cells that patches sent; ``effect_at`` is negative where nothing patches."""
    if (effect_at < 0).all():
        return rows
    count = rows.num_rows
    columns = []
    for index, name in enumerate(schema.names):
        sent = (effect_at >= 0) & ~missing[effect_at, index]
        both = pa.chunked_array(
            [rows.column(name), *folded[name].chunks], type=schema.columns[index].type
        )
        columns.append(
            both.take(
                pa.array(np.where(sent, count + effect_at, np.arange(count)))
            ).combine_chunks()
        )
    return pa.record_batch(columns, schema=rows.schema)


def moved_in(schema: TableSchema, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the updates that change the key and leave columns out, as old images and new images.

    The base row of such a new image may never have left in a chunk; a dump in progress re-reads it by key.
    """
    none = batch.slice(0, 0)
    if (
        schema.key_check is not KeyCheck.IMMEDIATE
        or batch.column("_missing").null_count == batch.num_rows
    ):
        return none, none
    ops = np.array(batch.column("_op").to_pylist())
    keys = np.array(encode_rows([batch.column(name) for name in schema.key]).to_pylist(), object)
    new = (ops == UPDATE_NEW) & np.asarray(batch.column("_missing").is_valid())
    new[1:] &= keys[1:] != keys[:-1]
    places = np.flatnonzero(new)
    return batch.take(pa.array(places - 1)), batch.take(pa.array(places))
