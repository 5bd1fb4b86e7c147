"""Debian's PostgreSQL 15 over TCP: SCRAM, TLS, a role with REPLICATION and SELECT only, and ICU collations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.errors import SourceUnavailable
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.testing.postgres import DebianPostgres
from tests.requirements import req
from tests.sources.postgres.support import opened

pytestmark = [pytest.mark.postgres, pytest.mark.debian_postgres]

T = TableId("public", "t")


@pytest.fixture
def shop(debian_server: DebianPostgres) -> Iterator[str]:
    yield debian_server.create_database("shop")
    debian_server.drop_database("shop")


DOCUMENT = Path(__file__).parents[3] / "docs" / "postgres.md"


def documented(label: str) -> list[str]:
    """Return the statements of the SQL block that the document calls tested."""
    text = DOCUMENT.read_text().partition(f"<!-- tested: {label} -->")[2]
    block = text.partition("```sql")[2].partition("```")[0]
    return [statement for statement in block.split(";") if statement.strip()]


@pytest.mark.parametrize("watermark", ["message", "table"])
def test_the_documented_set_up_serves_a_role_that_may_only_read(
    debian_server: DebianPostgres, shop: str, tmp_path: Path, watermark: str
) -> None:
    admin = psycopg.connect(shop, autocommit=True)
    admin.execute("CREATE TABLE customers (id int PRIMARY KEY, v text)")
    admin.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    statements = documented("setup")
    if watermark == "table":
        statements += documented("watermark table")
    for statement in statements:
        admin.execute(statement.encode())
    url = debian_server.url("shop", "headrace_reader", "choose-one")
    arguments = {"slot": "headrace_slot", "publication": "headrace_pub", "watermark": watermark}
    assert PostgresSource(url, ("public.*",), **arguments).preflight() == []  # type: ignore[arg-type]
    with opened(url, tmp_path, **arguments) as log:
        admin.execute("INSERT INTO customers VALUES (1, 'a')")
        assert log.collect().changes("customers") == [("+I", 1, "a")]
        reader = log.source.chunks()
        chunk = reader.read(TableId("public", "customers"), None, ("9",), 10)
        assert chunk.rows.to_pylist() == [{"id": 1, "v": "a"}]
        assert log.reader._session.pgconn.ssl_in_use
        reader.close()
    log.source.drop()
    slots = admin.execute("SELECT slot_name FROM pg_replication_slots").fetchall()
    assert slots == [("headrace_slot",)]
    admin.execute("DROP OWNED BY headrace_reader")
    admin.execute("DROP ROLE headrace_reader")
    admin.close()


def test_a_wrong_password_is_refused_and_never_shown(debian_server: DebianPostgres) -> None:
    source = PostgresSource(debian_server.url(password="wr0ng-secret"))
    with pytest.raises(SourceUnavailable, match="password authentication failed") as caught:
        source.preflight()
    assert "wr0ng" not in f"{caught.value!r}{caught.value}{caught.value.__cause__!r}{source!r}"


def test_a_connection_without_tls_is_refused_by_the_server(debian_server: DebianPostgres) -> None:
    url = debian_server.url().partition("?")[0] + "?sslmode=disable"
    with pytest.raises(SourceUnavailable, match=r"pg_hba\.conf"):
        PostgresSource(url).preflight()


@req("T3")
def test_the_order_of_a_collation_is_the_databases_own(shop: str) -> None:
    """In this collation a < B < c, by bytes B comes first; and 'é' sorts beside 'e'."""
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute('CREATE TABLE t (k text COLLATE "en-x-icu" PRIMARY KEY)')
        connection.execute("INSERT INTO t SELECT unnest('{a,B,c,D,e,é,f}'::text[])")
    reader = PostgresSource(shop).chunks()
    until = reader.upper_bound(T).key
    assert until == ("f",)
    seen: list[str] = []
    after: tuple[str, ...] | None = None
    while True:
        chunk = reader.read(T, after, until, 2)
        if not chunk.rows.num_rows:
            break
        seen += chunk.rows.column("k").to_pylist()
        after = chunk.last_key
    assert seen == ["a", "B", "c", "D", "e", "é", "f"]
    reader.close()


@req("T1")
def test_keys_that_the_database_calls_equal_walk_once(shop: str) -> None:
    """A collation that ignores case: 'A' and 'a' are one key to the database, not to bytes."""
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute(
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        connection.execute("CREATE TABLE t (k text COLLATE ci PRIMARY KEY, v int)")
        connection.execute("INSERT INTO t VALUES ('Alpha', 1), ('beta', 2)")
    reader = PostgresSource(shop).chunks()
    found = reader.read_keys(T, [("ALPHA",), ("alpha",)])
    assert found.rows.to_pylist() == [{"k": "Alpha", "v": 1}]
    assert reader.read(T, ("ALPHA",), ("BETA",), 9).rows.column("k").to_pylist() == ["beta"]
    reader.close()
