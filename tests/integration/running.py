"""A capture of a real PostgreSQL in a thread of the test, and what its change log amounts to."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from headrace.changelog import ChangeLogReader, ChangeLogSettings
from headrace.fold import fold, promote
from headrace.model.block import SystemKind
from headrace.model.schema import TableId
from headrace.model.succession import NO_NUMBERS, Numbers, successors, told_numbers
from headrace.observe.tap import NO_TAP, Tap
from headrace.registry.file import FileRegistry
from headrace.relay.capture import Capture
from headrace.relay.settings import CaptureSettings
from headrace.replicator.capture_log import CaptureLog
from headrace.sources.base import Source
from headrace.state.store import RequestState, StateStore
from headrace.testing.oracle import LedgerOracle
from headrace.testing.target import ModelTable
from headrace.watermark.settings import DumpSettings
from tests.waiting import until

__all__ = ["Running", "carried_out", "carried_out_in", "running_capture"]


def carried_out(state: StateStore) -> bool:
    """Whether there are requests, and every one of them is carried out."""
    requests = state.requests()
    return bool(requests) and all(r.state is RequestState.COMPLETED for r in requests)


def carried_out_in(database: Path) -> bool:
    """Whether that is so of a state that another process holds, and that may not be there yet."""
    if not database.exists():
        return False
    with closing(StateStore(database)) as state:
        return carried_out(state)


class Running:
    """A capture at work on ``folder``, whose state may be held by another process for ``wait_s``."""

    def __init__(self, folder: Path, wait_s: float = 30.0) -> None:
        self.folder = folder
        self.registry = FileRegistry(folder / "schemas")
        self.reader = ChangeLogReader(folder / "changelog")
        self.state = StateStore(folder / "state.db", wait_s)
        self.error: BaseException | None = None
        # Off where rows change without a log event, which no reader of the log alone can tell from a fault.
        self.judged = True

    def dumped(self) -> bool:
        """Whether every request is carried out."""
        if self.error is not None:
            raise self.error
        return carried_out(self.state)

    def content(self, table: TableId) -> Counter[tuple[Any, ...]]:
        """Fold the whole change log of a table into a model target; the ledger oracle reads along.

        A renamed column keeps its rows' values, as in every target, where the log tells the columns' numbers.
        """
        oracle = LedgerOracle(self.registry.get)
        bodies, truncates, end = [], [], 0
        newest = 0
        numbers: dict[int, Numbers] = {}
        for block in ChangeLogReader(self.folder / "changelog").blocks(0):
            if self.judged:
                oracle.feed(block)
            end = max(end, block.last_scn)
            for body in block.bodies:
                if body.table == table:
                    bodies.append(body)
                    newest = body.schema_id
            truncates += [
                (e.scn, e.ord)
                for e in block.system
                if e.kind is SystemKind.TRUNCATE and e.table == table
            ]
            for e in block.system:
                if e.kind is SystemKind.SCHEMA and e.table == table:
                    numbers |= told_numbers(e.payload)
        schema = self.registry.get(newest)
        now = numbers.get(newest, NO_NUMBERS)
        rows = []
        for body in bodies:
            old = self.registry.get(body.schema_id)
            was = numbers.get(body.schema_id, NO_NUMBERS)
            names = successors(old.names, schema.names, was, now)
            rows.append(promote(body.batch, old, schema, names))
        target = ModelTable(schema)
        target.apply(fold(schema, rows, truncates), end, complete=False)
        return target.content()

    def wait_for_scn(self, scn: int) -> None:
        """Return when the change log covers an SCN."""
        until(lambda: self.reader.tail().covered_scn >= scn, f"SCN {scn} in the change log")


@contextmanager
def running_capture(
    source: Source,
    folder: Path,
    dump: DumpSettings | None = None,
    tap: Tap = NO_TAP,
    stop: threading.Event | None = None,
    kept: ChangeLogSettings | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Running]:
    """Run a capture in a thread until the block ends."""
    running = Running(folder)
    stop = stop or threading.Event()
    source.prepare()
    log = CaptureLog(folder / "changelog", kept or ChangeLogSettings())
    capture = Capture(
        source=source,
        log=log,
        registry=FileRegistry(folder / "schemas"),
        state=StateStore(folder / "state.db"),
        settings=CaptureSettings(dump or DumpSettings(chunk_rows=2), spool_folder=folder / "spool"),
        tables=source.tables(),
        tap=tap,
        clock=clock,
    )

    def work() -> None:
        try:
            capture.run(stop)
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            running.error = error

    thread = threading.Thread(target=work, name="capture")
    thread.start()
    try:
        yield running
    finally:
        stop.set()
        thread.join(60)
        log.close()
        running.state.close()
        if running.error is not None:
            # Also where the test failed: it waited for what an ended capture never brings.
            raise running.error
