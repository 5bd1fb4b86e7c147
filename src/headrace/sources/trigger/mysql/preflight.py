"""Everything that stands in the way of a capture by triggers, found at once; changes nothing."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from headrace.model.schema import TableId
from headrace.sources.base import Finding, Severity
from headrace.sources.mysql.catalog import TableFacts, undecoded
from headrace.sources.mysql.connection import QueryFailed, Session, quote_literal
from headrace.sources.mysql.keyset import table_sql
from headrace.sources.mysql.preflight import Preflight, captured_tables, check_names
from headrace.sources.trigger.mysql import installed, objects
from headrace.sources.trigger.mysql.catalog import is_partitioned, read_layouts, read_storages
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings
from headrace.sources.trigger.queues import not_removable

__all__ = ["TriggerPreflight"]

_VARIABLES = (
    "read_only",
    "log_bin",
    "binlog_format",
    "log_bin_trust_function_creators",
    "wsrep_on",
)
_PRIVILEGES = """
SELECT privilege_type, '', '' FROM information_schema.user_privileges WHERE grantee = {0}
UNION SELECT privilege_type, table_schema, '' FROM information_schema.schema_privileges WHERE grantee = {0}
UNION SELECT privilege_type, table_schema, table_name FROM information_schema.table_privileges WHERE grantee = {0}
"""
_TRUSTED = ("SUPER", "BINLOG ADMIN")


class TriggerPreflight(Preflight):
    """Looks at one server.

    Args:
        session: where to ask.
        settings: of the source.
    """

    def __init__(self, session: Session, settings: MysqlTriggerSettings) -> None:
        super().__init__(session, settings.database)
        self._triggers = settings
        _, self._grantee = self.user()
        rows = session.texts(_PRIVILEGES.format(quote_literal(self._grantee)))
        self._granted = {((row[0] or "").upper(), row[1] or "", row[2] or "") for row in rows}

    def server(self) -> Iterator[Finding]:
        """Yield what is wrong with the server's variables."""
        listed = ", ".join(f"'{name}'" for name in _VARIABLES)
        rows = self.session.texts(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
        known = {(name or "").lower(): value or "" for name, value in rows}
        if known.get("read_only") != "OFF":
            yield Finding(
                "read-only",
                "The server is read-only, as a replica is: what is replicated to it as rows fires no trigger.",
                "Capture the server that is written to.",
            )
        if known.get("wsrep_on") == "ON":
            yield Finding(
                "several-writers",
                "The server is one of a cluster with several writers: numbers of changes do not rise over all of them.",
                "Capture the cluster by its log: source.type: mysql.",
            )
        logs = known.get("log_bin") == "ON"
        if logs and known.get("binlog_format") == "STATEMENT":
            yield Finding(
                "binlog-format",
                "The server logs statements, which is not safe with triggers that number what they write.",
                "SET GLOBAL binlog_format = ROW; and the same in the server's configuration.",
            )
        trusts = known.get("log_bin_trust_function_creators") == "ON"
        trusted = trusts or any(self._may(right) for right in _TRUSTED)
        if logs and not trusted and self._missing():
            yield Finding(
                "may-not-make-triggers",
                f"{self._grantee} cannot make triggers on a server that keeps a binary log.",
                "SET GLOBAL log_bin_trust_function_creators = ON; or let an administrator run what `headrace "
                "source triggers show FILE` prints.",
            )

    def rights(self) -> Iterator[Finding]:
        """Yield what we may not do."""
        try:
            read_storages(self.session)
        except QueryFailed as error:
            yield Finding(
                "no-process-right",
                f"{self._grantee} may not see which tables were emptied or written anew, which fires no trigger: "
                f"{error.message}",
                f"GRANT PROCESS ON *.* TO {self._grantee};",
            )
        wanted: tuple[str, ...] = ("SELECT", "INSERT", "UPDATE", "DELETE")
        if not installed.has_objects(self.session):
            wanted = (*wanted, "CREATE")
        lacking = [right for right in wanted if not self._may(right, "headrace")]
        if lacking:
            yield Finding(
                "change-tables-not-usable",
                f"{self._grantee} lacks {', '.join(lacking)} on the change tables.",
                "; ".join(objects.grants(self._grantee))
                + f"; GRANT CREATE ON headrace.* TO {self._grantee};",
            )

    def keyless(self) -> tuple[str, Severity, str]:
        """Return what is said of a table without a primary key."""
        return (
            "keyless",
            Severity.WARNING,
            "its copy is a multiset of rows, and is dumped in one read",
        )

    def of_table(self, facts: TableFacts) -> Iterator[Finding]:
        """Yield all that is wrong with one table."""
        yield from self._undecoded(facts)
        yield from check_names(facts)
        yield from self.table(facts)

    def table(self, facts: TableFacts) -> Iterator[Finding]:
        """Yield what triggers do not see of a table, or cannot have."""
        table = facts.table
        yield from self.acting(table, "fires no trigger")
        if not facts.key and self._constrained(table):
            yield Finding(
                "keyless-constrained",
                f"{table} has no primary key, and constraints or partitions: an update that UPDATE IGNORE passed over "
                "looks like one that happened.",
                f"ALTER TABLE {table_sql(table)} ADD PRIMARY KEY (…); or exclude it.",
                table=str(table),
            )
        if self._triggers.removes(table):
            grant = f"GRANT DELETE ON {table_sql(table)} TO {self._grantee}"
            may = self._may("DELETE", *table)
            found = not_removable(table, has_key=bool(facts.key), may=may, grant=grant)
            yield from [found] if found else []
        lacking = [r for r in ("TRIGGER", "LOCK TABLES") if not self._may(r, *table)]
        if lacking:
            yield Finding(
                "no-trigger-right",
                f"{self._grantee} lacks {', '.join(lacking)} on {table}: triggers are neither made nor seen.",
                f"GRANT {', '.join(lacking)} ON {table_sql(table)[: table_sql(table).rindex('.')]}.* "
                f"TO {self._grantee};",
                table=str(table),
            )

    def _constrained(self, table: TableId) -> bool:
        try:
            layouts = read_layouts(self.session, [table], {}, set())
        except QueryFailed:
            return False  # A finding of its own.
        guarded = any(layout.guarded for layout in layouts.values())
        return guarded or is_partitioned(self.session, table)

    def _undecoded(self, facts: TableFacts) -> Iterator[Finding]:
        for column, why in undecoded(facts):
            yield Finding(
                "column-not-decoded",
                f"{facts.table}.{column} {why}, which is not decoded.",
                "change the column, or exclude the table.",
                table=str(facts.table),
            )

    def _missing(self) -> set[TableId]:
        """Return the captured tables that lack a trigger for what they are now."""
        tables = set(captured_tables(self.session, self.settings))
        if not installed.has_objects(self.session):
            return tables
        try:
            kept = installed.registered(self.session)
            now = read_layouts(self.session, tables, kept, set())
        except QueryFailed:
            return set()  # A finding of its own.
        right = {table: layout for table, layout in now.items() if kept.get(table) == layout}
        return tables - installed.with_triggers(self.session, right)

    def _may(self, right: str, schema: str = "", table: str = "") -> bool:
        """Return whether a right was granted to us, on everything, on a schema or on a table."""
        return any(
            granted == right and (not on or _like(schema, on)) and (not of or of == table)
            for granted, on, of in self._granted
        )


def _like(text: str, pattern: str) -> bool:
    """Return whether a schema is one that a grant names; there ``%`` and ``_`` stand for other characters."""
    plain = pattern.replace("\\_", "\0").replace("\\%", "\1")
    glob = "".join({"%": "*", "_": "?"}.get(c, c) for c in plain)
    return fnmatch.fnmatchcase(text, glob.replace("\0", "_").replace("\1", "%"))
