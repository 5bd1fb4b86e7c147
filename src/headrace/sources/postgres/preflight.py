"""Everything that stands in the way of a capture, found at once, each with its remedy.

Selects from the catalog only, and plans of chunk reads; nothing is changed. Tables are judged in `tables_check`.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.sources.base import Finding, Severity
from headrace.sources.postgres.catalog import TableFacts, TypeCache, read_tables
from headrace.sources.postgres.connection import Session, quote, quote_literal
from headrace.sources.postgres.ddl import TRIGGER_SQL, TRIGGERS
from headrace.sources.postgres.plan import check_plan
from headrace.sources.postgres.publication import (
    PublicationFacts,
    all_as_published,
    read_publication,
)
from headrace.sources.postgres.settings import MARKS_SCHEMA, MARKS_TABLE, PostgresSettings
from headrace.sources.postgres.slot import FAILOVER_VERSION, SlotState, read_slot
from headrace.sources.postgres.tables_check import check_table

__all__ = ["Preflight", "server_findings"]

OLDEST_VERSION = 14
NEWEST_VERSION = 18

_ROLE = """
SELECT rolname, rolsuper,
       rolreplication OR EXISTS (
           SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
            WHERE m.member = r.oid AND g.rolname IN ('rds_replication', 'azure_pg_admin')),
       has_database_privilege(current_database(), 'CREATE'), current_database()
  FROM pg_roles r WHERE rolname = current_user
"""

_EMIT = """
SELECT bool_or(has_function_privilege(p.oid, 'EXECUTE')) FROM pg_proc p
 WHERE p.proname = 'pg_logical_emit_message'
"""

_MARKS = """
SELECT c.oid, has_table_privilege(c.oid, 'UPDATE'), has_schema_privilege(n.oid, 'USAGE')
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = $1 AND c.relname = $2
"""


def server_findings(session: Session) -> Iterator[Finding]:
    """Yield what is wrong with a server, whichever way its changes are read."""
    version = session.version
    if version < OLDEST_VERSION:
        yield Finding(
            "server-too-old",
            f"The server is PostgreSQL {version}; {OLDEST_VERSION} is the oldest supported.",
            f"Upgrade the server to PostgreSQL {OLDEST_VERSION} or newer.",
        )
    elif version > NEWEST_VERSION:
        yield Finding(
            "server-unknown-version",
            f"The server is PostgreSQL {version}; headrace was tested up to {NEWEST_VERSION}.",
            "Upgrade headrace, or try on a copy first.",
            Severity.WARNING,
        )
    if session.value("SELECT pg_is_in_recovery()") == "t":
        yield Finding(
            "standby",
            "The server is a standby: watermarks cannot be written there.",
            "Point source.url at the primary.",
        )
    ((encoding, database),) = session.rows(
        "SELECT pg_encoding_to_char(encoding), datname FROM pg_database WHERE datname = current_database()"
    )
    if encoding == "SQL_ASCII":
        yield Finding(
            "encoding-unknown",
            f"Database {database} has the encoding SQL_ASCII: text that is not UTF-8 "
            "stops the capture with a named error.",
            "Move the data to a database with an encoding, for example UTF8.",
            Severity.WARNING,
        )


class Preflight:
    """One look at one server."""

    def __init__(self, session: Session, settings: PostgresSettings) -> None:
        self._session = session
        self._settings = settings
        self._findings: list[Finding] = []
        name, superuser, replication, may_create, database = session.rows(_ROLE)[0]
        self._role = name or ""
        self._database = database or ""
        self._superuser = superuser == "t"
        self._replication = superuser == "t" or replication == "t"
        self._may_create = may_create == "t"

    def run(self) -> list[Finding]:
        """Return all findings: the server first, then role, slot, publication, marks, tables."""
        publication = read_publication(self._session, self._settings.publication_name)
        tables = read_tables(self._session, self._settings.filter)
        self._server()
        self._role_checks()
        self._slot()
        self._publication(publication, tables)
        self._marks(publication)
        self._ddl()
        self._tables(publication, tables)
        return self._findings

    def _add(
        self, name: str, description: str, suggestion: str, severity: Severity = Severity.ERROR
    ) -> None:
        self._findings.append(Finding(name, description, suggestion, severity))

    def _setting(self, name: str) -> str:
        return self._session.value("SELECT setting FROM pg_settings WHERE name = $1", name)

    # -- server ---------------------------------------------------------------------------------

    def _server(self) -> None:
        self._findings += server_findings(self._session)
        if (level := self._setting("wal_level")) != "logical":
            self._add(
                "wal-level",
                f"wal_level is {level}: the log does not carry row changes.",
                "ALTER SYSTEM SET wal_level = 'logical'; then restart the server.",
            )
        self._capacity()

    def _capacity(self) -> None:
        slots = int(self._setting("max_replication_slots"))
        used = int(self._session.value("SELECT count(*) FROM pg_replication_slots"))
        if read_slot(self._session, self._settings.slot_name) is None and used >= slots:
            self._add(
                "no-free-slot",
                f"All {slots} replication slots are in use.",
                f"ALTER SYSTEM SET max_replication_slots = {slots + 4}; then restart the server; or "
                "drop a slot that nobody reads (pg_replication_slots).",
            )
        senders = int(self._setting("max_wal_senders"))
        busy = int(self._session.value("SELECT count(*) FROM pg_stat_replication"))
        if busy >= senders:
            self._add(
                "no-free-wal-sender",
                f"All {senders} WAL senders are in use.",
                f"ALTER SYSTEM SET max_wal_senders = {senders + 4}; then restart the server.",
            )

    def _role_checks(self) -> None:
        if not self._replication:
            self._add(
                "role-not-replication",
                f"Role {self._role} may not read the log.",
                f"ALTER ROLE {quote(self._role)} REPLICATION;",
            )

    # -- slot and publication -------------------------------------------------------------------

    def _slot(self) -> None:
        name = self._settings.slot_name
        state = read_slot(self._session, name)
        self._failover(name, state)
        if state is None:
            if self._settings.slot is not None:
                self._add(
                    "slot-missing",
                    f"Slot {name}, named in the configuration, does not exist.",
                    "SELECT pg_create_logical_replication_slot("
                    f"{quote_literal(name).strip()}, 'pgoutput'); after the publication was made.",
                )
            return
        if state.plugin != "pgoutput":
            self._add(
                "slot-wrong-plugin",
                f"Slot {name} uses {state.plugin or 'physical replication'}, not pgoutput.",
                "Name another slot, or remove source.slot so that headrace makes its own.",
            )
        elif state.database != self._database:
            self._add(
                "slot-wrong-database",
                f"Slot {name} belongs to database {state.database}, not {self._database}.",
                "Name another slot, or change the database in source.url.",
            )
        if state.two_phase:
            literal = quote_literal(name).strip()
            self._add(
                "slot-two-phase",
                f"Slot {name} hands transactions out at PREPARE TRANSACTION, before anybody knows whether they "
                "will be committed; headrace takes them at COMMIT PREPARED.",
                f"SELECT pg_drop_replication_slot({literal}); "
                f"SELECT pg_create_logical_replication_slot({literal}, 'pgoutput'); after the other readers of "
                "that slot were stopped; or remove source.slot so that headrace makes its own.",
            )
        if state.active_pid is not None:
            self._add(
                "slot-active",
                f"Slot {name} is being read by server process {state.active_pid}.",
                "Stop the other reader; if it is this pipeline's own run, nothing is to be done.",
                Severity.WARNING,
            )
        if state.lost:
            self._lost_slot(name, state.lost)

    def _failover(self, name: str, state: SlotState | None) -> None:
        if not self._settings.failover:
            return
        if self._session.version < FAILOVER_VERSION:
            self._add(
                "failover-unsupported",
                f"source.failover is set, and PostgreSQL {self._session.version} keeps no slots on standbys: "
                "a promoted standby means RESYNC NEEDED.",
                f"Upgrade the server to PostgreSQL {FAILOVER_VERSION} or newer, or leave it out.",
                Severity.WARNING,
            )
        elif state is not None and not state.failover:
            self._add(
                "slot-not-failover",
                f"source.failover is set, and slot {name} is not one that standbys keep in step.",
                f"Over a replication connection: ALTER_REPLICATION_SLOT {name} (FAILOVER true); while "
                "nobody reads it.",
                Severity.WARNING,
            )

    def _lost_slot(self, name: str, why: str) -> None:
        description = f"Slot {name} was invalidated ({why}): RESYNC NEEDED."
        if self._settings.slot is None:
            # Capture itself refuses to start, or recovers when that was asked for.
            self._add(
                "slot-lost", description, "Run `headrace resync FILE --force`.", Severity.WARNING
            )
            return
        literal = quote_literal(name).strip()
        self._add(
            "slot-lost",
            description,
            f"SELECT pg_drop_replication_slot({literal}); "
            f"SELECT pg_create_logical_replication_slot({literal}, 'pgoutput'); then run "
            "`headrace resync FILE`.",
        )

    def _publication(self, publication: PublicationFacts | None, tables: list[TableFacts]) -> None:
        name = self._settings.publication_name
        if publication is not None:
            self._holds_everything(publication, tables)
        if self._settings.publication is None:
            self._own_publication(publication)
        elif publication is None:
            listing = ", ".join(f"{quote(t.table.schema)}.{quote(t.table.name)}" for t in tables)
            self._add(
                "publication-missing",
                f"Publication {name}, named in the configuration, does not exist.",
                f"CREATE PUBLICATION {quote(name)} FOR TABLE {listing or '…'} "
                "WITH (publish_via_partition_root = true); before the slot is made.",
            )

    def _holds_everything(self, publication: PublicationFacts, tables: list[TableFacts]) -> None:
        """Judge what holds for all tables of a publication; ours was made right, and may have been altered."""
        name = quote(publication.name)
        missed = ""
        if self._settings.publication is None:
            missed = " Then `headrace resync FILE`, for what was missed meanwhile."
        if lacking := publication.lacking_actions:
            self._add(
                "publication-actions",
                f"Publication {publication.name} leaves out {', '.join(lacking)}: replicas would drift.",
                f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate');{missed}",
            )
        if not publication.via_root and any(t.partitioned for t in tables):
            self._add(
                "publication-not-via-root",
                f"Publication {publication.name} publishes partitions, not the partitioned tables above them.",
                f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true);{missed}",
            )

    def _own_publication(self, publication: PublicationFacts | None) -> None:
        name = self._settings.publication_name
        if publication is None and not self._may_create:
            self._add(
                "may-not-create-publication",
                f"Role {self._role} may not create a publication in database {self._database}.",
                f"GRANT CREATE ON DATABASE {quote(self._database)} TO {quote(self._role)}; or let "
                "an administrator make publication and slot and name both in the configuration.",
            )
        elif publication is not None and not (publication.owned or self._superuser):
            self._add(
                "publication-foreign-owner",
                f"Publication {name} belongs to another role.",
                f"ALTER PUBLICATION {quote(name)} OWNER TO {quote(self._role)}; or name it as "
                "source.publication.",
            )

    # -- marks ----------------------------------------------------------------------------------

    def _marks(self, publication: PublicationFacts | None) -> None:
        if self._settings.watermark == "table":
            self._marks_table(publication)
        elif self._session.value(_EMIT) != "t":
            self._add(
                "may-not-emit-messages",
                f"Role {self._role} may not write logical messages.",
                "GRANT EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text, boolean) "
                f"TO {quote(self._role)}; (without the last argument below PostgreSQL 17), or use "
                "source.watermark: table.",
            )

    def _marks_table(self, publication: PublicationFacts | None) -> None:
        rows = self._session.rows(_MARKS, MARKS_TABLE.schema, MARKS_TABLE.name)
        create = (
            f"CREATE SCHEMA {MARKS_SCHEMA}; CREATE TABLE {MARKS_TABLE} (id int PRIMARY KEY, "
            f"kind text, token text, run_id text); INSERT INTO {MARKS_TABLE} (id) VALUES (1); "
            f"GRANT USAGE ON SCHEMA {MARKS_SCHEMA} TO {quote(self._role)}; "
            f"GRANT SELECT, UPDATE ON {MARKS_TABLE} TO {quote(self._role)};"
        )
        if not rows:
            if not self._may_create:
                self._add(
                    "watermark-table-missing",
                    f"{MARKS_TABLE} does not exist and role {self._role} may not create it.",
                    create,
                )
        elif rows[0][1] != "t" or rows[0][2] != "t":
            self._add(
                "watermark-table-not-writable",
                f"Role {self._role} may not update {MARKS_TABLE}.",
                f"GRANT USAGE ON SCHEMA {MARKS_SCHEMA} TO {quote(self._role)}; "
                f"GRANT SELECT, UPDATE ON {MARKS_TABLE} TO {quote(self._role)};",
            )
        adopted = self._settings.publication is not None
        if adopted and publication is not None and MARKS_TABLE not in publication.tables:
            self._add(
                "watermark-table-not-published",
                f"{MARKS_TABLE} is not in publication {publication.name}.",
                f"ALTER PUBLICATION {quote(publication.name)} ADD TABLE {MARKS_TABLE};",
            )

    def _ddl(self) -> None:
        if self._settings.ddl != "trigger":
            return
        rows = self._session.rows(
            "SELECT evtname FROM pg_event_trigger WHERE evtenabled IN ('O', 'A')"
        )
        if missing := set(TRIGGERS) - {row[0] or "" for row in rows}:
            self._add(
                "ddl-trigger-missing",
                f"source.ddl is trigger, and database {self._database} has no enabled event trigger "
                f"{', '.join(sorted(missing))}.",
                f"As a superuser: {TRIGGER_SQL}",
            )

    # -- tables ---------------------------------------------------------------------------------

    def _tables(self, publication: PublicationFacts | None, tables: list[TableFacts]) -> None:
        if not tables:
            self._add(
                "no-tables",
                f"No table of database {self._database} matches {', '.join(self._settings.tables)}.",
                "Correct source.tables, or create the tables first.",
            )
        adopted = publication if self._settings.publication is not None else None
        types = TypeCache()
        selects = [f for f in tables if f.readable and f.schema_usable and not f.row_security]
        published = {f.oid: f for f in all_as_published(self._session, self._settings, selects)}
        for facts in tables:
            self._findings += check_table(
                facts,
                version=self._session.version,
                role=self._role,
                privileged=self._superuser,
                adopted=adopted,
                owns_publication=self._settings.publication is None,
                choice=self._settings.columns_of(facts.table),
            )
            selected = published.get(facts.oid)
            if selected and (finding := check_plan(self._session, types, selected)):
                self._findings.append(finding)
