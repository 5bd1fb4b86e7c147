"""A real MySQL server of its own: what MariaDB has nothing like."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.preflight import Preflight
from headrace.sources.mysql.settings import MysqlSettings
from headrace.testing.mysql_server import MysqlServer

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
