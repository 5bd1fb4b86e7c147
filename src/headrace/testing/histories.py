"""Random histories for a scripted database that obey the rules of real ones.

Three tables cover the three ways a key may be checked. Every operation takes the row locks a server would take and is
skipped when somebody holds them, so whatever comes out could have happened.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.sources.scripted.database import MISSING, Change, ScriptedDatabase, Transaction
from headrace.testing.notation import table_of

__all__ = ["BAG", "PATCHY", "TABLES", "WHOLE", "RandomHistory"]

PATCHY = table_of(3, name="patchy")
"""Key checked row by row; old images carry the key only, updates leave columns out."""
WHOLE = table_of(2, check=KeyCheck.DEFERRED, name="whole")
"""Key checked at commit; images are whole, keys shift and swap inside a transaction."""
BAG = table_of(2, check=KeyCheck.NONE, name="bag")
"""No key; duplicates are legal."""
TABLES: tuple[TableSchema, ...] = (PATCHY, WHOLE, BAG)

KEYS = range(1, 13)


class RandomHistory:
    """Moves a database one random step at a time.

    Args:
        database: to move.
        rng: decides everything.
        coverage: counts what happened, by name.
    """

    def __init__(
        self, database: ScriptedDatabase, rng: random.Random, coverage: Counter[str]
    ) -> None:
        self.database = database
        self.rng = rng
        self.coverage = coverage
        self.serial = 0
        self.quiet = False
        self.pinned: Transaction | None = None

    def load(self) -> None:
        """Fill the tables before the log begins."""
        for schema in TABLES:
            count = self.rng.randrange(9)
            keys = self.rng.sample(KEYS, count)
            rows = [self._row(schema, key) for key in keys]
            if schema is BAG and rows:
                rows += self.rng.choices(rows, k=2)
                self.coverage["duplicates before the dump"] += 1
            self.coverage["rows before the dump"] += len(rows)
            self.database.load(schema.table, rows)

    def pin(self) -> None:
        """Open a transaction that stays open until `settle`."""
        self.pinned = self.database.begin()
        self._operate(self.pinned)
        self.coverage["transaction open through the dump"] += 1

    def step(self) -> None:
        """Let one thing happen, or nothing."""
        if self.quiet:
            return
        db, rng = self.database, self.rng
        free = [t for t in db.running if t is not self.pinned]
        choice = rng.random()
        if choice < 0.3 and len(db.running) < 3:
            self._operate(db.begin())
        elif choice < 0.5 and free:
            self._operate(rng.choice(free))
        elif choice < 0.8 and free:
            self._commit(rng.choice(free))
        elif choice < 0.92 and db.hidden:
            db.reveal(rng.choice(db.hidden))
        elif choice < 0.94 and free:
            db.abort(rng.choice(free))
            self.coverage["aborts"] += 1

    def settle(self) -> None:
        """End every transaction, make everything visible, and be quiet from now on."""
        self.quiet = True
        for transaction in list(self.database.running):
            self._commit(transaction)
        for transaction in list(self.database.hidden):
            self.database.reveal(transaction)

    def _commit(self, transaction: Transaction) -> None:
        self.database.commit(transaction)
        if len({change.table for change in transaction.changes}) > 1:
            self.coverage["transactions over several tables"] += 1

    # -- operations -------------------------------------------------------------------------------

    def _row(self, schema: TableSchema, key: int) -> tuple[Any, ...]:
        self.serial += 1
        if schema is BAG:
            return (key % 3, f"v{self.serial % 2}")
        return (key, *(f"{name}{self.serial}" for name in schema.names[1:]))

    def _view(self, transaction: Transaction, table: TableId) -> dict[int, tuple[Any, ...]]:
        """Return the rows as the transaction sees them, by key."""
        held = Counter(self.database.rows[table])
        for name, what, row in transaction.puts:
            if name == table:
                if what == "truncate":
                    held.clear()
                else:
                    held[row] += 1 if what == "add" else -1
        return {row[0]: row for row in +held}

    def _operate(self, transaction: Transaction) -> None:
        schema = self.rng.choice(TABLES)
        if self.rng.random() < 0.02:
            self._truncate(transaction, schema)
        elif schema is PATCHY:
            self._patchy(transaction)
        elif schema is WHOLE:
            self._whole(transaction)
        else:
            self._bag(transaction)

    def _lock(self, transaction: Transaction, schema: TableSchema, *keys: Any) -> bool:
        return self.database.lock(transaction, *((schema.table, key) for key in keys))

    def _truncate(self, transaction: Transaction, schema: TableSchema) -> None:
        if self._lock(transaction, schema, None):
            transaction.changes.append(Change(schema.table, "T", ()))
            transaction.puts.append((schema.table, "truncate", None))
            self.coverage["truncates"] += 1

    def _put(self, t: Transaction, schema: TableSchema, old: Any, new: Any) -> None:
        if old is not None:
            t.puts.append((schema.table, "remove", old))
        if new is not None:
            t.puts.append((schema.table, "add", new))

    def _patchy(self, t: Transaction) -> None:
        key, other = self.rng.sample(KEYS, 2)
        if not self._lock(t, PATCHY, key, other):
            return
        view = self._view(t, PATCHY.table)
        old, roll = view.get(key), self.rng.random()
        if old is None:
            self._insert(t, PATCHY, key)
        elif roll < 0.2:
            self._delete_key_only(t, old)
            if roll < 0.1:
                self._insert(t, PATCHY, key)
                self.coverage["delete and re-insert"] += 1
        elif roll < 0.65:
            self._patch(t, old)
        elif other not in view:
            self._move(t, old, other)
        else:
            self._swap(t, old, view[other])

    def _insert(self, t: Transaction, schema: TableSchema, key: int) -> None:
        row = self._row(schema, key)
        t.changes.append(Change(schema.table, "+I", row))
        self._put(t, schema, None, row)
        self.coverage["inserts"] += 1

    def _delete_key_only(self, t: Transaction, old: tuple[Any, ...]) -> None:
        t.changes.append(Change(PATCHY.table, "-D", (old[0], MISSING, MISSING)))
        self._put(t, PATCHY, old, None)
        self.coverage["deletes"] += 1

    def _patch(self, t: Transaction, old: tuple[Any, ...]) -> None:
        """Update in place: the log leaves out one column, or all but one, or none."""
        fresh = self._row(PATCHY, old[0])
        kind = self.rng.choice(("toast", "minimal", "full"))
        new = {"toast": (*fresh[:2], old[2]), "minimal": (*old[:2], fresh[2]), "full": fresh}[kind]
        sent = {
            "toast": (*new[:2], MISSING),
            "minimal": (new[0], MISSING, new[2]),
            "full": new,
        }[kind]
        t.changes.append(Change(PATCHY.table, "=U", sent))
        self._put(t, PATCHY, old, new)
        self.coverage[f"updates in place ({kind})"] += 1

    def _move(self, t: Transaction, old: tuple[Any, ...], key: int) -> tuple[Any, ...]:
        fresh = self._row(PATCHY, key)
        keeps = self.rng.random() < 0.7
        new = (key, fresh[1], old[2] if keeps else fresh[2])
        t.changes.append(Change(PATCHY.table, "-U", (old[0], MISSING, MISSING)))
        t.changes.append(Change(PATCHY.table, "+U", (*new[:2], MISSING if keeps else new[2])))
        self._put(t, PATCHY, old, new)
        self.coverage["key changes with missing columns" if keeps else "key changes"] += 1
        return new

    def _swap(self, t: Transaction, one: tuple[Any, ...], two: tuple[Any, ...]) -> None:
        spare = 99
        if not self._lock(t, PATCHY, spare):
            return
        aside = self._move(t, one, spare)
        self._move(t, two, one[0])
        self._move(t, aside, two[0])
        self.coverage["swaps"] += 1

    def _whole(self, t: Transaction) -> None:
        keys = self.rng.sample(KEYS, 3)
        if not self._lock(t, WHOLE, *keys):
            return
        view = self._view(t, WHOLE.table)
        old, roll = view.get(keys[0]), self.rng.random()
        if old is None:
            self._insert(t, WHOLE, keys[0])
        elif roll < 0.2:
            t.changes.append(Change(WHOLE.table, "-D", old))
            self._put(t, WHOLE, old, None)
        elif roll < 0.6:
            self._update_whole(t, old, (old[0], self._row(WHOLE, 0)[1]))
        else:
            self._rotate(t, [view[k] for k in keys if k in view], keys)

    def _update_whole(self, t: Transaction, old: tuple[Any, ...], new: tuple[Any, ...]) -> None:
        t.changes += [Change(WHOLE.table, "-U", old), Change(WHOLE.table, "+U", new)]
        self._put(t, WHOLE, old, new)
        self.coverage["whole updates"] += 1

    def _rotate(self, t: Transaction, rows: list[tuple[Any, ...]], keys: list[int]) -> None:
        """Give each row the next row's key, which for a moment two rows hold."""
        targets = [row[0] for row in rows[1:]] + [keys[-1] if len(rows) < 3 else rows[0][0]]
        if len(set(targets)) < len(targets) or any(
            k in self._view(t, WHOLE.table) and k not in {row[0] for row in rows} for k in targets
        ):
            return
        for old, key in zip(rows, targets, strict=True):
            self._update_whole(t, old, (key, old[1]))
        self.coverage["deferred key shifts"] += 1

    def _bag(self, t: Transaction) -> None:
        row = self._row(BAG, self.rng.choice(KEYS))
        held = [r for r, n in self.database.rows[BAG.table].items() if n > 0]
        roll = self.rng.random()
        if roll < 0.5 or not held:
            if self._lock(t, BAG, ("insert", t.xid)):
                t.changes.append(Change(BAG.table, "+I", row))
                self._put(t, BAG, None, row)
                self.coverage["keyless inserts"] += 1
            return
        old = self.rng.choice(held)
        # One deletion per row and transaction keeps the count that the lock protects simple.
        if not self._lock(t, BAG, old):
            return
        if any(name == BAG.table and what in ("truncate", "remove") for name, what, _ in t.puts):
            return
        new = row if roll > 0.75 else None
        if new is None:
            t.changes.append(Change(BAG.table, "-D", old))
        elif self._lock(t, BAG, ("insert", t.xid)):
            t.changes += [Change(BAG.table, "-U", old), Change(BAG.table, "+U", new)]
        else:
            return
        self._put(t, BAG, old, new)
        self.coverage["keyless deletes and updates"] += 1
