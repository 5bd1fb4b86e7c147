"""How soon a commit can be read: small transactions at a steady rate, and the clock of whoever sees them.

Each row carries the server's ``clock_timestamp()`` of its statement; latency counts from there, so it has the
statement's end, the server's sync, and for us the sync of the change log in it; ``inside`` is the capture process's own
share, from the read that brought the commit. The first fifth of a run is left out.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import programs
from benchmarks.captures import CaptureRun, capture_run
from benchmarks.debezium.engine import READY_S, Setting, debezium_run
from benchmarks.processes import Child, python, running
from benchmarks.server import BenchServer

__all__ = [
    "Load",
    "Reader",
    "bare_latency",
    "debezium_latency",
    "finish",
    "headrace_latency",
    "percentiles",
    "prepare",
    "reading",
]

_TABLE = "lat"
_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
INSERT = f"INSERT INTO {_TABLE} (at_us) VALUES ({_CLOCK});"
_LIMIT_S = 600.0
# Long enough that nobody takes the log for a busy one.
_IDLE_PAUSE_S = 0.15

Record = dict[str, Any]
Times = npt.NDArray[np.int64]


def prepare(server: BenchServer) -> None:
    """Make the table."""
    server.run(f"CREATE TABLE {_TABLE} (id bigserial PRIMARY KEY, at_us bigint NOT NULL)")
    server.publish(_TABLE, (_TABLE,))


class Load:
    """pgbench with a statement of one's own.

    Args:
        server: measured one.
        statement: one transaction; may use ``:id``, a random number up to ``rows``.
        rate: transactions per second, 0 for as many as it takes.
        seconds: how long; `stop` ends it sooner.
        clients: connections.
        rows: see ``statement``.
    """

    def __init__(
        self,
        server: BenchServer,
        statement: str,
        rate: float,
        seconds: float,
        *,
        clients: int = 8,
        rows: int = 1,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-load-")
        script = Path(self._folder.name) / "script.sql"
        script.write_text(f"\\set id random(1, {rows})\n{statement}\n", encoding="utf-8")
        self._process = subprocess.Popen(
            [
                *(programs.pgbench(), "-n", "-M", "prepared", "-f", str(script)),
                *("-c", str(clients), "-j", "2", "-T", str(max(1, round(seconds)))),
                *(("-R", str(rate)) if rate else ()),
                server.address("unix"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PGAPPNAME": "load"},
        )

    def wait(self) -> None:
        """Return when it is over."""
        said, _ = self._process.communicate()
        self._folder.cleanup()
        if self._process.returncode > 0:
            raise SystemExit(f"pgbench failed:\n{said[-2000:]}")

    def stop(self) -> None:
        """End it now; a transaction under way is given up."""
        self._process.terminate()
        self.wait()


def _pass_by(server: BenchServer, table: str, id_: int) -> None:
    server.run(
        f"INSERT INTO {table} (id, at_us) VALUES ({id_}, 0)",
        f"DELETE FROM {table} WHERE id = {id_}",
    )


def finish(server: BenchServer, table: str) -> None:
    """Write the row that ends every reader, after everything else has been committed."""
    deadline = time.monotonic() + _LIMIT_S
    while server.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'load'"):
        if time.monotonic() > deadline:
            raise SystemExit("the load does not end")
        time.sleep(0.05)
    _pass_by(server, table, -1)


class Reader:
    """Another process that waits on the change log of a running capture, and notes when it sees each row."""

    def __init__(self, capture: Child, child: Child, out: Path, table: str) -> None:
        self._capture = capture
        self._child = child
        self._out = out
        self._table = table

    def warm(self, server: BenchServer) -> None:
        """Let a first row pass, with everything that is loaded for it."""
        _pass_by(server, self._table, -2)
        self._until(lambda: self._child.said("warm"), READY_S, "it saw the first row")

    def finish(self, server: BenchServer) -> Times:
        """Write the last row and return what was seen: id, the row's clock, commit, and time seen, of each."""
        finish(server, self._table)
        self._until(lambda: not self._child.alive, _LIMIT_S, "it saw the last row")
        self._child.wait(READY_S)
        times: Times = np.load(self._out)
        return times

    def _until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        def fed() -> bool:
            if not self._capture.alive:
                # Nothing comes any more; it says why.
                self._capture.wait(READY_S)
                raise SystemExit("the capture ended before its reader")
            return condition()

        self._child.until(fed, limit_s, what)


@contextlib.contextmanager
def reading(run: CaptureRun, capture: Child, table: str) -> Iterator[Reader]:
    """Give a reader of a running capture's change log."""
    with tempfile.TemporaryDirectory(prefix="headrace-reader-") as folder:
        out = Path(folder) / "seen.npy"
        command = python("benchmarks.reader_child", str(run.changelog), table, str(out))
        with running(command) as child:
            child.until_said("waiting", READY_S)
            yield Reader(capture, child, out, table)


def headrace_latency(server: BenchServer, rate: float, seconds: float) -> Record:
    """Return our percentiles at a rate; 0 stands for an idle server with single commits."""
    with (
        server.fresh_slot() as slot,
        capture_run(
            server.address("tcp"), [f"public.{_TABLE}"], slot=slot, publication=_TABLE
        ) as run,
    ):
        run.skip_dump([f"public.{_TABLE}"])
        with run.started(inside=True) as capture, reading(run, capture, _TABLE) as reader:
            reader.warm(server)
            _play(server, rate, seconds)
            times = reader.finish(server)
            usage = capture.end()
    found = percentiles(times[:, 3] - times[:, 1], times[:, 1], skip=0.2)
    commits = percentiles(times[:, 3] - times[:, 2], times[:, 1], skip=0.2)
    return found | {
        "from_commit_p50_ms": commits["p50_ms"],
        "from_commit_p99_ms": commits["p99_ms"],
        "inside_p50_ms": usage.said["inside_p50_ms"],
        "inside_p99_ms": usage.said["inside_p99_ms"],
        "cpu_s": round(usage.cpu_s, 2),
        "rss_mib": round(usage.rss_mib, 1),
    }


def debezium_latency(server: BenchServer, setting: Setting, rate: float, seconds: float) -> Record:
    """Return Debezium's percentiles at a rate."""
    with (
        server.fresh_slot() as slot,
        debezium_run(
            server,
            setting,
            slot=slot,
            publication=_TABLE,
            tables=f"public.{_TABLE}",
            until="-1",
            events=True,
        ) as run,
    ):
        run.child.until(lambda: server.is_read(slot), READY_S, "it reads the slot")
        _play(server, rate, seconds)
        finish(server, _TABLE)
        usage = run.wait(_LIMIT_S)
        times = run.events()
    found = percentiles(times[:, 2] - times[:, 1], times[:, 1], skip=0.2)
    return found | {"rss_mib": round(usage.rss_mib, 1)}


def _play(server: BenchServer, rate: float, seconds: float) -> None:
    if rate:
        Load(server, INSERT, rate, seconds).wait()
        return
    with server.connect() as connection:
        for _ in range(max(10, round(seconds / _IDLE_PAUSE_S))):
            connection.execute(INSERT.encode())
            time.sleep(_IDLE_PAUSE_S)


def bare_latency(server: BenchServer, rate: float, seconds: float) -> Record:
    """Return the percentiles of a client that only receives, writes, syncs and tells; the least there can be here."""
    with server.fresh_slot() as slot, tempfile.TemporaryDirectory() as folder:
        given = (server.address("tcp"), slot, _TABLE, folder)
        out = Path(folder) / "seen.npy"
        with running(python("benchmarks.bare_child", *given)) as client:
            client.until_said("streaming", READY_S)
            with running(python("benchmarks.bare_reader", folder, str(out))) as child:
                child.until_said("waiting", READY_S)
                _play(server, rate, seconds)
                finish(server, _TABLE)
                child.wait(_LIMIT_S)
            usage = client.end()
        times: Times = np.load(out)
    found = percentiles(times[:, 3] - times[:, 1], times[:, 1], skip=0.2)
    return found | {"cpu_s": round(usage.cpu_s, 2), "rss_mib": round(usage.rss_mib, 1)}


def percentiles(latencies_us: Times, sent_us: Times, skip: float = 0.0) -> Record:
    """Return percentiles in milliseconds, the number of events and their rate.

    Args:
        latencies_us: one per event.
        sent_us: when each was sent.
        skip: share of the time at the beginning that is left out.
    """
    if not len(sent_us):
        raise SystemExit("nothing was seen: no figure")
    first, last = int(sent_us.min()), int(sent_us.max())
    kept = latencies_us[sent_us >= first + (last - first) * skip]
    values = np.percentile(kept, (50, 95, 99, 100)) / 1000
    return {
        **{
            name: round(float(value), 3)
            for name, value in zip(("p50_ms", "p95_ms", "p99_ms", "max_ms"), values, strict=True)
        },
        "events": len(sent_us),
        "per_s": round(len(sent_us) / max(1e-6, (last - first) / 1e6), 1),
    }
