"""The ledger oracle: reads a change log from its first block and says where it contradicts itself.

Independent of the fold and of the reconciler on purpose: it follows each key row by row, the slow way.
What it checks is invariant 1, the output of a key never goes back in time: a row of a chunk must equal
what the log has said of its key so far, cell by cell, wherever the log has said anything.

Source: test A-17; DBLog, "no time travel".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from headrace.model.block import ORIGIN_LOG, Block, Body, SystemKind
from headrace.model.change import MINUS, PLUS, missing_matrix
from headrace.model.schema import KeyCheck, TableId, TableSchema

__all__ = ["LedgerOracle", "OracleViolation"]

Cells = tuple[Any, ...]
UNKNOWN = object()
"""A cell of which the log has said nothing."""


class OracleViolation(AssertionError):
    """The log contradicts itself; names table, SCN and rule."""


class _Keys:
    """What the log has said of each key of one table: cells, or None for "gone"."""

    def __init__(self, schema: TableSchema) -> None:
        self.names = schema.names
        self.places = schema.key_indexes
        self.known: dict[Cells, Cells | None] = {}
        self.all_gone = False

    def adopt(self, schema: TableSchema) -> None:
        """Bring what is known into the columns of another version; nothing is known of its new ones."""
        if schema.names == self.names:
            return
        for key, cells in self.known.items():
            if cells is not None:
                held = dict(zip(self.names, cells, strict=True))
                self.known[key] = tuple(held.get(name, UNKNOWN) for name in schema.names)
        self.names, self.places = schema.names, schema.key_indexes

    def key(self, cells: Cells) -> Cells:
        return tuple(cells[place] for place in self.places)

    def get(self, key: Cells, width: int) -> Cells | None:
        """Return what is known: cells (some unknown), or None when the key is known to be gone."""
        default = None if self.all_gone else (UNKNOWN,) * width
        return self.known.get(key, default)


class LedgerOracle:
    """Feed it blocks in order; it raises at the first contradiction.

    Args:
        schema_of: returns the table version of a schema id.
    """

    def __init__(self, schema_of: Callable[[int], TableSchema]) -> None:
        self._schema_of = schema_of
        self._tables: dict[TableId, _Keys] = {}
        self._bags: dict[TableId, Counter[Cells]] = {}
        self._covered_bags: set[TableId] = set()
        self._last = (0, 1)
        self._last_place: dict[int, int] = {}
        self.log_transactions: list[int] = []
        self.read_rows: Counter[TableId] = Counter()

    def feed(self, block: Block) -> None:
        """Take the next block.

        Raises:
            OracleViolation: it contradicts what came before.
        """
        self._check_order(block)
        rows: dict[int, list[tuple[int, TableId, str, Any, Any]]] = {}
        for event in block.system:
            if event.kind in (SystemKind.TRUNCATE, SystemKind.GAP):
                # A table that is dumped anew may hold anything from here on, as one with a gap may.
                kind = SystemKind.GAP if event.payload.get("anew") else event.kind
                change = (event.ord, event.table, kind.name, None, None)
                rows.setdefault(event.scn, []).append(change)
        for body in block.bodies:
            self._spread(body, rows)
        for entry in block.index:
            changes = sorted(rows.get(int(entry["scn"]), ()), key=lambda change: change[0])
            self._window(int(entry["scn"]), int(entry["origin"]), changes)

    def _check_order(self, block: Block) -> None:
        for entry in block.index:
            scn, last_piece = int(entry["scn"]), int(entry["last_piece"])
            goes_on = scn == self._last[0] and self._last[1] == 0
            if not goes_on and (scn <= self._last[0] or self._last[1] == 0):
                raise OracleViolation(f"SCN {scn} follows {self._last[0]}: order or piece broken")
            self._last = (scn, last_piece)
            if entry["origin"] == ORIGIN_LOG and last_piece:
                self.log_transactions.append(scn)

    def _spread(
        self, body: Body, rows: dict[int, list[tuple[int, TableId, str, Any, Any]]]
    ) -> None:
        schema = self._schema_of(body.schema_id)
        missing = missing_matrix(body.batch.column("_missing"), len(schema.columns))
        columns = [body.batch.column(name).to_pylist() for name in schema.names]
        scns = body.batch.column("_scn").to_pylist()
        orders = body.batch.column("_ord").to_pylist()
        ops = body.batch.column("_op").to_pylist()
        for place, cells in enumerate(zip(*columns, strict=True)):
            sent = tuple(
                UNKNOWN if hole else cell for cell, hole in zip(cells, missing[place], strict=True)
            )
            change = (orders[place], body.table, ops[place], sent, schema)
            rows.setdefault(scns[place], []).append(change)

    def _window(
        self, scn: int, origin: int, changes: list[tuple[int, TableId, str, Any, Any]]
    ) -> None:
        deferred: dict[TableId, tuple[TableSchema, Counter[Cells]]] = {}
        moved: Cells | None = None
        for _, table, op, cells, schema in changes:
            if op == SystemKind.TRUNCATE.name:
                self._truncate(table)
            elif op == SystemKind.GAP.name:
                self._forget(table)
            elif schema.key_check is KeyCheck.NONE:
                self._bag(scn, origin, table, op, cells)
            elif op == "+R":
                self._read(scn, schema, cells)
            elif schema.key_check is KeyCheck.DEFERRED:
                sums = deferred.setdefault(table, (schema, Counter()))[1]
                sums[cells] += (op in PLUS) - (op in MINUS)
            else:
                moved = self._immediate(scn, schema, op, cells, moved)
        for schema, sums in deferred.values():
            keys = self._keys(schema)
            for cells in [c for c, n in sums.items() if n < 0]:
                keys.known[keys.key(cells)] = None
            for cells in [c for c, n in sums.items() if n > 0]:
                keys.known[keys.key(cells)] = cells

    def _keys(self, schema: TableSchema) -> _Keys:
        keys = self._tables.setdefault(schema.table, _Keys(schema))
        keys.adopt(schema)
        return keys

    def _truncate(self, table: TableId) -> None:
        if table in self._tables:
            self._tables[table].known.clear()
            self._tables[table].all_gone = True
        self._bags[table] = Counter()
        self._covered_bags.add(table)

    def _forget(self, table: TableId) -> None:
        """Know nothing more: what changed before this place may never have been said."""
        self._tables.pop(table, None)
        self._bags.pop(table, None)
        self._covered_bags.discard(table)

    def _bag(self, scn: int, origin: int, table: TableId, op: str, cells: Cells) -> None:
        if origin != ORIGIN_LOG and op != "+I":
            raise OracleViolation(f"{table} at SCN {scn}: a window of a keyless table carries {op}")
        bag = self._bags.setdefault(table, Counter())
        bag[cells] += (op in PLUS) - (op in MINUS)
        if table in self._covered_bags and bag[cells] < 0:
            raise OracleViolation(f"{table} at SCN {scn}: a row is removed that is not there")

    def _read(self, scn: int, schema: TableSchema, cells: Cells) -> None:
        keys = self._keys(schema)
        self.read_rows[schema.table] += 1
        if UNKNOWN in cells:
            raise OracleViolation(f"{schema.table} at SCN {scn}: a chunk row is not whole")
        key = keys.key(cells)
        known = keys.get(key, len(cells))
        if known is None:
            raise OracleViolation(
                f"{schema.table} at SCN {scn}: a chunk row brings a gone key back"
            )
        if any(k is not UNKNOWN and k != c for k, c in zip(known, cells, strict=True)):
            raise OracleViolation(f"{schema.table} at SCN {scn}: a chunk row is older than the log")
        keys.known[key] = cells

    def _immediate(
        self, scn: int, schema: TableSchema, op: str, cells: Cells, moved: Cells | None
    ) -> Cells | None:
        """Follow one change; returns the row that is on its way to another key."""
        keys = self._keys(schema)
        key, width = keys.key(cells), len(cells)
        before = keys.get(key, width)
        if op == "-U":
            keys.known[key] = None
            base = before or (UNKNOWN,) * width
            return tuple(b if c is UNKNOWN else c for b, c in zip(base, cells, strict=True))
        if op == "-D":
            keys.known[key] = None
        elif op == "+I":
            self._must_be_free(scn, schema, before)
            keys.known[key] = cells
        else:
            if op == "=U" and before is None:
                raise OracleViolation(f"{schema.table} at SCN {scn}: a gone row is updated")
            base = moved if op == "+U" and moved else before or (UNKNOWN,) * width
            keys.known[key] = tuple(
                b if c is UNKNOWN else c for b, c in zip(base, cells, strict=True)
            )
        return None

    def _must_be_free(self, scn: int, schema: TableSchema, before: Cells | None) -> None:
        if before is not None and all(cell is not UNKNOWN for cell in before):
            raise OracleViolation(f"{schema.table} at SCN {scn}: a row is inserted twice")
