"""A capture of a real PostgreSQL to which something happens, and what has to be true of the error."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from headrace.changelog import ChangeLogReader, ChangeLogSettings
from headrace.errors import HeadraceError
from headrace.model.schema import TableId
from headrace.registry.file import FileRegistry
from headrace.relay.capture import Capture
from headrace.relay.settings import CaptureSettings
from headrace.relay.status import CaptureStatus
from headrace.replicator.capture_log import CaptureLog
from headrace.sources.base import Source
from headrace.sources.postgres.lsn import parse_lsn
from headrace.watermark.settings import DumpSettings
from tests.integration.running import Running
from tests.waiting import until

__all__ = [
    "OFTEN",
    "PUBLIC_T",
    "AtWork",
    "at_work",
    "committed_behind",
    "confirmed",
    "copied",
    "failure_of",
    "follows",
    "named",
    "rows_of",
    "through_a_change",
]

PUBLIC_T = TableId("public", "t")
OFTEN = DumpSettings(chunk_rows=2, request_interval_s=0.05, look_interval_s=0.1)
"""Small chunks, and nobody waits long to be heard."""


class AtWork(Running):
    """A capture in a thread, with everything it said about itself."""

    def __init__(self, folder: Path, wait_s: float) -> None:
        super().__init__(folder, wait_s)
        self.statuses: list[CaptureStatus] = []

    def said(self, state: str, detail: str = "") -> bool:
        """Whether the capture was in a state for a reason."""
        return any(s.state == state and detail in s.detail for s in self.statuses)

    def holds(self, table: TableId, rows: Counter[tuple[Any, ...]]) -> bool:
        """Whether the change log amounts to these rows of a table."""
        if self.error is not None:
            raise self.error
        seen = {
            b.table
            for block in ChangeLogReader(self.folder / "changelog").blocks(0)
            for b in block.bodies
        }
        return self.content(table) == rows if table in seen else not rows


@contextmanager
def at_work(
    source: Source,
    folder: Path,
    settings: ChangeLogSettings | None = None,
    retry_s: float = 0.05,
    wait_s: float = 30.0,
    adopted: Callable[[TableId], bool] = lambda _table: False,
    dump: DumpSettings | None = None,
) -> Iterator[AtWork]:
    """Run a capture in a thread until the block ends; its error waits in ``error``."""
    with CaptureLogs(folder, settings) as log:
        running = AtWork(folder, wait_s)
        source.prepare()
        stop = threading.Event()
        capture = Capture(
            source=source,
            log=log,
            registry=FileRegistry(folder / "changelog" / "schemas"),
            state=running.state,
            settings=CaptureSettings(
                dump or OFTEN,
                retry_s=retry_s,
                spool_folder=folder / "spool",
                adopted=adopted,
            ),
            tables=source.tables(),
            on_status=running.statuses.append,
        )
        running.registry = FileRegistry(folder / "changelog" / "schemas")
        thread = threading.Thread(target=_run, args=(capture, running, stop), name="capture")
        thread.start()
        try:
            yield running
        finally:
            stop.set()
            thread.join(60)
            running.state.close()


def _run(capture: Capture, running: AtWork, stop: threading.Event) -> None:
    try:
        capture.run(stop)
    except BaseException as error:  # noqa: BLE001 - judged by the test's own thread
        running.error = error


class CaptureLogs:
    """The change log of a folder, closed whatever happens."""

    def __init__(self, folder: Path, settings: ChangeLogSettings | None) -> None:
        self._log = CaptureLog(folder / "changelog", settings or ChangeLogSettings())

    def __enter__(self) -> CaptureLog:
        return self._log

    def __exit__(self, *_: object) -> None:
        self._log.close()


def copied(source: Source, folder: Path) -> None:
    """Copy everything once and stop."""
    with at_work(source, folder) as running:
        until(running.dumped, "the first copy")


def failure_of(running: AtWork) -> BaseException:
    """Return the error that ends a capture."""
    until(lambda: running.error is not None, "the capture ends")
    error, running.error = running.error, None
    assert error is not None
    return error


def named(error: BaseException, kind: type[HeadraceError], *objects: str) -> HeadraceError:
    """Check that an error has its name, names its object, and says what to do."""
    assert type(error) is kind, repr(error)
    assert isinstance(error, HeadraceError)
    for one in objects:
        assert one in error.message, error.message
    assert error.next_step
    return error


def rows_of(url: str, table: str) -> Counter[tuple[Any, ...]]:
    """Return a table's rows at the source."""
    with psycopg.connect(url) as connection:
        return Counter(connection.execute(f"SELECT * FROM {table}".encode()).fetchall())


def through_a_change(
    source: Source,
    folder: Path,
    change: Callable[[], object],
    check: Callable[[AtWork], None],
    *,
    stopped: bool,
) -> None:
    """Copy the tables, let them be changed where the log does not tell all of it, and check what becomes of that.

    Nothing is judged by the log alone, which is what an oracle has.

    Args:
        source: whose tables.
        folder: of log and state.
        change: what happens at the source.
        check: of the capture that runs by then.
        stopped: whether it happens while no capture runs.
    """
    with at_work(source, folder) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        if not stopped:
            change()
            check(running)
    assert running.error is None
    if stopped:
        change()
        with at_work(source, folder) as running:
            running.judged = False
            check(running)
        assert running.error is None


def follows(running: AtWork, url: str, table: TableId = PUBLIC_T) -> None:
    """Wait until the change log amounts to what the source holds."""
    wanted = rows_of(url, str(table))
    until(lambda: running.holds(table, wanted), f"{table} as the source has it")


def confirmed(url: str, slot: str = "headrace") -> int:
    """Return the position that the slot was told is durable."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
            (slot,),
        ).fetchone()
    assert row is not None
    return parse_lsn(row[0])


def committed_behind(url: str, *statements: str) -> int:
    """Carry out one transaction; return a place in the source's log that is behind its rows and before its commit."""
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement)
        row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return parse_lsn(row[0])


def position(url: str) -> int:
    """Return where the source's log ends now."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return parse_lsn(row[0])
