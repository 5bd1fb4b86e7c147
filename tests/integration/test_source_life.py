"""When a source is configured, opened and closed, over starts, resets and a stop, with a real server."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.registry.file import FileRegistry
from headrace.replicator import config_file, runner
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.sources.base import LogItem, LogReader, SchemaStore
from headrace.sources.postgres.opening import PostgresOpening
from headrace.sources.postgres.source import PostgresSource
from headrace.state.store import RequestState, StateStore
from tests.requirements import req
from tests.waiting import until

STOPS_WITHIN_S = 30.0


class Recorded:
    """A log reader, and what is asked of it."""

    def __init__(self, reader: LogReader, calls: list[str]) -> None:
        self._reader = reader
        self._calls = calls

    def poll(self, timeout_s: float) -> LogItem | None:
        # Again and again: told once.
        if self._calls[-1] != "poll":
            self._calls.append("poll")
        return self._reader.poll(timeout_s)

    def close(self) -> None:
        self._calls.append("close")
        self._reader.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give what is asked of the source from here on, in order."""
    told: list[str] = []
    made, prepare = PostgresSource.__init__, PostgresSource.prepare

    def configured(self: PostgresSource, *given: Any, **named: Any) -> None:
        told.append("configure")
        made(self, *given, **named)

    def prepared(self: PostgresSource, *, fresh: bool = False) -> None:
        told.append("prepare")
        prepare(self, fresh=fresh)

    def recorded(opened: Callable[[Any, SchemaStore], LogReader]) -> Callable[..., Recorded]:
        def recording(self: Any, schemas: SchemaStore) -> Recorded:
            told.append("open")
            return Recorded(opened(self, schemas), told)

        return recording

    monkeypatch.setattr(PostgresSource, "__init__", configured)
    monkeypatch.setattr(PostgresSource, "prepare", prepared)
    # At a start it is opened ahead.
    for kind in (PostgresSource, PostgresOpening):
        monkeypatch.setattr(kind, "open", recorded(kind.open))
    return told


@pytest.fixture
def shop(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as session:
        session.execute("CREATE TABLE t (id int PRIMARY KEY)")
        session.execute("INSERT INTO t SELECT generate_series(1, 10)")
        yield session
        until(lambda: not _walsender(session), "nobody reads the slot")
        session.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


@pytest.fixture
def config(database: str, tmp_path: Path) -> Config:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\n"
        f"source: {{type: postgres, url: '{database}', tables: ['public.*']}}\n"
        "target: {type: delta, path: ./lake}\n"
    )
    made = config_file.load(file)
    StatePaths.of(made).create()
    return made


@contextmanager
def running(config: Config) -> Iterator[threading.Thread]:
    """Run a capture, its first copy done, until the block ends; give its thread."""
    paths, stop = StatePaths.of(config), threading.Event()
    with runner.capture(config, paths, stop, lambda _detail: None) as capture:
        worker = threading.Thread(target=capture.run, args=(stop,), name="capture under test")
        worker.start()
        store = StateStore(paths.database)

        def copied() -> bool:
            requests = store.requests()
            return bool(requests) and all(r.state is RequestState.COMPLETED for r in requests)

        try:
            until(copied, "the first copy")
            yield worker
        finally:
            stop.set()
            begun = time.monotonic()
            worker.join(60)
            took_s = time.monotonic() - begun
            store.close()
    assert took_s < STOPS_WITHIN_S


def _walsender(session: psycopg.Connection) -> int:
    """Return the server's process that sends us its log, 0 while there is none."""
    row = session.execute("SELECT max(active_pid) FROM pg_replication_slots").fetchone()
    assert row is not None
    return row[0] or 0


def _rows(config: Config) -> int:
    return sum(block.rows for block in ChangeLogReader(StatePaths.of(config).changelog).blocks(0))


@req("C81")
def test_a_source_is_configured_at_a_start_and_opened_again_at_each_reset(
    calls: list[str], shop: psycopg.Connection, config: Config
) -> None:
    with running(config):
        for key in (11, 12):
            rows = _rows(config)
            before = _walsender(shop)
            shop.execute("SELECT pg_terminate_backend(%s)", (before,))
            shop.execute("INSERT INTO t VALUES (%s)", (key,))
            until(lambda rows=rows: _rows(config) > rows, "what came behind the reset")  # type: ignore[misc]
            assert _walsender(shop) != before
    one_life = ["open", "poll", "close"]
    assert calls == ["configure", "prepare", *one_life * 3]
    calls.clear()
    with running(config):
        rows = _rows(config)
        shop.execute("INSERT INTO t VALUES (13)")
        until(lambda: _rows(config) > rows, "what came behind the start")
    assert calls == ["configure", "prepare", *one_life]


@req("C82")
def test_a_reader_begins_behind_what_was_acknowledged(
    shop: psycopg.Connection, database: str, tmp_path: Path
) -> None:
    source, schemas = PostgresSource(database, ["public.*"], name="shop"), FileRegistry(tmp_path)
    source.prepare(fresh=True)

    def read(reader: LogReader, count: int) -> tuple[list[int], str]:
        keys: list[int] = []
        position = ""
        while len(keys) < count:
            if (item := reader.poll(1.0)) is not None:
                position = item.position
                for body in item.block.bodies:
                    keys += body.batch.column("id").to_pylist()
        return keys, position

    reader = source.open(schemas)
    shop.execute("INSERT INTO t VALUES (21)")
    shop.execute("INSERT INTO t VALUES (22)")
    assert read(reader, 2)[0] == [21, 22]
    reader.close()
    # Nobody said that it is durable: it comes again.
    reader = source.open(schemas)
    keys, position = read(reader, 2)
    assert keys == [21, 22]
    reader.acknowledge(position)
    reader.close()
    shop.execute("INSERT INTO t VALUES (23)")
    reader = source.open(schemas)
    assert read(reader, 1)[0] == [23]
    reader.close()
    assert source.acknowledged_scn() > 0


@req("C82")
@pytest.mark.parametrize("frozen", [False, True], ids=["at work", "frozen"])
def test_a_stop_gives_everything_back_in_bounded_time(
    shop: psycopg.Connection, config: Config, frozen: bool
) -> None:
    """Also when the server's end of the log does not move any more, as behind a network that is gone."""
    before = set(threading.enumerate())
    sender = 0
    try:
        with running(config) as worker:
            sender = _walsender(shop)
            if frozen:
                os.kill(sender, signal.SIGSTOP)
            shop.execute("INSERT INTO t VALUES (31)")
        assert not worker.is_alive()
        until(lambda: set(threading.enumerate()) <= before, "no thread of it", STOPS_WITHIN_S)
    finally:
        if frozen:
            os.kill(sender, signal.SIGCONT)

    def sessions() -> int:
        row = shop.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender')"
        ).fetchone()
        assert row is not None
        return int(row[0])

    until(lambda: not sessions(), "no session of it")
