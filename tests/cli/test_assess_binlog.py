"""``headrace assess`` of a real MariaDB and a real MySQL: what stands in the way, and what becomes of each column."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.cli.test_assess import call
from tests.fixtures_binlog import Sql, database, mariadb_server, mysql_server, server, sql
from tests.requirements import req

__all__ = ["database", "mariadb_server", "mysql_server", "server", "sql"]

CREATED = {
    "MariaDB": (
        "CREATE TABLE versioned (id int PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE TABLE packed (id int PRIMARY KEY, v text COMPRESSED)",
    ),
    "MySQL": ("CREATE TABLE packed (id int PRIMARY KEY, v text CHARACTER SET sjis)",),
}
MENDED = {
    "MariaDB": (
        "ALTER TABLE versioned DROP SYSTEM VERSIONING",
        "ALTER TABLE packed MODIFY v text",
    ),
    # It cannot say what a read of a table without a key has seen.
    "MySQL": (
        "ALTER TABLE keyless ADD PRIMARY KEY (v)",
        "ALTER TABLE packed MODIFY v text CHARACTER SET utf8mb4",
    ),
}
FOUND = {
    "MariaDB": (("keyless", "keyless"), ("system-versioned", "versioned")),
    "MySQL": (("keyless-refused", "keyless"),),
}


@pytest.fixture
def file(server: MysqlProtocolServer, database: str, sql: Sql, tmp_path: Path) -> Path:
    sql(
        "CREATE TABLE orders (id int PRIMARY KEY, due time(3), total decimal(65,30), shape point, doc json)",
        "INSERT INTO orders (id) SELECT seq FROM seq_1_to_1000",
        "ANALYZE TABLE orders",
    )
    path = tmp_path / "shop.json"
    source = {"type": "mysql", "url": server.url(), "tables": [f"{database}.*"]}
    target = {"type": "delta", "path": "lake"}
    path.write_text(json.dumps({"name": "shop", "source": source, "target": target}))
    return path


def assessed(file: Path) -> dict[str, str]:
    """Return the problems by name, with their tables."""
    said = json.loads(call("assess", str(file), "--json", "--sample-seconds", "0").stdout)
    return {problem["name"]: problem["description"] for problem in said["features"]}


@req("C22", "C96", "C49", "P17")
def test_what_stands_in_the_way_is_found_by_name_and_mended_by_what_is_suggested(
    file: Path, server: MysqlProtocolServer, sql: Sql, database: str
) -> None:
    good = call("assess", str(file), "--sample-seconds", "0.1")
    assert good.exit_code == 0, good.output
    words = " ".join(good.stdout.split())
    assert f"{database}.orders 5" in words
    assert "bytes of log an hour" in words
    sql(
        "CREATE TABLE keyless (v int)",
        "CREATE TABLE old (id int PRIMARY KEY) ENGINE = MyISAM",
        *CREATED[server.kind],
    )
    server.execute("SET GLOBAL binlog_row_image = MINIMAL")
    try:
        bad = call("assess", str(file), "--sample-seconds", "0")
        found = assessed(file)
    finally:
        server.execute("SET GLOBAL binlog_row_image = FULL")
    assert bad.exit_code == 1
    for name, table in (*FOUND[server.kind], ("engine", "old"), ("binlog-row-image", "")):
        assert table in found[name], found
    assert "SET GLOBAL binlog_row_image" in " ".join(bad.stdout.split())
    shown = json.loads(call("assess", str(file), "--table", f"{database}.packed", "--json").stdout)
    assert [column["support"] for column in shown["columns"]] == ["YES", "NO"]
    # As it suggests; and what is no use as it is goes.
    sql("ALTER TABLE old ENGINE = InnoDB", *MENDED[server.kind])
    mended = call("assess", str(file), "--sample-seconds", "0")
    assert mended.exit_code == 0, mended.output
    assert set(assessed(file)) <= {"keyless", "statistics-missing", "no-watermark-row"}


@req("C97", "C94", "C95")
def test_one_table_column_by_column(file: Path, database: str) -> None:
    said = json.loads(call("assess", str(file), "--table", f"{database}.orders", "--json").stdout)
    support = {column["sourceName"]: column["support"] for column in said["columns"]}
    assert support["id"] == "YES"
    assert support["due"] == support["total"] == "PARTIAL"
    described = json.loads(call("tables", str(file), "--table", "orders", "--json").stdout)
    assert described["primaryKey"] == ["id"]
