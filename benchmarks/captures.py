"""Our capture as a contender: the configuration of a run, and the child that runs it.

In: a server, a slot, tables. Out: a running `benchmarks.capture_child`, which is what `headrace run` starts with
another way to end; and what it put into the change log, counted afterwards by another process.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from benchmarks.processes import Child, python, running
from headrace.changelog import ChangeLogReader
from headrace.model.schema import TableId
from headrace.replicator import config_file
from headrace.replicator.paths import StatePaths
from headrace.state.records import OPEN
from headrace.state.store import DumpProgress, RequestState, Scope, StateStore

__all__ = ["CaptureRun", "capture_run", "count_changes"]

_NAME = "bench"
_READY_S = 120.0


@dataclass(frozen=True, slots=True)
class CaptureRun:
    """One capture in a folder of its own.

    Attributes:
        file: its configuration.
        tables: patterns of captured tables.
    """

    file: Path
    tables: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> StatePaths:
        """Where it keeps what."""
        return StatePaths.of(config_file.load(self.file))

    @property
    def changelog(self) -> Path:
        """Folder of its change log."""
        return self.paths.changelog

    def until_scn(self, scn: int) -> list[str]:
        """Return the command that captures until a transaction from ``scn`` on is durable."""
        return python("benchmarks.capture_child", str(self.file), "--until", str(scn))

    def until_dumped(self) -> list[str]:
        """Return the command that captures until every table is dumped."""
        return python("benchmarks.capture_child", str(self.file), "--dump")

    @contextlib.contextmanager
    def started(self, *, inside: bool = False) -> Iterator[Child]:
        """Give a capture that streams, until `Child.end`.

        Args:
            inside: let it measure the latency inside its process.
        """
        command = python("benchmarks.capture_child", str(self.file), *["--inside"] * inside)
        with running(command, self.environment) as child:
            child.until_said("streaming", _READY_S)
            yield child

    def skip_dump(self, tables: Sequence[str]) -> None:
        """Begin as if every table had been dumped, so that the log alone is read."""
        with contextlib.closing(StateStore(self.paths.database)) as store:
            request = store.submit(Scope.ALL_TABLES)
            store.write(
                [
                    lambda w, at=at, table=table: w.put_progress(
                        DumpProgress(
                            request, TableId.parse(table), state="complete", completed_scn=1
                        ),
                        at,
                    )
                    for at, table in enumerate(tables)
                ]
                + [lambda w: w.request_state(request, RequestState.COMPLETED, since=OPEN)]
            )

    def dump(self, table: str) -> str:
        """Ask the running capture for a dump of a table, as ``headrace dump`` does."""
        with contextlib.closing(StateStore(self.paths.database)) as store:
            return store.submit(Scope.TABLE, TableId.parse(table))

    def is_dumped(self, request: str) -> bool:
        """Return whether a dump is over; raises when it failed."""
        with contextlib.closing(StateStore(self.paths.database)) as store:
            found = next(r for r in store.requests() if r.request_id == request)
        if found.state is RequestState.FAILED:
            raise SystemExit(f"the dump failed: {found.reason}")
        return found.state is RequestState.COMPLETED

    def dumped_rows(self) -> int:
        """Return the rows that left in windows."""
        with contextlib.closing(StateStore(self.paths.database)) as store:
            return sum(progress.rows_emitted for progress in store.progress())


@contextlib.contextmanager
def capture_run(
    url: str,
    tables: Sequence[str],
    *,
    slot: str | None = None,
    publication: str | None = None,
    dump: Mapping[str, Any] | None = None,
) -> Iterator[CaptureRun]:
    """Give the configuration of a capture in a folder that is removed afterwards.

    Args:
        url: of the database.
        tables: patterns.
        slot: an existing one; the capture makes its own when None.
        publication: likewise.
        dump: settings of the section ``dump``.
    """
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    named = {"slot": slot, "publication": publication}
    value = {
        "name": _NAME,
        "source": {"type": "postgres", "url": url, "tables": list(tables)}
        | {key: name for key, name in named.items() if name},
        "target": {"type": "delta", "path": str(folder / "lake")},
        "state": {"dir": str(folder / "state")},
        # Nothing is dropped: what was captured is counted afterwards.
        "changelog": {"budget": "200 GiB"},
        "dump": dict(dump or {}),
    }
    file = folder / "bench.yaml"
    file.write_text(json.dumps(value), encoding="utf-8")
    try:
        yield CaptureRun(file, tuple(tables))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def count_changes(changelog: Path, leave_out: str = "bench_marks") -> int:
    """Return how many rows were inserted, updated or deleted in a change log, dumped rows left out.

    An update may be two rows of the log; its old image is not counted.
    """
    counted = 0
    for block in ChangeLogReader(changelog).blocks(0):
        for body in block.bodies:
            if body.table.name != leave_out:
                ops = body.batch.column("_op")
                for value in pc.value_counts(ops).to_pylist():
                    counted += value["counts"] if value["values"] not in ("-U", "+R") else 0
    return counted
