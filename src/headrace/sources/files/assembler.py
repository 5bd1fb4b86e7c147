"""Lines of a feed to blocks. Pure.

A transaction is a run of lines with one number, ended by a line that says so. What was seen before, by number and
place, is passed over: whoever writes the feed may have died and written the end of it again. When the bounds are
reached in a transaction's middle, what is there leaves as a piece that is not the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.errors import ProtocolError, SlotLost, SourceError
from headrace.fold.form import refuse_taken
from headrace.model.block import ORIGIN_LOG, Block, Body, SystemEvent, SystemKind, transaction_index
from headrace.model.change import (
    DELETE,
    INSERT,
    PATCH,
    READ,
    UPDATE_NEW,
    UPDATE_OLD,
    change_schema,
    pack_missing,
)
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.sources.base import LogItem, ReceivedMark, SchemaStore
from headrace.sources.files.cells import column_of
from headrace.sources.files.lines import Ahead
from headrace.sources.files.manifest import Manifest
from headrace.sources.files.place import check_number, own_scn
from headrace.sources.files.settings import FilesSettings
from headrace.sources.taken import NOT_LEFT_OUT

__all__ = ["Assembler"]

_OPS = frozenset({INSERT, UPDATE_OLD, UPDATE_NEW, PATCH, DELETE, READ})
_PASSED_ON = frozenset(
    {
        SystemKind.TRUNCATE,
        SystemKind.DROP_TABLE,
        SystemKind.RENAME_TABLE,
        SystemKind.CREATE_SCHEMA,
        SystemKind.DROP_SCHEMA,
        SystemKind.RENAME_SCHEMA,
    }
)


class _Rows:
    """Rows of one table version, in their order."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.names = schema.names
        self.rows: list[tuple[int, int, str, bytes | None, list[Any]]] = []

    def body(self) -> Body:
        """Return everything as one body and start anew."""
        scns, ords, ops, masks, cells = zip(*self.rows, strict=True)
        columns = [
            column_of(self.schema, place, column)
            for place, column in enumerate(zip(*cells, strict=True))
        ]
        arrays = [
            pa.array(scns, pa.int64()),
            pa.array(ords, pa.int32()),
            pa.array(ops, pa.string()),
            pa.array(masks, pa.binary()),
            *columns,
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=change_schema(self.schema))
        self.rows = []
        return Body(self.schema.schema_id, self.schema.table, batch)


class Assembler:
    """Collects lines until `take`.

    Args:
        settings: bounds, and which tables.
        manifest: what the tables look like; asked again when it lacks something.
        schemas: where versions are kept.
        scn: number, as the feed has it, of the transaction behind which it begins.
        covered: SCN up to which everything was handed over.
    """

    def __init__(
        self,
        settings: FilesSettings,
        manifest: Callable[[], Manifest],
        schemas: SchemaStore,
        scn: int,
        covered: int,
    ) -> None:
        self._settings = settings
        self._ask = manifest
        self._manifest = manifest()
        self._schemas = schemas
        self._versions: dict[TableId, _Rows] = {}
        self._rows: dict[int, _Rows] = {}
        self._system: list[SystemEvent] = []
        self._entries: list[tuple[int, int, int, int, int, int]] = []
        self._done = scn
        self._open = -1
        self._commit_us = 0
        self._line_ord = -1
        self._ord = 0
        self._changes = 0
        self._held_rows = 0
        self._held_bytes = 0
        self._covered = self._told = covered

    @property
    def scn(self) -> int:
        """SCN of the last transaction that has ended."""
        return own_scn(self._done)

    @property
    def open(self) -> bool:
        """Whether a transaction has begun and not yet ended."""
        return self._open >= 0

    @property
    def full(self) -> bool:
        """Whether the bounds are reached."""
        settings = self._settings
        return self._held_rows >= settings.block_rows or self._held_bytes >= settings.block_bytes

    @property
    def has_output(self) -> bool:
        """Whether `take` would return anything new."""
        return bool(self._entries or self._changes) or self._covered > self._told

    def begin(self, ahead: Ahead) -> None:
        """A transaction begins, which has ended in the feed.

        Raises:
            SourceError: its number leaves no room.
            ProtocolError: its time is none.
        """
        check_number(ahead.scn)
        if ahead.commit_us >> 63 not in (0, -1):
            raise ProtocolError(
                f"The feed's transaction {ahead.scn} has a commit_us beyond 64 bits.",
                next_step="correct the file; docs/files.md has the form.",
            )
        self._open, self._commit_us = ahead.scn, ahead.commit_us
        self._line_ord, self._ord = -1, 0

    def add(self, line: dict[str, Any], size: int, broken: Callable[[str], ProtocolError]) -> None:
        """Take in one line.

        Args:
            line: as JSON has it.
            size: its bytes.
            broken: makes the error for it.

        Raises:
            ProtocolError: it is no line of a feed.
            SourceError: it tells of a version or a table that nobody describes.
            SlotLost: the feed says itself that it lacks changes.
        """
        scn = line.get("scn")
        if not isinstance(scn, int) or isinstance(scn, bool):
            raise broken("has no scn")
        if scn != self._open:
            raise broken(f"is of transaction {scn}, and {self._open} has not ended")
        is_new = scn > self._done
        if line.get("end") is True:
            self._end(is_new=is_new)
            return
        order = line.get("ord")
        if not isinstance(order, int) or order < 0:
            raise broken("has no ord")
        if not is_new or order <= self._line_ord:
            return
        self._line_ord = order
        self._held_bytes += size
        if "event" in line:
            self._event(line, broken)
        else:
            self._change(line, broken)

    def take(self, mark: ReceivedMark | None, position: int, *, more: bool) -> LogItem:
        """Return everything so far and start anew.

        Args:
            mark: that stands behind it.
            position: SCN that is acknowledged with it.
            more: as `LogItem.more`.
        """
        if self.open and self._changes:
            self._entry(last=False)
        filled = [rows for rows in self._rows.values() if rows.rows]
        filled.sort(key=lambda rows: rows.rows[0][:2])
        covered = self._covered if mark is None else mark.scn - 1
        block = Block(
            transaction_index(self._entries),
            tuple(rows.body() for rows in filled),
            tuple(self._system),
            covered,
        )
        self._entries, self._system = [], []
        self._held_rows = self._held_bytes = 0
        self._covered = self._told = max(covered, self._covered)
        return LogItem(block, str(position), mark, more)

    # -- lines ------------------------------------------------------------------------------------

    def _end(self, *, is_new: bool) -> None:
        if is_new:
            if self._ord:
                self._entry(last=True)
            self._done, self._covered = self._open, own_scn(self._open)
        self._open = -1

    def _entry(self, *, last: bool) -> None:
        scn = own_scn(self._open)
        self._entries.append(
            (scn, self._commit_us, self._open, self._changes, ORIGIN_LOG, int(last))
        )
        self._changes = 0

    def _event(self, line: dict[str, Any], broken: Callable[[str], ProtocolError]) -> None:
        try:
            kind = SystemKind(line["event"])
            table = TableId.parse(line["table"])
            payload = dict(line["payload"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise broken("is no event") from None
        if table.name and not self._settings.selects(table):
            return
        if kind is SystemKind.GAP:
            raise SlotLost(
                f"The feed says that changes of {table} are missing in it.",
                next_step="repair the capture that writes it; then begin with a new feed and a new state folder.",
            )
        if kind is SystemKind.SCHEMA:
            schema_id = payload.get("schema_id")
            if not isinstance(schema_id, int):
                raise broken("tells of a version without its schema_id")
            self._describe(table, schema_id)
        elif kind in _PASSED_ON:
            self._tell(kind, table, payload)

    def _describe(self, table: TableId, schema_id: int) -> None:
        if schema_id not in self._manifest.versions:
            self._manifest = self._ask()
        schema = self._manifest.version(schema_id)
        if schema.table != table:
            raise SourceError(
                f"The feed gives {table} the version of {schema.table}.",
                next_step="correct the feed.",
            )
        self._use(schema)

    def _use(self, schema: TableSchema) -> _Rows:
        known = self._versions.get(schema.table)
        if known is not None and known.schema == schema:
            return known
        refuse_taken(schema, NOT_LEFT_OUT)
        id_ = self._schemas.put(schema)
        self._tell(SystemKind.SCHEMA, schema.table, {"schema_id": id_})
        # Rows of a version that was there before go where its others are.
        rows = self._versions[schema.table] = self._rows.setdefault(id_, _Rows(schema))
        return rows

    def _version(self, table: TableId) -> _Rows:
        if table in self._versions:
            return self._versions[table]
        if table not in self._manifest.first:
            self._manifest = self._ask()
        if table not in self._manifest.first:
            raise SourceError(
                f"The feed tells of {table}, which its description of tables does not have.",
                next_step="add it there, or exclude it.",
            )
        return self._use(self._manifest.first[table])

    def _change(self, line: dict[str, Any], broken: Callable[[str], ProtocolError]) -> None:
        op, name, row = line.get("op"), line.get("table"), line.get("row")
        missing = line.get("missing") or []
        if (
            op not in _OPS
            or not isinstance(name, str)
            or not isinstance(row, dict)
            or not isinstance(missing, list)
            or not all(isinstance(one, str) for one in missing)
        ):
            raise broken("is no change")
        table = TableId.parse(name)
        if not self._settings.selects(table):
            return
        rows = self._version(table)
        before = line.get("before")
        if isinstance(before, dict):
            self._add(rows, UPDATE_OLD, before, [], broken)
        self._add(rows, str(op), row, missing, broken)

    def _add(
        self,
        rows: _Rows,
        op: str,
        row: dict[str, Any],
        missing: list[str],
        broken: Callable[[str], ProtocolError],
    ) -> None:
        schema, names = rows.schema, rows.names
        absent = [at for at, name in enumerate(names) if name not in row]
        if unknown := sorted(row.keys() - set(names)):
            raise broken(f"has columns that {schema.table} does not: {', '.join(unknown)}")
        # An old row ahead of an update says its key at least; what it lacks was not sent.
        told = set(missing) if op not in (UPDATE_OLD, DELETE) else set(names) - set(schema.key)
        if lacking := sorted(names[at] for at in absent if names[at] not in told):
            raise broken(
                f"lacks columns of {schema.table} and does not say so: {', '.join(lacking)}"
            )
        if empty := [name for name in schema.key if row.get(name) is None]:
            raise broken(f"has no value of the key of {schema.table}: {', '.join(empty)}")
        if (absent or op == PATCH) and schema.key_check is not KeyCheck.IMMEDIATE:
            raise broken(f"is a part of a row of {schema.table}, whose rows have to be whole")
        scn = own_scn(self._open)
        cells = [row.get(name) for name in names]
        rows.rows.append((scn, self._ord, op, pack_missing(absent, len(names)), cells))
        self._held_rows += 1
        self._ord += 1
        self._changes += 1

    def _tell(self, kind: SystemKind, table: TableId, payload: dict[str, Any]) -> None:
        self._system.append(SystemEvent(own_scn(self._open), self._ord, kind, table, payload))
        self._ord += 1
        self._changes += 1
