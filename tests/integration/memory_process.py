"""``python -m tests.integration.memory_process URL FOLDER SPOOL_BYTES``: a capture whose memory a test looks at.

It says ``ready`` when the first copy is done, and ends when its input does.
"""

# ruff: noqa: E402
from __future__ import annotations

from headrace.replicator.lean import begin_lean

# As the capture's own process begins: before anything imports numpy or pyarrow.
begin_lean()

import sys
from dataclasses import replace
from pathlib import Path

from headrace.sources.postgres import PostgresSource
from headrace.watermark.settings import DumpSettings
from tests.integration.running import running_capture
from tests.waiting import until


def main() -> None:
    """Capture until the input ends."""
    url, folder, spool_bytes = sys.argv[1:]
    source = PostgresSource(url)
    source.settings = replace(
        source.settings, spool_folder=Path(folder) / "open", spool_memory_bytes=int(spool_bytes)
    )
    dump = DumpSettings(memory_bytes=8 << 20)
    with running_capture(source, Path(folder), dump) as running:
        until(running.dumped, "the first copy")
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
