"""``make bench-chain``: from PostgreSQL's log to Delta tables, with `headrace run` as shipped, all on one machine.

Ten tables are copied, then two parts follow on the running pipeline:

    backlog  log delivery is paused, changes are committed (70 % updates, 20 % inserts, 10 % deletes, a thousand a
             transaction), delivery is resumed: how long until the frontier shows the last of them
    steady   small transactions at a steady rate over all tables: how long until each is visible

Both clocks are this machine's. Of each part the CPU seconds are kept by process: of the server, the capture, and the
apply job's driver, Java and Python workers; in the steady part the server has the load to carry as well. At the end
every table must show as many rows as its source has.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.latency import Load
from benchmarks.processes import Child, family_cpu_s, running
from benchmarks.server import BenchServer
from headrace.demo.freshness import measure as freshness
from headrace.lake import FrontierStore, Manifest
from headrace.lake.delta_log import DeltaTable
from headrace.replicator import config_file
from headrace.sources.postgres.lsn import parse_lsn

_SEED = 3
_TABLES = 10
_EACH = 1_000
_TOUCHED, _UPDATED, _INSERTED = 800, 700, 200
_LIMIT_S = 1_200.0
_SPENT = (
    "server_cpu_s",
    "capture_cpu_s",
    "driver_cpu_s",
    "java_cpu_s",
    "workers_cpu_s",
)
_HEADRACE = str(Path(sys.executable).parent / "headrace")

# Only keys that no backlog deletes: a transaction that finds no row reaches nobody.
_TOUCH = f"""
CREATE FUNCTION touch(n bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE nth bigint := n / {_TABLES};
BEGIN
    EXECUTE format('UPDATE t%s SET a = a + 1 WHERE id = $1', n % {_TABLES})
        USING nth / {_UPDATED} * {_TOUCHED} + nth % {_UPDATED};
END $$
"""


class Chain:
    """A source with ten tables, and the pipeline that copies them.

    Args:
        server: the source.
        folder: of state and target.
        rows: of each table.
    """

    def __init__(self, server: BenchServer, folder: Path, rows: int) -> None:
        self._server = server
        self._rows = rows
        self._step = 0
        for number in range(_TABLES):
            server.run(
                f"CREATE TABLE t{number} (id bigint PRIMARY KEY, a int, code text, at timestamptz, "
                "amount numeric(12, 2))",
                f"INSERT INTO t{number} SELECT i, 0, substr(md5(i::text), 1, 16), now(), i % 100000 "
                f"FROM generate_series(0, {rows - 1}) AS i",
                f"VACUUM ANALYZE t{number}",
            )
        server.run(_TOUCH)
        self.file = folder / "bench.yaml"
        value = {
            "name": "bench",
            "source": {"type": "postgres", "url": server.address("tcp"), "tables": ["public.t?"]},
            "target": {"type": "delta", "path": str(folder / "lake")},
            "state": {"dir": str(folder / "state")},
            "changelog": {"budget": "50 GiB"},
            "dump": {"load": 1.0},
        }
        self.file.write_text(json.dumps(value), encoding="utf-8")
        self._frontier = FrontierStore(folder / "lake", "bench")
        self._lake = folder / "lake" / "public"

    def ask(self, *words: str) -> None:
        """Run a command of headrace on the pipeline."""
        subprocess.run([_HEADRACE, *words, str(self.file)], check=True, stdout=subprocess.PIPE)

    def until(self, pipeline: Child, condition: Callable[[Manifest], bool], what: str) -> Manifest:
        """Return the first manifest for which a condition holds, once it is there."""
        found: list[Manifest] = []

        def there() -> bool:
            if not pipeline.alive:
                pipeline.wait(1.0)
                raise SystemExit("the pipeline ended")
            newest = self._frontier.latest()
            if newest is not None and condition(newest):
                found.append(newest)
            return bool(found)

        pipeline.until(there, _LIMIT_S, what)
        return found[0]

    def copied(self, pipeline: Child) -> None:
        """Return when every table is copied."""

        def live(manifest: Manifest) -> bool:
            states = [entry.state for entry in manifest.tables.values()]
            return states == ["live"] * _TABLES

        self.until(pipeline, live, "every table is copied")

    def change(self, changes: int) -> int:
        """Commit so many changes; return a position behind them, up to which the log goes."""
        with self._server.connect() as connection:
            for number in range(changes // _EACH):
                table = f"t{number % _TABLES}"
                low = self._step // _TABLES * _TOUCHED
                new = self._rows + self._step // _TABLES * _INSERTED
                self._step += 1
                connection.execute(
                    f"BEGIN; UPDATE {table} SET a = a + 1 WHERE id >= {low} AND id < {low + _UPDATED}; "
                    f"DELETE FROM {table} WHERE id >= {low + _UPDATED} AND id < {low + _TOUCHED}; "
                    f"INSERT INTO {table} SELECT i, 1, 'new', now(), 1 "
                    f"FROM generate_series({new}, {new + _INSERTED - 1}) AS i; COMMIT".encode()
                )
        return self.position()

    def position(self) -> int:
        """Return a position behind everything that is committed; one more small transaction lies beyond."""
        found = parse_lsn(self._server.value("SELECT pg_current_wal_insert_lsn()"))
        self._server.run("SELECT touch(0)")
        return found

    def cpu_s(self, pipeline: Child) -> dict[str, float]:
        """Return the CPU seconds spent so far, by process."""
        return {"server_cpu_s": self._server.cpu_s()} | family_cpu_s(pipeline.pid)

    def check(self) -> None:
        """End with an error unless every table shows the rows of its source."""
        for number in range(_TABLES):
            files = DeltaTable(self._lake / f"t{number}").snapshot().files
            shown = sum(file.rows() - len(file.deleted()) for file in files)
            if shown != self._server.value(f"SELECT count(*) FROM t{number}"):
                raise SystemExit(f"t{number} shows {shown} rows, its source has others: no figure")


def backlog(chain: Chain, pipeline: Child, changes: int) -> dict[str, Any]:
    """Bring a backlog through the whole chain."""
    chain.ask("log", "pause")
    end = chain.change(changes)
    before = chain.cpu_s(pipeline)
    began_us = time.time_ns() // 1000
    chain.ask("log", "resume")
    reached = chain.until(pipeline, lambda m: m.scn >= end, "the backlog is visible")
    seconds = (reached.written_us - began_us) / 1e6
    return {
        "changes": changes,
        "seconds": round(seconds, 3),
        "changes_per_s": changes / seconds,
        **spent(before, chain.cpu_s(pipeline)),
    }


def spent(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return what was spent between two accounts."""
    return {name: round(after[name] - before[name], 2) for name in before}


def steady(
    chain: Chain, pipeline: Child, server: BenchServer, given: Any, rows: int
) -> dict[str, Any]:
    """Play small transactions, and ask how soon each was visible."""
    load = Load(
        server,
        "SELECT touch(:id);",
        given.rate,
        given.seconds,
        rows=_TABLES * (rows // _TOUCHED) * _UPDATED - 1,
    )
    before = chain.cpu_s(pipeline)
    began_us = time.time_ns() // 1000
    load.wait()
    ended_us = time.time_ns() // 1000
    end = chain.position()
    chain.until(pipeline, lambda m: m.scn >= end, "the load is visible")
    after = chain.cpu_s(pipeline)
    # The first fifth is left out: it has the end of the rest before it.
    after_us = began_us + (ended_us - began_us) // 5
    found = freshness(config_file.load(chain.file), after_us, ended_us)
    return {
        "transactions_per_s": round(found.transactions / ((ended_us - after_us) / 1e6), 1),
        "p50_s": round(found.p50_s, 3),
        "p95_s": round(found.p95_s, 3),
        "p99_s": round(found.p99_s, 3),
        **spent(before, after),
    }


def summarise(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the medians over the rounds."""
    found = {
        "changes_per_s": harness.median(harness.select(runs, part="backlog"), "changes_per_s"),
        **{
            name: harness.median(harness.select(runs, part="steady"), name)
            for name in ("p50_s", "p99_s", "transactions_per_s")
        },
        **{
            f"{part}_{name}": harness.median(harness.select(runs, part=part), name)
            for part in ("backlog", "steady")
            for name in _SPENT
        },
    }
    return {name: value for name, value in found.items() if value is not None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep the result."""
    parser = harness.parser("chain", __doc__ or "", runs=3)
    parser.add_argument("--changes", type=int, default=1_000_000, help="of a backlog (1,000,000)")
    parser.add_argument("--rate", type=float, default=1_000, help="transactions a second (1,000)")
    parser.add_argument("--seconds", type=float, default=60, help="of the steady load (60)")
    given = parser.parse_args(arguments)
    if given.quick:
        given.changes, given.seconds, given.rate, given.runs = 20_000, 5, 100, 1
    # No key is changed twice by a backlog.
    rows = (given.runs + 1) * given.changes // _TABLES // _EACH * _TOUCHED + _EACH
    measured_on = harness.machine()
    steps = harness.Steps("chain", 2 * given.runs + 2)
    runs: list[dict[str, Any]] = []
    with (
        BenchServer() as server,
        tempfile.TemporaryDirectory(prefix="headrace-chain-") as place,
        steps.shown(),
    ):
        server.start_empty()
        with steps.step(f"{_TABLES} tables of {rows:,} rows are filled"):
            chain = Chain(server, Path(place), rows)
        with running([_HEADRACE, "run", str(chain.file)]) as pipeline:
            with steps.step("they are copied"):
                chain.copied(pipeline)
                # The first batch of changes warms Spark up.
                backlog(chain, pipeline, given.changes)
            with harness.until_stopped(steps):
                for number in range(given.runs):
                    with steps.step(f"round {number + 1}, {given.changes:,} changes waited"):
                        found = backlog(chain, pipeline, given.changes)
                    steps.say(f"    {found['changes_per_s']:,.0f} changes/s")
                    runs.append({"part": "backlog", "round": number, **found})
                    with steps.step(f"round {number + 1}, {given.rate:,.0f} transactions/s"):
                        found = steady(chain, pipeline, server, given, rows)
                    steps.say(f"    p50 {found['p50_s']} s · p99 {found['p99_s']} s")
                    runs.append({"part": "steady", "round": number, **found})
            chain.check()
    return harness.keep(
        "chain",
        given,
        steps,
        seed=_SEED,
        sizes={
            "tables": _TABLES,
            "rows": rows,
            "changes": given.changes,
            "rate": given.rate,
            "seconds": given.seconds,
            "rounds": given.runs,
        },
        runs=runs,
        summary=summarise(runs),
        measured_on=measured_on,
    )


if __name__ == "__main__":
    sys.exit(main())
