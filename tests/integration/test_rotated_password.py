"""A source's password is changed while a capture runs: a new secret is taken, and who has none is told what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import SourceUnavailable
from headrace.observe.status import ProcessState, ProcessStatus
from headrace.replicator.paths import StatePaths
from headrace.replicator.secret_references import FOLDER_VARIABLE
from headrace.replicator.worker import EXIT_RETRY, EXIT_STOP
from headrace.sources.postgres.connection import connect
from headrace.sources.postgres.settings import PostgresSettings
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.testing.postgres import DebianPostgres
from tests.fixtures_binlog import mariadb_server
from tests.integration.running import carried_out_in
from tests.waiting import until

__all__ = ["mariadb_server"]

ROLE = "rotated"
TOLD = "one of the environment when headrace is started again with it"


class Shop:
    """A capture process whose source's password stands behind a reference.

    Args:
        folder: for everything.
        source: its section, as YAML.
        reference: in the place of the password.
        execute: runs statements at the source as somebody else.
    """

    def __init__(
        self, folder: Path, source: str, reference: str, execute: Callable[..., None]
    ) -> None:
        self.execute, self.secret = execute, folder / "secrets" / "shop"
        self.secret.parent.mkdir()
        self.environment = {**os.environ, FOLDER_VARIABLE: str(self.secret.parent)}
        self.put("swordfish-1")
        self.file, self.log = folder / "shop.yaml", folder / "shop.log"
        self.file.write_text(
            f"name: shop\nsource: {source.replace('SECRET', reference)}\n"
            "target: {type: delta, path: ./lake}\n"
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.paths = StatePaths(folder / ".headrace" / "shop")

    def put(self, password: str) -> None:
        self.secret.write_text(password)
        self.environment["SHOP"] = password

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace.replicator.capture_process", str(self.file)],
                stdout=log,
                stderr=log,
                env=self.environment,
            )

    def said(self) -> ProcessStatus | None:
        return ProcessStatus.read(self.paths.status("capture"))

    def dumped(self) -> bool:
        return carried_out_in(self.paths.database)

    def waits(self) -> bool:
        said = self.said()
        return said is not None and said.detail.get("doing") == "waiting for source"

    def waits_for(self) -> str:
        said = self.said()
        return str(said.detail.get("waits_for", "")) if said is not None else ""

    def reads(self) -> bool:
        log = ChangeLogReader(self.paths.changelog)
        before = log.tail().complete_scn
        self.execute("INSERT INTO t SELECT max(id) + 1 FROM t")
        until(lambda: log.tail().complete_scn > before, self.log.read_text())
        return True

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def ended(self) -> int:
        assert self.process is not None
        return self.process.wait(30)


def begun_again(shop: Shop) -> None:
    """Start it as its supervisor does, once it has ended with an error that time heals."""
    assert shop.ended() == EXIT_RETRY, shop.log.read_text()
    said = shop.said()
    assert said is not None
    assert said.state is ProcessState.FAILED
    assert said.error is not None
    assert said.error["name"] == "SourceUnavailable"
    shop.start()
    assert shop.reads()
    assert "swordfish" not in shop.log.read_text()


@pytest.fixture
def postgres(debian_server: DebianPostgres) -> Iterator[tuple[str, Callable[..., None]]]:
    """Give the section of a source, and what runs statements there."""
    debian_server.create_database(ROLE)

    def execute(*statements: str) -> None:
        debian_server.execute(*statements, database=ROLE)

    execute(
        f"CREATE ROLE {ROLE} SUPERUSER LOGIN PASSWORD 'swordfish-1'",
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
    )
    url = debian_server.url(ROLE, ROLE, "SECRET")
    yield f"{{type: postgres, url: '{url}', tables: ['public.*']}}", execute
    debian_server.drop_database(ROLE)
    debian_server.execute(f"DROP ROLE {ROLE}")


@pytest.fixture
def mariadb(mariadb_server: MysqlProtocolServer) -> Iterator[tuple[str, Callable[..., None]]]:
    """Give the same of another server."""
    mariadb_server.execute(
        f"CREATE DATABASE {ROLE}",
        f"CREATE USER {ROLE}@'%' IDENTIFIED BY 'swordfish-1'",
        f"GRANT ALL PRIVILEGES ON *.* TO {ROLE}@'%'",
        f"CREATE TABLE {ROLE}.t (id int PRIMARY KEY)",
        f"INSERT INTO {ROLE}.t VALUES (1)",
    )
    url = f"mysql://{ROLE}:SECRET@127.0.0.1:{mariadb_server.port}/"
    section = f"{{type: mysql, url: '{url}', tables: ['{ROLE}.*']}}"
    yield section, partial(mariadb_server.execute, database=ROLE)
    mariadb_server.execute(f"DROP USER {ROLE}@'%'", f"DROP DATABASE {ROLE}")


def rotate(shop: Shop) -> None:
    shop.execute(
        f"ALTER ROLE {ROLE} PASSWORD 'swordfish-2'",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'",
    )


@pytest.mark.postgres
def test_a_new_secret_in_its_file_is_taken_by_itself(
    postgres: tuple[str, Callable[..., None]], tmp_path: Path
) -> None:
    section, execute = postgres
    with closing(Shop(tmp_path, section, "${urlfile:shop}", execute)) as shop:
        shop.start()
        until(shop.dumped, "the first copy")
        rotate(shop)
        until(shop.waits, "it waits for the source")
        assert shop.process is not None
        assert shop.process.poll() is None
        shop.put("swordfish-2")
        begun_again(shop)


@pytest.mark.mariadb
def test_a_new_secret_is_taken_where_a_refused_login_ends_a_capture(
    mariadb: tuple[str, Callable[..., None]], tmp_path: Path
) -> None:
    section, execute = mariadb
    with closing(Shop(tmp_path, section, "${urlfile:shop}", execute)) as shop:
        shop.start()
        until(shop.dumped, "the first copy")
        shop.put("swordfish-2")
        execute(f"ALTER USER {ROLE}@'%' IDENTIFIED BY 'swordfish-2'", f"KILL USER {ROLE}")
        begun_again(shop)
        execute(f"ALTER USER {ROLE}@'%' IDENTIFIED BY 'swordfish-3'", f"KILL USER {ROLE}")
        assert shop.ended() == EXIT_STOP
        said = shop.said()
        assert said is not None
        assert said.error is not None
        assert TOLD in said.error["next_step"]


@pytest.mark.postgres
def test_who_has_no_new_secret_is_told_where_it_is_looked_for(
    postgres: tuple[str, Callable[..., None]], tmp_path: Path
) -> None:
    section, execute = postgres
    with closing(Shop(tmp_path, section, "${env:SHOP}", execute)) as shop:
        shop.start()
        until(shop.dumped, "the first copy")
        rotate(shop)
        # First it may say that the connection was ended, and only then that another is refused.
        until(lambda: TOLD in shop.waits_for(), "it says where the secret is looked for")
        said = shop.said()
        assert said is not None
        assert "swordfish" not in json.dumps(said.detail)


def test_a_server_that_is_away_says_nothing_of_passwords() -> None:
    with pytest.raises(SourceUnavailable) as refused:
        connect(PostgresSettings(url="postgresql://u:secret@127.0.0.1:1/d"))
    assert "environment" not in refused.value.next_step
