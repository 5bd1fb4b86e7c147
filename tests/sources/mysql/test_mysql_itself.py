"""A real MySQL server of its own: what MariaDB has nothing like."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.preflight import Preflight
from headrace.sources.mysql.settings import MysqlSettings
from headrace.testing.mysql_server import MysqlServer
from tests.sources.mysql.test_stream import Log

pytestmark = pytest.mark.mysql


@pytest.fixture(scope="module")
def server() -> Iterator[MysqlServer]:
    with MysqlServer() as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY)")
        yield server


@pytest.mark.parametrize("tls", ["disabled", "required"])
def test_preflight_finds_nothing_whether_encrypted_or_not(server: MysqlServer, tls: str) -> None:
    settings = MysqlSettings(f"{server.url()}?tls={tls}", tables=("shop.*",))
    with connect(settings) as session:
        assert {finding.name for finding in Preflight(session, settings).run()} == {
            "no-watermark-row"
        }


def test_a_server_that_was_killed_comes_back_with_its_rows(server: MysqlServer) -> None:
    server.execute("INSERT INTO shop.t VALUES (1)")
    server.kill()
    server.start()
    assert server.query("SELECT id FROM shop.t") == ((1,),)


def test_a_key_that_the_server_made_and_hides_is_the_key_that_its_log_has(
    server: MysqlServer, tmp_path: Path
) -> None:
    server.execute(
        "CREATE DATABASE hidden",
        "SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF",
        "SET SESSION sql_generate_invisible_primary_key = ON",
        "CREATE TABLE hidden.t (v int)",
    )
    log = Log(server, "hidden", tmp_path)
    try:
        server.execute("INSERT INTO hidden.t VALUES (7)")
        assert log.changes(1) == [("+I", 1, 7)]
        (table,) = log.source.tables()
        assert table.key == ("my_row_id",)
        with contextlib.closing(log.source.chunks()) as reader:
            chunk = reader.read(table.table, None, ("9",), 9)
        assert chunk.schema == log.schemas.get(table.schema_id)
        assert chunk.rows.to_pylist() == [{"my_row_id": 1, "v": 7}]
    finally:
        log.close()
