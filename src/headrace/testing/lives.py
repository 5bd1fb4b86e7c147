"""Random lives of one table, with what the source held after each transaction.

The changes leave out what a log may leave out; the truth beside them leaves out nothing, and nobody who interprets
changes had a part in it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.model.schema import KeyCheck, TableSchema
from headrace.testing.notation import MISSING, Row

__all__ = ["Transaction", "commit_us", "random_life"]

Cells = tuple[Any, ...]
State = dict[int, Cells]

KEYS = range(1, 8)


def commit_us(scn: int) -> int:
    """Return when the transaction with a number was committed, microseconds since 1970 UTC."""
    return 1_700_000_000_000_000 + scn * 1_000


@dataclass(slots=True)
class Transaction:
    """One transaction, or one window of chunk rows.

    Attributes:
        scn: its number; 10, 20, 30, …
        rows: its change rows, as of `headrace.testing.notation`.
        truncates: places ``(scn, ord)`` of truncates between them.
        read: whether the rows are chunk rows.
        touched: keys that it changed, or read.
        had: the row of each key that it removed, as it was just before.
        state: the source's rows after it, by key.
    """

    scn: int
    read: bool = False
    rows: list[Row] = field(default_factory=list)
    truncates: list[tuple[int, int]] = field(default_factory=list)
    touched: dict[int, None] = field(default_factory=dict)
    had: dict[int, Cells] = field(default_factory=dict)
    state: State = field(default_factory=dict)

    @property
    def commit_us(self) -> int:
        """Time of the commit, microseconds since 1970 UTC."""
        return commit_us(self.scn)

    @property
    def ord(self) -> int:
        """Ordinal that its next row will have."""
        return len(self.rows) + len(self.truncates)

    def add(self, op: str, cells: Cells) -> None:
        """Append a change row."""
        self.rows.append((self.scn, self.ord, op, cells))
        self.touched[cells[0]] = None

    def at(self, scn: int) -> Transaction:
        """Return the same transaction with another number."""
        return replace(
            self,
            scn=scn,
            rows=[(scn, order, op, cells) for _, order, op, cells in self.rows],
            truncates=[(scn, order) for _, order in self.truncates],
        )

    @property
    def notation(self) -> str:
        """The transaction in the notation, for logs that are written from it."""
        terms = {order: f"{op}({','.join(map(_text, cells))})" for _, order, op, cells in self.rows}
        terms |= {order: "T" for _, order in self.truncates}
        return " ".join(terms[order] for order in sorted(terms))


def _text(cell: Any) -> str:
    return "." if cell is None else str(cell)


def random_life(
    schema: TableSchema, rng: random.Random, length: int, *, whole: bool = False
) -> list[Transaction]:
    """Return a life of a table ``k, c1, …`` that begins with a dump of some rows.

    Args:
        schema: as of `headrace.testing.notation.table_of`; a key that is checked row by row lets updates leave
            columns out, any other has whole images.
        rng: decides everything.
        length: transactions after the dump.
        whole: whether nothing is left out, however the key is checked.
    """
    life = _Life(schema, rng, whole or schema.key_check is KeyCheck.DEFERRED)
    life.dump(rng.sample(KEYS, rng.randrange(1, 6)), fresh=True)
    for _ in range(length):
        life.step()
    return life.transactions


class _Life:
    def __init__(self, schema: TableSchema, rng: random.Random, whole: bool) -> None:
        self.schema = schema
        self.whole = whole
        self.rng = rng
        self.state: State = {}
        self.serial = 0
        self.transactions: list[Transaction] = []

    def step(self) -> None:
        """Let one transaction, or one window, happen."""
        roll = self.rng.random()
        if roll < 0.1:
            self.dump(self.rng.sample(KEYS, 3), fresh=False)
        elif roll < 0.2:
            self.dump(self.rng.sample(KEYS, 2), fresh=True)
        else:
            begun = dict(self.state)
            transaction = self._open()
            for _ in range(self.rng.randrange(1, 5)):
                self._operate(transaction)
            if self.schema.key_check is KeyCheck.DEFERRED:
                # What is as before was not changed, and what is gone is gone as it was before.
                changed = [k for k in transaction.touched if begun.get(k) != self.state.get(k)]
                transaction.touched = dict.fromkeys(changed)
                transaction.had |= {key: begun[key] for key in changed if key in begun}
            self._close(transaction)

    def dump(self, keys: Sequence[int], *, fresh: bool) -> None:
        """Read keys in a window; fresh rows changed before without a word in the log."""
        transaction = self._open(read=True)
        for key in keys:
            if fresh:
                self.state[key] = self._row(key)
            if key in self.state:
                transaction.add("+R", self.state[key])
        if transaction.rows:
            self._close(transaction)

    def _open(self, *, read: bool = False) -> Transaction:
        return Transaction(10 * (len(self.transactions) + 1), read)

    def _close(self, transaction: Transaction) -> None:
        if transaction.ord:
            transaction.state = dict(self.state)
            self.transactions.append(transaction)

    def _row(self, key: int) -> Cells:
        self.serial += 1
        return (key, *(f"{name}-{self.serial}" for name in self.schema.names[1:]))

    def _operate(self, t: Transaction) -> None:
        key, other = self.rng.sample(KEYS, 2)
        old, roll = self.state.get(key), self.rng.random()
        if roll < 0.04:
            self._truncate(t)
        elif old is None:
            self._insert(t, key)
        elif roll < 0.25:
            self._delete(t, old)
            if roll < 0.12:
                self._insert(t, key)
        elif roll < 0.65:
            self._update(t, old)
        elif other not in self.state:
            self._move(t, old, other)
        elif self.schema.key_check is KeyCheck.DEFERRED:
            self._exchange(t, old, self.state[other])
        else:
            self._move(t, old, 99)
            self._move(t, self.state[other], key)
            self._move(t, self.state[99], other)

    def _truncate(self, t: Transaction) -> None:
        t.truncates.append((t.scn, t.ord))
        t.touched |= dict.fromkeys(self.state)
        t.had |= self.state
        self.state.clear()

    def _insert(self, t: Transaction, key: int) -> None:
        self.state[key] = self._row(key)
        t.add("+I", self.state[key])

    def _delete(self, t: Transaction, old: Cells) -> None:
        t.had[old[0]] = self.state.pop(old[0])
        t.add("-D", self._image(old))

    def _image(self, old: Cells) -> Cells:
        """Return what the log says of a row that was."""
        if self.whole:
            return old
        return (old[0], *(MISSING for _ in old[1:]))

    def _update(self, t: Transaction, old: Cells) -> None:
        new = self._row(old[0])
        if self.whole:
            t.add("-U", old)
            t.add("+U", new)
        else:
            new, sent = self._partly(old, new)
            t.add("=U", sent)
        self.state[old[0]] = new

    def _partly(self, old: Cells, new: Cells) -> tuple[Cells, Cells]:
        """Return a row of which some columns stay as they were, and the log's view of it."""
        stays = [self.rng.random() < 0.5 for _ in new[1:]]
        row = (new[0], *(a if s else b for s, a, b in zip(stays, old[1:], new[1:], strict=True)))
        sent = (new[0], *(MISSING if s else b for s, b in zip(stays, new[1:], strict=True)))
        return row, sent

    def _move(self, t: Transaction, old: Cells, key: int) -> None:
        new = sent = self._row(key)
        if not self.whole:
            new, sent = self._partly(old, new)
        t.had[old[0]] = self.state.pop(old[0])
        self.state[key] = new
        t.add("-U", self._image(old))
        t.add("+U", sent)

    def _exchange(self, t: Transaction, one: Cells, two: Cells) -> None:
        """Give two rows each other's key, which for a moment both have."""
        for old, key in ((one, two[0]), (two, one[0])):
            self.state[key] = (key, *old[1:])
            t.add("-U", old)
            t.add("+U", self.state[key])
