"""Everything that stands in the way of a capture, found at once; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import HeadraceError, SourceError
from headrace.model.schema import TableId
from headrace.sources.base import Finding, Severity
from headrace.sources.mysql.catalog import (
    TableFacts,
    read_collations,
    read_table,
    undecoded,
)
from headrace.sources.mysql.connection import QueryFailed, Session, connect, quote_literal
from headrace.sources.mysql.dump import Dump
from headrace.sources.mysql.history import KEEPING
from headrace.sources.mysql.keyset import table_sql
from headrace.sources.mysql.marks import MARKS_TABLE, creation, has_marks
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.vendors import vendor_of
from headrace.sources.naming import unnameable
from headrace.sources.taken import taken

__all__ = ["Preflight", "acting_keys", "captured_tables", "check_names", "logs_acting_keys"]

_DAY_S = 86_400
_RETENTION = ("binlog_expire_logs_seconds", "expire_logs_days")
_PREPARED = 16_382
"""How many prepared statements a server allows where nobody says otherwise."""

_TABLES = """
SELECT table_schema, table_name, table_type, COALESCE(engine, '') FROM information_schema.tables
 WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY table_schema, table_name
"""

_ACTING = """
SELECT constraint_name, delete_rule, update_rule FROM information_schema.referential_constraints
 WHERE constraint_schema = {} AND table_name = {}
   AND (delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT')
        OR update_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))
"""


def captured_tables(session: Session, settings: MysqlSettings) -> list[TableId]:
    """Return the captured tables by name."""
    return [table for table, _, _ in _listed(session, settings)]


def _listed(session: Session, settings: MysqlSettings) -> list[tuple[TableId, str, str]]:
    rows = session.texts(_TABLES)
    found = [(TableId(row[0] or "", row[1] or ""), row[2] or "", row[3] or "") for row in rows]
    return [entry for entry in found if settings.selects(entry[0])]


def logs_acting_keys(session: Session) -> bool:
    """Return whether rows that a foreign key changes by itself are in the log.

    From MySQL 9.6 on it is the server that changes them, and logs it, and no longer its engine.
    """
    known = session.texts("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
    return bool(known) and known[0][1] == "OFF"


def acting_keys(session: Session, table: TableId) -> list[tuple[str | None, ...]]:
    """Return the foreign keys of a table that change its rows by themselves: name, what on delete, what on update."""
    return session.texts(_ACTING.format(*(quote_literal(part) for part in table)))


def check_names(facts: TableFacts) -> list[Finding]:
    """Find columns of a table that have a name of ours, and a table that has none of its own."""
    remedy = f"ALTER TABLE {table_sql(facts.table)} RENAME COLUMN … TO …; or exclude it."
    columns = taken(str(facts.table), (c.name for c in facts.columns), facts.key, remedy)
    return [*unnameable(facts.table), *columns]


class Preflight:
    """Looks at one server.

    Args:
        session: where to ask.
        settings: of the source.
    """

    def __init__(self, session: Session, settings: MysqlSettings) -> None:
        self.session = session
        self.settings = settings
        self._vendor = vendor_of(session)

    def run(self) -> list[Finding]:
        """Return every finding."""
        if finding := self._vendor.refusal(self.session.value("SELECT VERSION()")):
            return [finding]
        return [*self.server(), *self._statements(), *self.rights(), *self._tables()]

    def server(self) -> Iterator[Finding]:
        """Yield what is wrong with the server's variables."""
        checks = self._vendor.checks
        names = ("log_bin", *_RETENTION, *(check.variable for check in checks))
        listed = ", ".join(f"'{name}'" for name in names)
        rows = self.session.texts(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
        known = {(name or "").lower(): value or "" for name, value in rows}
        if known.get("log_bin") != "ON":
            yield Finding(
                "log-bin",
                "The server keeps no binary log.",
                "set log_bin = binlog in the server's configuration, and restart it.",
            )
            return
        for check in checks:
            name = check.variable
            # A server that has no such variable any more knows nothing else.
            if known.get(name, check.wanted) != check.wanted:
                yield Finding(
                    name.replace("_", "-"),
                    f"{name} is {known[name]}: {check.why}.",
                    check.remedy
                    or f"SET GLOBAL {name} = {check.wanted}; and the same in the server's configuration. "
                    "Sessions that are open keep the old value until they end.",
                    check.severity,
                )
        seconds, days = (_number(known.get(name, "")) for name in _RETENTION)
        seconds = seconds or days * _DAY_S
        if 0 < seconds < _DAY_S:
            yield Finding(
                "short-retention",
                f"The server removes its log after {seconds:,.0f} s; who is away longer must dump all tables again.",
                "SET GLOBAL binlog_expire_logs_seconds = 604800; and the same in the server's configuration.",
                Severity.WARNING,
            )

    def rights(self) -> Iterator[Finding]:
        """Yield what we may not do."""
        user, grantee = self.user()
        try:
            start = self._vendor.end(self.session)
        except QueryFailed:
            yield Finding(
                "no-binlog-monitor",
                f"{user} may not ask where the log is.",
                f"GRANT {self._vendor.sees_place} ON *.* TO {grantee};",
            )
        except ValueError:
            pass  # There is no log, which is a finding of its own.
        else:
            yield from self._filtered()
            if (error := self._log_refused(start)) is not None:
                yield Finding(
                    "no-replication-slave",
                    f"{user} may not read the log: {error.message}",
                    f"GRANT REPLICATION SLAVE ON *.* TO {grantee};",
                )
        if not has_marks(self.session, self.settings.name):
            yield Finding(
                "no-watermark-row",
                f"There is no table {MARKS_TABLE} that may be read and has a row for {self.settings.name}.",
                f"{'; '.join(creation(self.settings.name))}; GRANT SELECT, UPDATE ON {MARKS_TABLE} TO {grantee};",
                Severity.WARNING,
            )

    def user(self) -> tuple[str, str]:
        """Return who we are, and the same as grants have it."""
        user = self.session.value("SELECT CURRENT_USER()")
        name, _, host = user.rpartition("@")
        return user, f"{_quoted(name)}@{_quoted(host)}"

    def keyless(self) -> tuple[str, Severity, str]:
        """Return name, severity and reason of the finding of a table without a primary key."""
        name, severity = self._vendor.keyless
        return name, severity, self._vendor.keyless_why

    def table(self, facts: TableFacts) -> Iterator[Finding]:
        """Yield what else is wrong with a table."""
        if not logs_acting_keys(self.session):
            yield from self.acting(facts.table, "is not in the log")

    def acting(self, table: TableId, hidden: str) -> Iterator[Finding]:
        """Yield the foreign keys of a table that change its rows where we do not see it."""
        for name, on_delete, on_update in acting_keys(self.session, table):
            yield Finding(
                "foreign-key-acts",
                f"{table}: the foreign key {name} changes rows by itself (ON DELETE {on_delete}, ON UPDATE "
                f"{on_update}), which {hidden}.",
                f"Make it anew with RESTRICT, and let the application change these rows; or exclude {table}.",
                table=str(table),
            )

    def _filtered(self) -> Iterator[Finding]:
        """Yield what the log leaves out; without our watermarks no dump would ever end."""
        only, never = (set(filter(None, f.split(","))) for f in self._vendor.filters(self.session))
        tables = [MARKS_TABLE, *captured_tables(self.session, self.settings)]
        absent = {t.schema for t in tables if (t.schema not in only if only else t.schema in never)}
        remedy = "take binlog_do_db and binlog_ignore_db out of the server's configuration, and restart it."
        if absent:
            yield Finding(
                "binlog-filter",
                f"The log has no changes of {', '.join(sorted(absent))}: binlog_do_db or binlog_ignore_db is set.",
                remedy,
            )
        elif only or never:
            yield Finding(
                "binlog-filter-by-use",
                "binlog_do_db or binlog_ignore_db is set: TRUNCATE, ALTER and DROP are not in the log where their "
                "session uses a database that is not.",
                remedy,
                Severity.WARNING,
            )

    def _statements(self) -> Iterator[Finding]:
        allowed = self.session.value("SELECT @@GLOBAL.max_prepared_stmt_count")
        if allowed == "0":
            yield Finding(
                "max-prepared-stmt-count",
                "max_prepared_stmt_count is 0: no statement can be prepared, as each read of a chunk is.",
                f"SET GLOBAL max_prepared_stmt_count = {_PREPARED}; and the same in the server's configuration.",
            )

    def _log_refused(self, start: tuple[str, int]) -> HeadraceError | None:
        """Return why the log may not be read; asks for what comes behind its end, and takes nothing."""
        session = connect(self.settings)
        try:
            # Not under the number of the reader, which would be thrown out.
            log = Dump(session, self.settings, self.settings.asking_id, start, follow=False)
            while log.next(self.settings.statement_timeout_s) is not None:
                pass
        except SourceError as error:
            return error
        finally:
            session.close()
        return None

    def _tables(self) -> Iterator[Finding]:
        listed = _listed(self.session, self.settings)
        if not listed:
            yield Finding(
                "no-tables",
                "No table that we may see matches source.tables.",
                "correct source.tables, or GRANT SELECT on the tables.",
            )
        collations = read_collations(self.session)
        for table, kind, engine in listed:
            if kind == KEEPING:
                yield Finding(
                    "system-versioned",
                    f"{table} keeps its own history, which the log has as further rows.",
                    f"exclude it, or ALTER TABLE {table_sql(table)} DROP SYSTEM VERSIONING;",
                    table=str(table),
                )
            if engine != "InnoDB":
                yield Finding(
                    "engine",
                    f"{table} is of the engine {engine}, which no snapshot and no rollback covers.",
                    f"ALTER TABLE {table_sql(table)} ENGINE = InnoDB; or exclude it.",
                    table=str(table),
                )
            facts = read_table(self.session, table, collations)
            if facts is not None:
                yield from self._table(facts)

    def _table(self, facts: TableFacts) -> Iterator[Finding]:
        table = facts.table
        try:
            self.session.rows(f"SELECT 1 FROM {table_sql(table)} LIMIT 0")
        except QueryFailed as error:
            yield Finding(
                "no-select",
                f"{table} may not be read: {error.message}",
                f"GRANT SELECT ON {table_sql(table)} TO {self.session.value('SELECT CURRENT_USER()')};",
                table=str(table),
            )
        for column, why in undecoded(facts):
            yield Finding(
                "column-not-decoded",
                f"{table}.{column} {why}, which is not decoded.",
                "change the column, or exclude the table.",
                table=str(table),
            )
        yield from check_names(facts)
        if not facts.key:
            name, severity, why = self.keyless()
            yield Finding(
                name,
                f"{table} has no primary key: {why}.",
                f"ALTER TABLE {table_sql(table)} ADD PRIMARY KEY (…); if it can have one; else exclude it.",
                severity,
                str(table),
            )
        yield from self.table(facts)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
