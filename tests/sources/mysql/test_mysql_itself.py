"""A real MySQL server, which is no source yet: it runs, we log in, and preflight refuses it by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.errors import SourceError
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.preflight import Preflight
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.snapshot import consistent_snapshot
from headrace.testing.mysql_server import MysqlServer

pytestmark = pytest.mark.mysql


@pytest.fixture(scope="module")
def server() -> Iterator[MysqlServer]:
    with MysqlServer() as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY)")
        yield server


@pytest.mark.parametrize("tls", ["disabled", "required"])
def test_preflight_refuses_it_by_name_and_says_nothing_else(server: MysqlServer, tls: str) -> None:
    settings = MysqlSettings(f"{server.url()}?tls={tls}", tables=("shop.*",))
    with connect(settings) as session:
        (finding,) = Preflight(session, settings).run()
        version = session.value("SELECT VERSION()")
    assert finding.name == "server-unknown"
    assert version in finding.description


def test_no_chunk_is_read_from_a_snapshot_whose_place_is_not_known(server: MysqlServer) -> None:
    # Its snapshots tell no place in the log: rows without one must not be taken for rows with one.
    with (
        connect(MysqlSettings(server.url())) as session,
        pytest.raises(SourceError),
        consistent_snapshot(session),
    ):
        pytest.fail("a snapshot without a place was given out")


def test_a_server_that_was_killed_comes_back_with_its_rows(server: MysqlServer) -> None:
    server.execute("INSERT INTO shop.t VALUES (1)")
    server.kill()
    server.start()
    assert server.query("SELECT id FROM shop.t") == ((1,),)
