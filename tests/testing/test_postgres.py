"""The servers that tests and demo run: theirs alone, restartable, gone afterwards."""

from __future__ import annotations

import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.errors import SourceUnavailable
from headrace.testing import postgres
from headrace.testing.postgres import DebianPostgres, EmbeddedPostgres, embedded_versions

pytestmark = pytest.mark.postgres


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that the unprivileged user gets to whom the server runs as; pytest closes its own to others."""
    with tempfile.TemporaryDirectory(prefix="headrace-given-") as given:
        Path(given).chmod(0o755)
        yield Path(given) / "server"


def test_a_given_folder_keeps_its_data_over_stop_and_kill(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        server.execute("CREATE TABLE kept (id int)")
        server.kill()
        server.start()
        server.execute("INSERT INTO kept VALUES (1)")
        server.restart()
        version, url = server.version, server.url()
        with psycopg.connect(url) as connection:
            assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
    assert (folder / "data" / "PG_VERSION").read_text().strip() == str(version)
    with EmbeddedPostgres(folder) as server, psycopg.connect(server.url()) as connection:
        assert server.version == version
        assert connection.execute("SELECT id FROM kept").fetchall() == [(1,)]
        pid = server.pid
    assert not Path(f"/proc/{pid}").exists()


def test_a_temporary_server_leaves_nothing() -> None:
    with EmbeddedPostgres() as server:
        folder, sockets = server.folder, server._sockets
        server.create_database("one")
        server.drop_database("one")
        server.drop_database("one")
    assert not folder.exists()
    assert not sockets.exists()


def test_a_server_that_does_not_start_says_why() -> None:
    server = EmbeddedPostgres(settings={"shared_buffers": "nonsense"})
    with pytest.raises(SourceUnavailable, match="shared_buffers") as caught:
        server.start()
    assert caught.value.next_step
    server.close()


def test_a_version_that_is_not_there_says_what_to_install() -> None:
    assert embedded_versions()
    with pytest.raises(SourceUnavailable, match="9") as caught:
        EmbeddedPostgres(version=9)
    assert "pip install" in caught.value.next_step


def test_an_installation_in_a_closed_folder_is_copied_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = tmp_path / "closed" / "pg"
    (installation / "bin").mkdir(parents=True)
    (installation / "bin" / "postgres").write_text("binary")
    (tmp_path / "closed").chmod(0o700)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    user = pwd.getpwnam("nobody")
    copy = postgres._reachable(installation, user)
    assert copy != installation
    assert (copy / "bin" / "postgres").read_text() == "binary"
    assert postgres._reachable(installation, user) == copy
    assert postgres._reachable(installation, None) == installation


@pytest.mark.debian_postgres
def test_debians_server_speaks_tls_only_and_wants_a_password() -> None:
    assert DebianPostgres.missing() == ""
    with DebianPostgres() as server:
        with psycopg.connect(server.url()) as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("SHOW password_encryption").fetchone() == ("scram-sha-256",)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.url(password="wrong"))
