"""An embedded server for all end-to-end tests of a module, a database and folder for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headrace.testing.mariadb_server import MariadbServer
from headrace.testing.mysql_server import MysqlServer
from headrace.testing.postgres import EmbeddedPostgres
from tests.e2e.pipeline import Pipeline


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as running:
        yield running


@pytest.fixture
def url(server: EmbeddedPostgres, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"e2e_{abs(hash(request.node.nodeid)):x}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariadbServer]:
    with MariadbServer() as running:
        yield running


@pytest.fixture(scope="module")
def mysql() -> Iterator[MysqlServer]:
    with MysqlServer() as running:
        yield running


@pytest.fixture
def shop_url(kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Give a place for a shop on the kind of server that a test is for."""
    if kind == "postgres":
        yield request.getfixturevalue("url")
        return
    server = request.getfixturevalue(kind)
    yield server.url()
    server.execute(*(f"DROP DATABASE IF EXISTS {name}" for name in ("shop", "away", "headrace")))


@pytest.fixture
def tables() -> Sequence[str]:
    """Return what the pipeline captures; a test may name something else."""
    return ("shop.*",)


@pytest.fixture
def target() -> str:
    """Return the section ``target``; a test may have another one."""
    return "{type: delta, path: ./lake}"


@pytest.fixture
def warehouse_url(server: EmbeddedPostgres, url: str) -> Iterator[str]:
    """Give an empty database on the same server."""
    name = f"w{url.rpartition('/')[2].partition('?')[0]}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def shop(tmp_path: Path, shop_url: str, tables: Sequence[str], target: str) -> Iterator[Pipeline]:
    """Give a pipeline of the shop on either kind of server."""
    made = Pipeline(tmp_path, shop_url, tables, target=target)
    yield made
    made.close()


@pytest.fixture
def pipeline(tmp_path: Path, url: str, tables: Sequence[str], target: str) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, url, tables, target=target)
    yield made
    made.close()
