"""Preflight against real servers: every finding is found, all at once, and its own remedy cures it."""

from __future__ import annotations

import re

import pytest

from headrace.model.schema import TableId
from headrace.sources.base import Finding, Severity
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.preflight import Preflight, captured_tables
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.vendor_mysql import MYSQL as MYSQL_ITSELF
from headrace.testing.mariadb_server import MariadbServer
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.binlog_servers import is_mysql, make_user
from tests.fixtures_binlog import MARIADB, MYSQL, Sql
from tests.requirements import req
from tests.sources.mysql.support import decoded, here


def found(server: MysqlProtocolServer, *tables: str, user: str = "headrace") -> list[Finding]:
    settings = MysqlSettings(server.url(user=user), tables=tables)
    with connect(settings) as session:
        return Preflight(session, settings).run()


def names(findings: list[Finding]) -> set[str]:
    return {finding.name for finding in findings} - {"no-watermark-row"}


@pytest.fixture
def table(sql: Sql, database: str) -> str:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    return f"{database}.*"


def test_a_server_that_is_as_it_should_be_has_no_findings(
    server: MysqlProtocolServer, table: str
) -> None:
    assert names(found(server, table)) == set()


VARIABLES = [
    (
        MARIADB,
        [
            ("binlog_format", "MIXED", "binlog-format", Severity.ERROR),
            ("binlog_format", "STATEMENT", "binlog-format", Severity.ERROR),
            ("binlog_row_metadata", "NO_LOG", "binlog-row-metadata", Severity.ERROR),
            ("binlog_row_metadata", "MINIMAL", "binlog-row-metadata", Severity.ERROR),
            ("binlog_row_image", "MINIMAL", "binlog-row-image", Severity.ERROR),
            ("binlog_row_image", "NOBLOB", "binlog-row-image", Severity.ERROR),
            ("mysql56_temporal_format", "OFF", "mysql56-temporal-format", Severity.ERROR),
            ("binlog_expire_logs_seconds", "600", "short-retention", Severity.WARNING),
            ("max_prepared_stmt_count", "0", "max-prepared-stmt-count", Severity.ERROR),
        ],
    ),
    (
        MYSQL,
        [
            ("binlog_format", "MIXED", "binlog-format", Severity.ERROR),
            ("binlog_format", "STATEMENT", "binlog-format", Severity.ERROR),
            ("binlog_row_metadata", "MINIMAL", "binlog-row-metadata", Severity.ERROR),
            ("binlog_row_image", "MINIMAL", "binlog-row-image", Severity.ERROR),
            ("binlog_row_image", "NOBLOB", "binlog-row-image", Severity.ERROR),
            ("gtid_mode", "ON_PERMISSIVE", "gtid-mode", Severity.ERROR),
            ("binlog_order_commits", "OFF", "binlog-order-commits", Severity.WARNING),
            (
                "replica_preserve_commit_order",
                "OFF",
                "replica-preserve-commit-order",
                Severity.WARNING,
            ),
            ("binlog_expire_logs_seconds", "600", "short-retention", Severity.WARNING),
            ("max_prepared_stmt_count", "0", "max-prepared-stmt-count", Severity.ERROR),
        ],
    ),
]


@req("D120")
@pytest.mark.parametrize(
    ("server", "variable", "value", "name", "severity"),
    [
        pytest.param(*server.values, *one, marks=server.marks, id=f"{server.id}-{one[0]}-{one[1]}")
        for server, found in VARIABLES
        for one in found
    ],
    indirect=["server"],
)
def test_a_variable_is_named_and_the_remedy_cures_it(
    server: MysqlProtocolServer,
    table: str,
    variable: str,
    value: str,
    name: str,
    severity: Severity,
) -> None:
    ((before,),) = server.query(f"SELECT @@GLOBAL.{variable}")
    server.execute(f"SET GLOBAL {variable} = {value}")
    try:
        findings = [one for one in found(server, table) if one.name == name]
        assert [one.severity for one in findings] == [severity]
        server.execute(*remedies(findings[0]))
        assert names(found(server, table)) == set()
    finally:
        server.execute(f"SET GLOBAL {variable} = {before!r}")


def remedies(finding: Finding) -> list[str]:
    """Return the statements of a finding, in their order."""
    found = re.findall(r"(?:SET GLOBAL|STOP REPLICA|START REPLICA)[^;]*;", finding.suggestion)
    # Where nothing is replicated there is nothing to stop, and it says so.
    found = [one for one in found if "REPLICA" not in one]
    assert found
    return found


@req("D120")
@pytest.mark.parametrize("server", [MYSQL], indirect=True)
def test_a_server_without_ids_is_led_to_them_step_by_step(
    server: MysqlProtocolServer, table: str
) -> None:
    off = ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")
    server.execute(*(f"SET GLOBAL gtid_mode = {mode}" for mode in off))
    server.execute("SET GLOBAL enforce_gtid_consistency = OFF")
    try:
        assert names(found(server, table)) == {"gtid-mode", "enforce-gtid-consistency"}
        for finding in found(server, table):
            if finding.name in ("gtid-mode", "enforce-gtid-consistency"):
                server.execute(*remedies(finding))
        assert names(found(server, table)) == set()
    finally:
        server.execute("SET GLOBAL enforce_gtid_consistency = ON")


def test_rights_are_named_and_the_remedies_cure_them(
    server: MysqlProtocolServer, database: str, table: str
) -> None:
    make_user(server, "reader")
    findings = found(server, table, user="reader")
    assert names(findings) == {"no-binlog-monitor", "no-tables"}
    server.execute(*_grants(findings), f"GRANT SELECT ON {database}.* TO reader@'%'")
    findings = found(server, table, user="reader")
    assert names(findings) == {"no-replication-slave"}
    server.execute(*_grants(findings))
    assert names(found(server, table, user="reader")) == set()


def _grants(findings: list[Finding]) -> list[str]:
    return [
        sql
        for one in findings
        if one.name != "no-watermark-row"
        for sql in re.findall(r"GRANT [A-Z ]+ ON \*\.\* TO [^;]+", one.suggestion)
    ]


def test_a_table_that_may_be_seen_and_not_read_is_named(
    server: MysqlProtocolServer, database: str, table: str
) -> None:
    sees = "REPLICATION CLIENT" if is_mysql(server) else "BINLOG MONITOR"
    make_user(server, "half", f"INSERT ON {database}.t", f"{sees}, REPLICATION SLAVE ON *.*")
    assert "no-select" in names(found(server, table, user="half"))


def test_tables_are_named_each_with_all_that_is_wrong(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql(
        "CREATE TABLE fine (id int PRIMARY KEY)",
        "CREATE TABLE keyless (id int)",
        "CREATE TABLE old (id int PRIMARY KEY) ENGINE = MyISAM",
        "CREATE TABLE words (v varchar(9) CHARACTER SET sjis, w char(3) CHARACTER SET big5) ENGINE = MyISAM",
        "CREATE VIEW seen AS SELECT * FROM keyless",
    )
    keyless = ("keyless-refused", "ERROR") if is_mysql(server) else ("keyless", "WARNING")
    only: set[tuple[str, str, str]] = set()
    if not is_mysql(server):
        sql(
            "CREATE TABLE past (id int PRIMARY KEY) WITH SYSTEM VERSIONING",
            "CREATE TABLE packed (id int PRIMARY KEY, v text COMPRESSED)",
            "CREATE SEQUENCE numbers",
        )
        only = {("past", "system-versioned", "ERROR"), ("packed", "column-not-decoded", "ERROR")}
    findings = found(server, f"{database}.*")
    told = {
        (one.table.partition(".")[2], one.name, one.severity.name) for one in findings if one.table
    }
    assert told == only | {
        ("keyless", *keyless),
        ("old", "engine", "ERROR"),
        ("words", "column-not-decoded", "ERROR"),
        ("words", "engine", "ERROR"),
        ("words", *keyless),
    }
    assert sum(one.name == "column-not-decoded" for one in findings) == 3 - is_mysql(server)
    settings = MysqlSettings(server.url(), tables=(f"{database}.*",), exclude=(f"{database}.p*",))
    with connect(settings) as session:
        assert [one.name for one in captured_tables(session, settings)] == [
            "fine", "keyless", "old", "words",
        ]  # fmt: skip


@pytest.mark.parametrize("action", ["ON DELETE CASCADE", "ON UPDATE SET NULL"])
def test_foreign_keys_that_act_where_no_log_shows_it_are_refused(
    server: MysqlProtocolServer, database: str, sql: Sql, action: str
) -> None:
    sql(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        f"CREATE TABLE t (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id) {action})",
        "CREATE TABLE fine (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE RESTRICT)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO t VALUES (5, 1)",
    )
    start = here(server)
    sql("DELETE FROM parent" if "DELETE" in action else "UPDATE parent SET id = 2")
    logged = bool(decoded(server, TableId(database, "t"), start).batches)
    told = {(one.table, one.name, one.severity) for one in found(server, f"{database}.*")}
    assert logged == is_mysql(server)
    acts = {(f"{database}.t", "foreign-key-acts", Severity.ERROR)}
    assert {one for one in told if one[0]} == (set() if logged else acts)


def test_the_watermark_table_is_asked_for_with_its_very_statements(
    server: MysqlProtocolServer, table: str
) -> None:
    (finding,) = [one for one in found(server, table) if one.name == "no-watermark-row"]
    try:
        server.execute(*filter(None, map(str.strip, finding.suggestion.split(";"))))
        assert found(server, table) == []
    finally:
        server.execute("DROP DATABASE IF EXISTS headrace")


@pytest.mark.mariadb
def test_a_server_without_a_log_is_named() -> None:
    with MariadbServer(settings={"skip_log_bin": "1"}) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY)")
        assert "log-bin" in names(found(server, "d.*"))


@pytest.mark.mariadb
@pytest.mark.parametrize(
    ("setting", "databases", "name", "absent"),
    [
        ("binlog_do_db", "d", "binlog-filter", "headrace"),
        ("binlog_ignore_db", "d", "binlog-filter", "d"),
        ("binlog_ignore_db", "other", "binlog-filter-by-use", ""),
    ],
)
def test_a_log_that_leaves_databases_out_is_named(
    setting: str, databases: str, name: str, absent: str
) -> None:
    with MariadbServer(settings={setting: databases}) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY)")
        (finding,) = (one for one in found(server, "d.*") if one.name.startswith("binlog-filter"))
    assert finding.name == name
    assert (finding.severity is Severity.ERROR) == bool(absent)
    assert not absent or f"no changes of {absent}:" in finding.description


@pytest.mark.mariadb
@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("5.7.44-log", "server-too-old"),
        ("10.4.2-MariaDB", "server-too-old"),
    ],
)
def test_a_server_of_another_kind_or_age_is_refused_by_name(version: str, name: str) -> None:
    with MariadbServer(settings={"version": version}) as server:
        (finding,) = found(server, "d.*")
    assert (finding.name, finding.severity) == (name, Severity.ERROR)
    assert version in finding.description


def test_a_server_that_names_no_version_is_refused_by_name() -> None:
    finding = MYSQL_ITSELF.refusal("somebody")
    assert finding is not None
    assert finding.name == "server-unknown"
