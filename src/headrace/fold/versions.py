"""What each transaction leaves of each key that it touches: the fold with nothing forgotten.

In: change rows of one table version in ``(scn, ord)`` order, truncates among them. Out: one version per key and
transaction. Where `headrace.fold.effects` gives the last state of a key, this gives all of them, and of a row that dies
the cells that it had: for tables that keep what is gone. Pure; a stretch gives the same versions whatever is around it.

Source: docs/paper_map.md, immediate keys and deferred keys.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import MalformedTransaction, ProtocolError
from headrace.fold.effects import codes_of
from headrace.fold.followed import ABSOLUTE, FROM_ORIGIN, HOLE, Followed, Places
from headrace.model.change import (
    DELETE,
    INSERT,
    PATCH,
    READ,
    TRUNCATE,
    UPDATE_NEW,
    UPDATE_OLD,
    missing_matrix,
)
from headrace.model.schema import KeyCheck, TableSchema

__all__ = ["Versions", "versions"]


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of keys, those of one key in order.

    Attributes:
        rows: where their cells stand; also those of a row that died, which are the ones that it had.
        dead: whether the transaction leaves no row.
        codes: small integers, equal exactly where keys are.
        when: place of the change that decided.
        wiped: place of the first truncate, negative without one.
        before: one place each of the keys that were touched before it.
    """

    rows: Followed
    dead: npt.NDArray[np.bool_]
    codes: Places
    when: Places
    wiped: int
    before: Places


@dataclass(frozen=True, slots=True)
class _Row:
    """A key's row: the place that carries all of it, or one place per cell and what the rest hangs on."""

    whole: int
    cells: Places | None = None
    origin: int = ABSOLUTE
    dead: bool = False

    def spread(self, width: int) -> Places:
        return np.full(width, self.whole, np.int64) if self.cells is None else self.cells

    def died(self) -> _Row:
        return _Row(self.whole, self.cells, self.origin, dead=True)


@dataclass(slots=True)
class _Found:
    """Versions as they are found; a later change of one transaction takes the place of an earlier one."""

    width: int
    state: dict[int, _Row] = field(default_factory=dict)
    named: dict[int, int] = field(default_factory=dict)
    versions: dict[tuple[int, int], tuple[_Row, int, int]] = field(default_factory=dict)
    wiped: int = -1
    before: list[int] = field(default_factory=list)

    def get(self, code: int, place: int) -> _Row:
        """Return the row at a key ahead of a change; what nobody spoke of is the row that the table holds there."""
        if code in self.state:
            return self.state[code]
        if self.wiped >= 0:
            return _Row(0, np.full(self.width, HOLE, np.int64), dead=True)
        return _Row(0, np.full(self.width, FROM_ORIGIN, np.int64), place)

    def put(self, code: int, scn: int, row: _Row, place: int) -> None:
        self.state[code], self.named[code] = row, place
        self._note(code, scn, row, place)

    def remove(self, code: int, scn: int, place: int) -> None:
        row = self.get(code, place)
        if not row.dead:
            self.put(code, scn, row.died(), place)

    def wipe(self, scn: int, place: int) -> None:
        if self.wiped < 0:
            self.wiped, self.before = place, list(self.named.values())
        for code, row in self.state.items():
            if not row.dead:
                self.state[code] = row.died()
                self._note(code, scn, row.died(), place)

    def _note(self, code: int, scn: int, row: _Row, when: int) -> None:
        self.versions[code, scn] = (row, self.named[code], when)

    def done(self) -> Versions:
        """Return all versions, key by key."""
        codes = np.array([code for code, _ in self.versions], np.int64)
        order = np.argsort(codes, kind="stable")
        rows = [row for row, _, _ in self.versions.values()]
        cells = np.repeat(np.array([row.whole for row in rows], np.int64)[:, None], self.width, 1)
        for number, row in enumerate(rows):
            if row.cells is not None:
                cells[number] = row.cells
        named = np.array([place for _, place, _ in self.versions.values()], np.int64)
        when = np.array([place for _, _, place in self.versions.values()], np.int64)
        origins = np.array([row.origin for row in rows], np.int64)
        dead = np.array([row.dead for row in rows], bool)
        followed = Followed(cells[order], origins[order], np.zeros(len(rows), bool), named[order])
        return Versions(
            followed,
            dead[order],
            codes[order],
            when[order],
            self.wiped,
            np.array(self.before, np.int64),
        )


def versions(schema: TableSchema, changes: pa.Table) -> Versions:
    """Return what each transaction leaves of each key.

    Args:
        schema: the version of all rows; it has a key.
        changes: change rows in ``(scn, ord)`` order, truncates being rows without cells.

    Raises:
        MalformedTransaction: a deferred key ends a transaction with two rows.
        ProtocolError: rows that no source may send.
    """
    ops = changes["_op"].to_pylist()
    scns = changes["_scn"].to_pylist()
    codes = codes_of([changes[name].combine_chunks() for name in schema.key]).tolist()
    missing = missing_matrix(changes["_missing"].combine_chunks(), len(schema.columns))
    found = _Found(len(schema.columns))
    if schema.key_check is KeyCheck.IMMEDIATE:
        _follow(found, ops, scns, codes, missing)
    else:
        if missing.any() or PATCH in ops:
            raise ProtocolError(
                f"{schema.table} needs whole images, yet a change left columns out.",
                next_step=f"ALTER TABLE {schema.table} REPLICA IDENTITY FULL; then request a dump of the table.",
            )
        images = codes_of([changes[name].combine_chunks() for name in schema.names]).tolist()
        _sum(schema, found, ops, scns, codes, images)
    return found.done()


def _follow(
    found: _Found,
    ops: list[str],
    scns: list[int],
    codes: list[int],
    missing: npt.NDArray[np.bool_],
) -> None:
    """Follow keys that are checked row by row."""
    holey: list[bool] = np.asarray(missing.any(axis=1)).tolist()
    old = -1
    base = _Row(0)
    for place, (op, scn, code) in enumerate(zip(ops, scns, codes, strict=True)):
        if op == TRUNCATE:
            found.wipe(scn, place)
        elif op == DELETE:
            found.remove(code, scn, place)
        elif op == UPDATE_OLD:
            old, base = place, found.get(code, place)
            if place + 1 == len(ops) or ops[place + 1] != UPDATE_NEW:
                raise _halved(scn)
            # Of an update in place, the new image takes the version's place at once.
            found.remove(code, scn, place)
        elif op in (INSERT, READ) or not holey[place]:
            found.put(code, scn, _Row(place), place)
        elif op == PATCH:
            row = _patched(place, missing[place], found.get(code, place))
            found.put(code, scn, row, place)
        elif op == UPDATE_NEW and old == place - 1 >= 0 and scns[old] == scn:
            row = _patched(place, missing[place], base)
            cells = row.spread(len(missing[place]))
            cells[missing[place] & ~missing[old]] = old
            whole = bool((cells >= old).all())
            found.put(code, scn, _Row(0, cells, ABSOLUTE if whole else row.origin), place)
        else:
            raise _halved(scn)


def _patched(place: int, holes: npt.NDArray[np.bool_], base: _Row) -> _Row:
    """Return a row with the cells that ``place`` sent; a dead base leaves holes."""
    if base.dead:
        return _Row(0, np.where(holes, HOLE, place).astype(np.int64))
    return _Row(0, np.where(holes, base.spread(len(holes)), place), base.origin)


def _halved(scn: int) -> ProtocolError:
    return ProtocolError(
        f"A change at SCN {scn} is half of an update, and the other half is not beside it.",
        next_step="report this as a defect of the source adapter; nothing was applied.",
    )


def _sum(
    schema: TableSchema,
    found: _Found,
    ops: list[str],
    scns: list[int],
    codes: list[int],
    images: list[int],
) -> None:
    """Sum, per transaction and key, the images of keys that are checked at its end."""
    begin = 0
    for place in range(1, len(ops) + 1):
        if place == len(ops) or scns[place] != scns[begin]:
            _end(schema, found, ops, codes, images, range(begin, place), scns[begin])
            begin = place


def _end(
    schema: TableSchema,
    found: _Found,
    ops: list[str],
    codes: list[int],
    images: list[int],
    places: range,
    scn: int,
) -> None:
    """Take one transaction; what it did ahead of a truncate had no effect."""
    net: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    shown: dict[int, int] = {}
    for place in places:
        if ops[place] == TRUNCATE:
            net.clear()
            found.wipe(scn, place)
        elif ops[place] == READ:
            found.put(codes[place], scn, _Row(place), place)
        else:
            net[codes[place]][images[place]] += 1 if ops[place] in (INSERT, UPDATE_NEW) else -1
            shown[images[place]] = place
    for code, sums in net.items():
        comes = [shown[image] for image, weight in sums.items() if weight > 0]
        goes = [shown[image] for image, weight in sums.items() if weight < 0]
        if len(comes) > 1 or len(goes) > 1 or any(abs(weight) > 1 for weight in sums.values()):
            raise MalformedTransaction(
                f"{schema.table}: transaction at SCN {scn} leaves a key with more than one row.",
                next_step="check that the table's replica identity is FULL; then request a dump of the table.",
            )
        if comes:
            found.put(code, scn, _Row(comes[0]), comes[0])
        elif goes:
            found.put(code, scn, _Row(goes[0], dead=True), goes[0])
