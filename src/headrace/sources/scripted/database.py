"""The scripted database: transactions, row locks, a log in commit order, and visibility that lags behind it.

It keeps the rules that real servers keep and that the watermark rules lean on: a transaction holds its row locks until
it is *visible*, which is later than its place in the log; ids are given at the first write, in any order with
respect to commits; a snapshot lists ids as PostgreSQL does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.model.mark import Mark
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.model.snapshot import TransactionSnapshot

__all__ = ["Change", "ScriptedDatabase", "Transaction"]

Cells = tuple[Any, ...]
MISSING = object()
"""A cell that the log leaves out."""


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the log: operation code and cells, `MISSING` where the log leaves one out."""

    table: TableId
    op: str
    cells: Cells


@dataclass(slots=True)
class Transaction:
    """A transaction: what it writes to the log, and what it makes of the tables when it becomes visible."""

    xid: int
    changes: list[Change] = field(default_factory=list)
    puts: list[tuple[TableId, str, Any]] = field(default_factory=list)
    locks: set[Any] = field(default_factory=set)
    mark: Mark | None = None
    scn: int = 0


class ScriptedDatabase:
    """Tables, a log and snapshots; nothing happens unless the caller says so.

    Args:
        tables: shapes of the tables. An int64 first column and text behind it.
    """

    def __init__(self, tables: Iterable[TableSchema]) -> None:
        self.schemas = {schema.table: schema for schema in tables}
        self.rows: dict[TableId, Counter[Cells]] = {table: Counter() for table in self.schemas}
        self.initial: dict[TableId, Counter[Cells]] = {}
        self.log: list[Transaction] = []
        self.running: list[Transaction] = []
        self.hidden: list[Transaction] = []
        self.acknowledged = 0
        self._scn = 100
        self._xid = 10
        self._completed_xid = 9

    # -- writing ----------------------------------------------------------------------------------

    def load(self, table: TableId, rows: Iterable[Cells]) -> None:
        """Put rows into a table before the log begins."""
        self.rows[table].update(rows)
        self.initial = {name: Counter(held) for name, held in self.rows.items()}

    def begin(self) -> Transaction:
        """Start a transaction; it takes its id now."""
        self._xid += 1
        transaction = Transaction(self._xid)
        self.running.append(transaction)
        return transaction

    def lock(self, transaction: Transaction, *names: Any) -> bool:
        """Take row or table locks for a transaction; false when somebody else holds one of them."""
        for other in (*self.running, *self.hidden):
            if other is not transaction and any(_overlap(a, b) for a in names for b in other.locks):
                return False
        transaction.locks.update(names)
        return True

    def commit(self, transaction: Transaction) -> int:
        """Write the transaction to the log; it is streamed from now on, and not yet visible."""
        self.running.remove(transaction)
        self._scn += 10
        transaction.scn = self._scn
        self.log.append(transaction)
        self.hidden.append(transaction)
        return transaction.scn

    def reveal(self, transaction: Transaction) -> None:
        """Make a committed transaction visible and release its locks."""
        self.hidden.remove(transaction)
        self._completed_xid = max(self._completed_xid, transaction.xid)
        apply_puts(self.rows, transaction)

    def abort(self, transaction: Transaction) -> None:
        """Forget a running transaction."""
        self.running.remove(transaction)
        self._completed_xid = max(self._completed_xid, transaction.xid)

    def write_mark(self, mark: Mark) -> None:
        """Write a watermark; it is visible at once and takes an id, as a transactional message does."""
        transaction = self.begin()
        transaction.mark = mark
        self.commit(transaction)
        self.reveal(transaction)

    @property
    def backlog(self) -> int:
        """Transactions in the log that are not acknowledged."""
        return sum(transaction.scn > self.acknowledged for transaction in reversed(self.log[-100:]))

    # -- reading ----------------------------------------------------------------------------------

    def snapshot(self) -> TransactionSnapshot:
        """Return what a read would see now, as ``pg_current_snapshot()`` would state it."""
        open_xids = [t.xid for t in (*self.running, *self.hidden)]
        xmax = self._completed_xid + 1
        listed = frozenset(xid for xid in open_xids if xid < xmax)
        return TransactionSnapshot(min(listed, default=xmax), xmax, listed)

    def visible(self, table: TableId) -> list[Cells]:
        """Return the rows that a read sees now, in key order."""
        key_free = self.schemas[table].key_check is KeyCheck.NONE
        rows = list((+self.rows[table]).elements())
        return rows if key_free else sorted(rows, key=lambda row: row[0])

    def state_at(self, scn: int) -> dict[TableId, Counter[Cells]]:
        """Return the content of every table as of a position in commit order."""
        rows = {table: Counter(self.initial.get(table, ())) for table in self.schemas}
        for transaction in self.log:
            if transaction.scn <= scn:
                apply_puts(rows, transaction)
        return {table: +held for table, held in rows.items()}


def _overlap(one: Any, other: Any) -> bool:
    """Whether two locks exclude each other; a lock is ``(table, key)``, key None for the whole table."""
    return bool(one[0] == other[0] and (one[1] is None or other[1] is None or one[1] == other[1]))


def apply_puts(rows: dict[TableId, Counter[Cells]], transaction: Transaction) -> None:
    """Carry out what a transaction does to the tables."""
    for table, what, row in transaction.puts:
        if what == "truncate":
            rows[table].clear()
        else:
            rows[table][row] += 1 if what == "add" else -1
