"""``python -m tests.integration.memory_process URL FOLDER SPOOL_BYTES [window]``: a capture with a memory to look at.

It says ``ready`` when the first copy is done; with ``window``, once the next one has read a chunk whose high mark waits
for the end of the input. It ends when its input does, and its dump has.
"""

# ruff: noqa: E402
from __future__ import annotations

from headrace.replicator.lean import begin_lean

# As the capture's own process begins: before anything imports numpy or pyarrow.
begin_lean()

import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.base import Source
from headrace.sources.mysql import MysqlSource
from headrace.sources.postgres import PostgresSource
from headrace.state.records import Scope
from headrace.watermark.settings import DumpSettings
from tests.integration.running import running_capture
from tests.waiting import until


def source_of(url: str, folder: Path, spool_bytes: int) -> Source:
    """Return the source that a URL means; only PostgreSQL's log has transactions that are open."""
    parts = urlsplit(url)
    if parts.scheme == "mysql":
        return MysqlSource(url, folder / "source", tables=(f"{parts.path[1:]}.*",))
    source = PostgresSource(url)
    source.settings = replace(
        source.settings, spool_folder=folder / "open", spool_memory_bytes=spool_bytes
    )
    return source


def main() -> None:
    """Capture until the input ends."""
    url, folder, spool_bytes, *window = sys.argv[1:]
    source = source_of(url, Path(folder), int(spool_bytes))
    dump = DumpSettings(memory_bytes=8 << 20)
    with running_capture(source, Path(folder), dump) as running:
        until(running.dumped, "the first copy")
        there, ended = threading.Event(), threading.Event()
        if window:

            def hold() -> None:
                there.set()
                assert ended.wait(1_800)

            failpoints.arm("window.after_select", hold)
            running.state.submit(Scope.TABLE, TableId("public", "t"))
            assert there.wait(60)
        print("ready", flush=True)
        sys.stdin.read()
        ended.set()
        until(running.dumped, "the dump")


if __name__ == "__main__":
    main()
