"""Each kind of problem has a set-up that makes it, and assessment catches it; every kind of the catalogue is here."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.replicator.assess import reach
from headrace.replicator.assess.kinds import CATALOGUE, Group
from headrace.replicator.assess.problems import Problem, from_finding
from headrace.sources.base import Finding, Severity
from headrace.sources.postgres import PostgresSource, preflight
from headrace.sources.postgres.connection import connect
from headrace.store import ObjectPath
from headrace.testing.fault_proxy import Fault, FaultProxy
from headrace.testing.object_store import ObjectServer
from headrace.testing.postgres import DebianPostgres, EmbeddedPostgres
from headrace.testing.postgres_server import PostgresServer
from tests.fixtures_postgres import Sql, as_role, emitters, name_of
from tests.replicator.assess.assessed import Doc, assessed, document, problems
from tests.replicator.assess.cases import CASES, Case, T
from tests.replicator.seed.cases import CASES as SEED_CASES
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

DEADLINE_S = 30.0
MARIADB = Path(__file__).parents[2] / "sources" / "mysql" / "test_preflight.py"
TRIGGERS = Path(__file__).parents[2] / "sources" / "trigger" / "test_mysql.py"
QUEUES = Path(__file__).parents[2] / "sources" / "trigger" / "test_queues.py"
MADE: set[str] = set()
"""Kinds that a test below makes by more than SQL and a configuration."""


def makes(*kinds: str) -> Callable[[Any], Any]:
    """Mark a test as the set-up of some kinds."""
    MADE.update(kinds)
    return lambda test: test


@req("F13", "C22", "C96")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.since(case.since) if case.since else (), id=case.kind)
        for case in CASES
    ],
)
def test_each_set_up_is_caught(
    case: Case, database: str, sql: Sql, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = as_role(database, request.getfixturevalue("role")) if case.role else database
    sql(*case.sql)
    try:
        found = problems(document(url, tmp_path, **case.doc), tmp_path)
    finally:
        sql(*case.undo)
    assert case.kind in found
    first = found[case.kind][0]
    assert (first.severity.value, first.table, first.column) == (
        case.severity,
        case.table,
        case.column,
    )
    assert case.says in f"{first.description} {first.suggestion}"


@req("F13")
def test_every_kind_has_a_set_up() -> None:
    # Those of MariaDB are made against a real one by these tests.
    texts = MARIADB.read_text() + TRIGGERS.read_text() + QUEUES.read_text()
    mariadb = set(re.findall(r'["=]([a-z0-9-]+)"', texts)) & set(CATALOGUE)
    made = MADE | mariadb | {case.kind for case in (*CASES, *SEED_CASES)}
    assert made == set(CATALOGUE)


def test_every_finding_of_preflight_has_a_kind_and_its_impact() -> None:
    root = Path(preflight.__file__).parents[1]
    names: list[str] = []
    for module in (
        "postgres/preflight.py",
        "postgres/tables_check.py",
        "postgres/plan.py",
        "mysql/preflight.py",
        "trigger/postgres/preflight.py",
        "trigger/mysql/preflight.py",
        "trigger/queues.py",
        "files/source.py",
    ):
        code = (root / module).read_text()
        names += re.findall(r'(?:_add|Finding)\(\s*"([a-z-]+)"', code)
        names += re.findall(r'return "([a-z-]+)", ', code)
    assert len(names) > 40
    assert [name for name in names if name not in CATALOGUE] == []
    for name in names:
        problem = from_finding(Finding(name, "It is so.", "Do this.", Severity.WARNING, "a.b"))
        assert problem.to_json() == {
            "name": name,
            "description": "It is so.",
            "suggestion": "Do this.",
            "impact": CATALOGUE[name].impact,
            "severity": "WARNING",
            "table": "a.b",
            "column": "",
            "field": "",
        }


def test_a_kind_that_nobody_knows_is_no_problem() -> None:
    with pytest.raises(ValueError, match="no kind"):
        Problem("made-up", "It is so.", "Do this.")


def test_a_good_configuration_has_no_problems(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(T, "INSERT INTO t VALUES (1, 'x')", "ANALYZE t")
    assert problems(document(database, tmp_path), tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


@makes("server-too-old", "server-unknown-version")
@pytest.mark.parametrize(
    ("limit", "value", "kind"),
    [
        ("OLDEST_VERSION", 99, "server-too-old"),
        ("NEWEST_VERSION", 9, "server-unknown-version"),
    ],
)
def test_a_server_of_another_version(
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
    kind: str,
) -> None:
    monkeypatch.setattr(preflight, limit, value)
    assert kind in problems(document(database, tmp_path), tmp_path)


@makes("wal-level", "no-free-slot", "no-free-wal-sender")
def test_a_server_that_is_not_ready(tmp_path: Path) -> None:
    settings = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1"}
    with EmbeddedPostgres(settings=settings) as server:
        server.execute(T, "SELECT pg_create_physical_replication_slot('taken')")
        with connect(PostgresSource(server.url()).settings, replication=True):
            found = problems(document(server.url(), tmp_path), tmp_path)
    assert {"wal-level", "no-free-slot", "no-free-wal-sender"} <= set(found)


@makes("standby")
def test_a_standby(tmp_path: Path) -> None:
    with EmbeddedPostgres() as server:
        server.execute(T)
        server.stop()
        (server.data / "standby.signal").touch()
        server.start()
        found = assessed(document(server.url(), tmp_path), tmp_path)
    assert "standby" in {problem.name for problem in found.errors}


@makes("encoding-unknown", "slot-wrong-database")
def test_another_database(postgres_server: PostgresServer, tmp_path: Path) -> None:
    postgres_server.execute(
        "CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'",
        "SELECT pg_create_logical_replication_slot('elsewhere', 'pgoutput')",
    )
    try:
        doc = document(postgres_server.url("ascii"), tmp_path, source={"slot": "elsewhere"})
        assert {"encoding-unknown", "slot-wrong-database"} <= set(problems(doc, tmp_path))
    finally:
        postgres_server.execute("SELECT pg_drop_replication_slot('elsewhere')")
        postgres_server.drop_database("ascii")


@makes("slot-active")
def test_a_slot_that_somebody_reads(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(T)
    source = PostgresSource(database, name="shop")
    source.prepare()
    with connect(source.settings, replication=True) as session:
        session.run(
            f"START_REPLICATION SLOT {source.settings.slot_name} LOGICAL 0/0 "
            f"(proto_version '1', publication_names '{source.settings.publication_name}')"
        )
        doc = document(database, tmp_path)
        until(lambda: "slot-active" in problems(doc, tmp_path), "the slot is read", DEADLINE_S)


@makes("slot-lost")
def test_a_slot_whose_log_is_gone(tmp_path: Path) -> None:
    settings = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with EmbeddedPostgres(settings=settings) as server:
        server.execute(T, "SELECT pg_create_logical_replication_slot('old', 'pgoutput')")

        def lost() -> bool:
            server.execute(
                "SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000)) "
                "FROM generate_series(1, 20)",
                "SELECT pg_switch_wal()",
                "CHECKPOINT",
            )
            doc = document(server.url(), tmp_path, source={"slot": "old"})
            return "slot-lost" in problems(doc, tmp_path)

        until(lost, "the slot is invalidated", DEADLINE_S)


@makes("failover-unsupported")
def test_a_server_without_slots_on_standbys(older_server: EmbeddedPostgres, tmp_path: Path) -> None:
    doc = document(older_server.url(), tmp_path, source={"failover": True})
    assert "failover-unsupported" in problems(doc, tmp_path)


@makes("may-not-emit-messages")
def test_a_role_without_messages(database: str, sql: Sql, role: str, tmp_path: Path) -> None:
    sql(T, *(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC" for name in emitters(database)))
    doc = document(as_role(database, role), tmp_path)
    assert "may-not-emit-messages" in problems(doc, tmp_path)


@makes("no-range-scan")
def test_a_table_whose_chunks_would_be_sorted(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(T, "INSERT INTO t SELECT generate_series(1, 150000)", "ANALYZE t")
    for kind in ("indexscan", "indexonlyscan", "bitmapscan"):
        sql(f"ALTER DATABASE {name_of(database)} SET enable_{kind} = off")
    (found,) = problems(document(database, tmp_path), tmp_path)["no-range-scan"]
    assert found.table == "public.t"


NOWHERE = "postgresql://user:swordfish@127.0.0.1:1/db?connect_timeout=2"


@req("C-19", "C96")
@makes(
    "source-unreachable", "source-host-unknown", "source-database-unknown", "source-login-refused"
)
@pytest.mark.parametrize(
    ("change", "kind", "field"),
    [
        (lambda _: NOWHERE, "source-unreachable", "host, port"),
        (lambda _: "postgresql://user@no-such-host.invalid/db", "source-host-unknown", "host"),
        (lambda url: url.replace("/test_", "/nowhere_"), "source-database-unknown", "database"),
        (lambda url: as_role(url, "nobody"), "source-login-refused", "user"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_source_that_is_not_reached_is_named_beside_its_field(
    database: str, tmp_path: Path, change: Callable[[str], str], kind: str, field: str
) -> None:
    found = problems(document(change(database), tmp_path), tmp_path)
    (problem,) = found[kind]
    assert problem.field == f"source.url ({field})"
    assert problem.kind.group is Group.CONNECTIVITY
    assert "swordfish" not in str(found)


@req("C-19")
@makes("source-certificate-refused")
@pytest.mark.debian_postgres
def test_a_password_and_a_certificate_that_do_not_fit(
    debian_server: DebianPostgres, tmp_path: Path
) -> None:
    wrong = document(debian_server.url(password="swordfish"), tmp_path)
    (problem,) = problems(wrong, tmp_path)["source-login-refused"]
    assert problem.field == "source.url (user, password)"
    assert "swordfish" not in str(problem)
    other = tmp_path / "other.crt"
    other.write_text(debian_server.certificate.read_text().replace("\nMII", "\nMIA"))
    for certificate in (tmp_path / "none.crt", other):
        url = debian_server.url().replace(
            str(debian_server.certificate).replace("/", "%2F"), str(certificate)
        )
        (problem,) = problems(document(url, tmp_path), tmp_path)["source-certificate-refused"]
        assert problem.field == "source.url (sslmode, sslrootcert)"


@makes("source-failed")
def test_a_source_that_refuses_a_question(
    database: str, sql: Sql, role: str, tmp_path: Path
) -> None:
    sql(T, "REVOKE SELECT ON pg_catalog.pg_publication FROM PUBLIC")
    (found,) = problems(document(as_role(database, role), tmp_path), tmp_path)["source-failed"]
    assert "42501" in found.description


@makes("feed-unreadable")
def test_a_feed_that_is_not_there(tmp_path: Path) -> None:
    doc = document("", tmp_path)
    doc["source"] = {"type": "files", "path": str(tmp_path / "feed"), "tables": ["shop.*"]}
    found = problems(doc, tmp_path)
    assert "tables.json" in str(found)


@makes("no-relay")
def test_relays_of_which_none_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.replicator import runner

    monkeypatch.setattr(runner, "_PATIENCE_S", 0.2)
    doc = document("", tmp_path)
    doc["source"] = {"type": "relay", "urls": ["http://127.0.0.1:1"]}
    assert set(problems(doc, tmp_path)) == {"no-relay"}


# -- targets ------------------------------------------------------------------------------------


_numbers = itertools.count(1)


@pytest.fixture
def warehouse(postgres_server: PostgresServer) -> Iterator[str]:
    name = f"warehouse_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


def into(url: str, database: str, folder: Path) -> Doc:
    return document(database, folder, target={"type": "postgres", "url": url})


@req("C-19")
@makes(
    "target-unreachable", "target-host-unknown", "target-database-unknown", "target-login-refused"
)
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda _: NOWHERE, "target-unreachable"),
        (lambda _: "postgresql://user@no-such-host.invalid/db", "target-host-unknown"),
        (lambda url: url.replace("/warehouse_", "/nowhere_"), "target-database-unknown"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_warehouse_that_is_not_reached(
    database: str, warehouse: str, tmp_path: Path, change: Callable[[str], str], kind: str
) -> None:
    (found,) = problems(into(change(warehouse), database, tmp_path), tmp_path)[kind]
    assert found.field.startswith("target.url (")
    assert "swordfish" not in str(found)


@makes("target-certificate-refused")
@pytest.mark.debian_postgres
def test_a_warehouse_that_does_not_let_us_in(
    database: str, debian_server: DebianPostgres, tmp_path: Path
) -> None:
    wrong = into(debian_server.url(password="swordfish"), database, tmp_path)
    assert "target-login-refused" in problems(wrong, tmp_path)
    url = re.sub("sslrootcert=.*", f"sslrootcert={tmp_path}/none.crt", debian_server.url())
    assert "target-certificate-refused" in problems(into(url, database, tmp_path), tmp_path)


@makes("target-may-not-create", "target-server-too-old", "target-table-taken")
def test_what_a_warehouse_lacks(
    database: str,
    sql: Sql,
    warehouse: str,
    role: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sql(T)
    with psycopg.connect(warehouse, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.t (mine int)")
    monkeypatch.setattr(reach, "OLDEST_TARGET", 99)
    found = problems(into(as_role(warehouse, role), database, tmp_path), tmp_path)
    (right,) = found["target-may-not-create"]
    assert right.suggestion == f'GRANT CREATE ON DATABASE "{name_of(warehouse)}" TO "plain";'
    assert "target-server-too-old" in found
    monkeypatch.undo()
    (taken,) = problems(into(warehouse, database, tmp_path), tmp_path)["target-table-taken"]
    assert taken.table == "public.t"
    beside = into(warehouse, database, tmp_path)
    beside["target"]["schema_prefix"] = "copy_"
    assert "target-table-taken" not in problems(beside, tmp_path)


@makes("target-not-writable", "target-failed")
def test_a_folder_and_a_file_that_are_none(database: str, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder, and no database either" * 200)
    for kind in ("delta", "parquet"):
        doc = document(database, tmp_path, target={"type": kind, "path": str(blocked / "lake")})
        (found,) = problems(doc, tmp_path)["target-not-writable"]
        assert str(blocked) in found.description
    doc["target"] = {"type": "duckdb", "path": str(blocked / "shop.duckdb")}
    assert "target-not-writable" in problems(doc, tmp_path)
    doc["target"] = {"type": "duckdb", "path": str(blocked)}
    assert "target-failed" in problems(doc, tmp_path)


@makes("state-not-writable")
def test_a_state_folder_that_is_none(database: str, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    doc = document(database, tmp_path, state={"dir": str(blocked / "state")})
    (found,) = problems(doc, tmp_path)["state-not-writable"]
    assert str(blocked) in found.description
    assert found.field == "state.dir"


@makes("target-package-missing")
def test_a_package_that_is_not_installed(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "headrace.lake.sql.duckdb_file", raising=False)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    doc = document(database, tmp_path, target={"type": "duckdb", "path": "shop.duckdb"})
    (found,) = problems(doc, tmp_path)["target-package-missing"]
    assert "headrace[duckdb]" in found.suggestion


@makes("store-refused", "store-unavailable", "store-unfit")
@pytest.mark.object_store
@pytest.mark.parametrize(
    ("fault", "path", "kind"),
    [
        (None, "s3://nowhere/x", "store-refused"),
        (Fault.LOST_REQUEST, "", "store-unavailable"),
        (Fault.NO_CONDITION, "", "store-unfit"),
    ],
)
def test_an_object_store_that_does_not_do(
    database: str,
    tmp_path: Path,
    proxy: FaultProxy,
    prefix: ObjectPath,
    object_server: ObjectServer,
    fault: Fault | None,
    path: str,
    kind: str,
) -> None:
    if fault is not None:
        proxy.rule = lambda _: fault
    bucket = object_server.bucket(proxy.endpoint)
    store = {
        "endpoint": proxy.endpoint,
        "region": bucket.region,
        "access_key_id": bucket.access_key_id,
        "secret_access_key": bucket.secret_access_key,
        "timeout_s": 2,
    }
    target = {"type": "delta", "path": path or str(prefix), "store": store}
    found = problems(document(database, tmp_path, target=target), tmp_path)
    assert found[kind][0].kind.group is Group.CONNECTIVITY
    assert str(bucket.secret_access_key) not in str(found)


@makes("configuration", "secret-unresolved", "macro-unresolved")
@req("C-19")
def test_a_configuration_that_does_not_read_is_told_whole(tmp_path: Path) -> None:
    doc = document("postgresql://user:${env:HEADRACE_NOT_SET}@host/db", tmp_path)
    doc["target"]["path"] = "${folder}/lake"
    doc["dump"] = {"load": 7}
    found = problems(doc, tmp_path)
    assert {name: problem.field for name, (problem,) in found.items()} == {
        "secret-unresolved": "source.url",
        "macro-unresolved": "target.path",
        "configuration": "dump.load",
    }
    (unset,) = found["secret-unresolved"]
    assert "HEADRACE_NOT_SET" in unset.description
