"""What statements in the log make of tables: emptied, altered, renamed, gone; and what no copy can follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import IncompatibleSchemaChange, SourceError
from headrace.model.block import SystemKind
from headrace.model.schema import TableId
from headrace.sources.mysql import history, marks
from headrace.sources.mysql.gtids import Gtid
from headrace.sources.mysql.ports import Described, Tables
from headrace.sources.mysql.position import GONE
from headrace.sources.mysql.statements import Meaning

__all__ = ["Migrations", "refuse"]


class Migrations:
    """Follows which version each table has.

    Args:
        tables: knows the catalog and the registry.
        versions: by name, of the tables that were seen before.
        tell: takes a system event of the open transaction: its kind, table and payload.

    Attributes:
        versions: by name, from here on; never changed in place.
    """

    def __init__(
        self,
        tables: Tables,
        versions: Mapping[str, int],
        tell: Callable[[SystemKind, TableId, dict[str, Any]], None],
    ) -> None:
        self._tables = tables
        self._tell = tell
        self.versions = versions

    def described(self, table: TableId, described: Described) -> None:
        """Take in what the log itself says of a table before its rows."""
        if described.rekeyed or self.versions.get(str(table)) == GONE:
            # No row that was known is one of this table, which another one may have been, or is known by its key.
            self._tell(SystemKind.TRUNCATE, table, {"anew": True})
        self.versions = {**self.versions, str(table): described.schema_id}
        if described.announce is not None:
            self._tell(SystemKind.SCHEMA, table, described.announce)

    def stated(self, meaning: Meaning) -> None:
        """Tell of tables that a statement emptied or altered, or that came or went by it.

        Raises:
            IncompatibleSchemaChange: rows of a captured table change from here on without being in the log.
            SourceError: from here on a statement may mean another table that has its name.
        """
        kind, tables = meaning.kind, meaning.tables
        if meaning.acting is not None:
            self._refuse_acting(meaning.acting, surely=meaning.surely)
        if kind == "rename":
            for old, new in zip(tables[::2], tables[1::2], strict=True):
                self._rename(old, new)
        elif kind == "temporary":
            self._refuse_temporary(tables[0])
        elif kind == "drop database":
            for table in sorted(self._tables.within(tables[0].schema)):
                if self.versions.get(str(table)) != GONE:
                    self._gone(table, SystemKind.DROP_TABLE, {})
        else:
            for table in filter(self._tables.captures, tables):
                if kind in ("truncate", "replace"):
                    self._tell(SystemKind.TRUNCATE, table, {})
                elif kind == "drop":
                    self._gone(table, SystemKind.DROP_TABLE, {})
                elif kind in ("alter", "drop columns"):
                    self._alter(table, meaning)
                elif kind == "ensure" and str(table) not in self.versions:
                    # MySQL says so also of one that was there, and has not changed since we read.
                    self._alter(table, meaning)
                elif kind == "ignore":
                    self._anew(table)
                if kind == "replace" or (kind == "create" and str(table) not in self.versions):
                    self.versions = {**self.versions, str(table): GONE}

    def _gone(self, table: TableId, kind: SystemKind, payload: dict[str, Any]) -> None:
        self._tell(kind, table, payload)
        self.versions = {**self.versions, str(table): GONE}

    def _alter(self, table: TableId, meaning: Meaning) -> None:
        """Tell of a table's new shape at once, where no row may follow that does.

        The shape may be that of before and its values others. A column that went is there again where the catalog has
        it by now; else it is a new one when it comes.
        """
        before = self.versions.get(str(table))
        version = self._tables.found(table)
        if GONE in (before, version):
            return
        payload = self._tables.told(version, before or GONE)
        back = meaning.dropped & {name.lower() for name in payload["numbers"]}
        rekeyed = self._tables.rekeys(version, before or GONE, meaning.remade | back, meaning.unfit)
        fresh = before is None and meaning.kind != "drop columns"
        if meaning.fills or back or rekeyed or fresh:
            payload["needs_dump"] = True
        elif version == before:
            return
        self.versions = {**self.versions, str(table): version}
        if rekeyed:
            # Rows would stay that are known by keys which none has any more.
            self._tell(SystemKind.TRUNCATE, table, {"anew": True})
        self._tell(SystemKind.SCHEMA, table, payload)

    def _rename(self, old: TableId, new: TableId) -> None:
        """Tell of a table under its new name at once: the rows that it brings along may be all it ever has."""
        before = self.versions.get(str(old), GONE)
        if self._tables.captures(old):
            self._gone(old, SystemKind.RENAME_TABLE, {"to": str(new)})
        if self._tables.captures(new):
            if self.versions.get(str(new), GONE) != GONE:
                # No other table takes the name of one that is there.
                self._refuse_temporary(new)
            self._refuse_acting(new)
            self._anew(new, before)

    def _refuse_acting(self, table: TableId, *, surely: bool = False) -> None:
        if self._tables.captures(table) and self._tables.hides(table, surely=surely):
            raise IncompatibleSchemaChange(
                f"{table}: it has got a foreign key that changes rows by itself, which is not in the log.",
                next_step=f"make the key anew with RESTRICT, or exclude {table}; then dump every table again: headrace "
                "resync FILE.",
            )

    def _refuse_temporary(self, table: TableId) -> None:
        """Stop where a table of a session's own takes the name of a captured one: the log does not tell them apart."""
        gone = self.versions.get(str(table)) == GONE
        if not gone and self._tables.captures(table) and table in self._tables.within(table.schema):
            raise SourceError(
                f"{table}: a session whose statements are logged made a temporary table of this name, so that nobody "
                "knows which of them is emptied or altered.",
                next_step="SET GLOBAL binlog_format = ROW; see that no session sets another one, or name temporary "
                "tables otherwise; then dump every table again: headrace resync FILE.",
            )

    def _anew(self, table: TableId, like: int = GONE) -> None:
        """Tell that no row is known any more of a table, which looks like a version, and let it be dumped."""
        self._tell(SystemKind.TRUNCATE, table, {"anew": True})
        version = self._tables.found(table, like)
        self.versions = {**self.versions, str(table): version}
        if version != GONE:
            self._tell(SystemKind.SCHEMA, table, {**self._tables.told(version), "needs_dump": True})


def refuse(
    meaning: Meaning, gtid: Gtid, captures: Callable[[TableId], bool], *, changed: bool
) -> None:
    """Stop at a statement that changes rows and does not say which.

    Args:
        meaning: of the statement.
        gtid: of its transaction.
        captures: whether a table's rows are kept.
        changed: whether the transaction has changed rows by now.

    Raises:
        SourceError: what it did cannot be carried over.
        IncompatibleSchemaChange: likewise, with a part of a table.
        WatermarkOutOfOrder: it emptied the table of watermarks.
    """
    if meaning.kind in ("rollback", "rollback to") and changed:
        raise SourceError(
            f"Transaction {gtid} is in the log though all or a part of it was rolled back, and rows of that have left.",
            next_step="dump every table again: headrace resync FILE; make and drop temporary tables, and write tables "
            "that are not transactional, outside of large transactions.",
        )
    if meaning.kind == "write":
        raise SourceError(
            f"Transaction {gtid} is in the log as a statement ({meaning.word}), not as rows.",
            next_step="SET GLOBAL binlog_format = ROW; see that no session sets another one; then dump every "
            "table again: headrace resync FILE.",
        )
    # Another pipeline that begins creates it where it is there already.
    if marks.MARKS_TABLE in meaning.tables and meaning.kind not in ("create", "ensure", "alter"):
        raise marks.foreign(f"{meaning.word} emptied")
    taken = [table for table in meaning.tables if captures(table)]
    if meaning.kind == "history" and taken:
        raise history.refusal(taken[0])
    if meaning.kind == "parts" and taken:
        raise IncompatibleSchemaChange(
            f"{taken[0]}: rows came or went with a partition, and the log does not say which.",
            next_step="dump every table again: headrace resync FILE.",
        )
