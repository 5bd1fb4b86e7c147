"""The loads whose log is read: five of the usual shapes, each of any size.

A workload is set up, then its slot is made, then it is played; what is read later is what was played. All random
values come from the seed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import programs
from benchmarks.server import BenchServer, Region

__all__ = ["SEED", "WORKLOADS", "Workload", "record"]

SEED = 1
_CLIENTS = 8

_NARROW = (
    "id bigint PRIMARY KEY, a int, b bigint, c smallint, code text, note text, at timestamptz, "
    "amount numeric(12, 2), ratio double precision, ok boolean"
)
_NARROW_ROWS = (
    "SELECT i, (i * 7919 % 100000)::int, i * 104729, (i % 3000)::smallint, substr(md5(i::text), 1, 16), "
    "'note ' || i % 1000, timestamptz '2026-01-01' + i * interval '1 second', "
    "(i * 31 % 1000000)::numeric / 100, i / 7.0::float8, i % 2 = 0"
)
_WIDE = "id bigint PRIMARY KEY, a int, " + ", ".join(f"t{n} text" for n in range(10))
_WIDE_ROWS = "SELECT i, (i % 1000)::int, " + ", ".join(
    f"left(repeat(md5((i + {n})::text), 8), 245)" for n in range(10)
)


@dataclass(frozen=True, slots=True)
class Workload:
    """One load.

    Attributes:
        name: short, as in results.
        title: what it is.
        narrow: whether its rows are narrow.
        tables: what it changes.
        set_up: makes the tables for so many changes.
        play: makes about so many changes, and returns how many exactly.
        share: of the size asked for; wide rows and pgbench are dearer.
        most: changes, however many are asked for: the one transaction is no larger than the one that its goal
            speaks of.
    """

    name: str
    title: str
    narrow: bool
    tables: tuple[str, ...]
    set_up: Callable[[BenchServer, int], None]
    play: Callable[[BenchServer, int], int]
    share: float = 1.0
    most: int | None = None

    def changes(self, rows: int) -> int:
        """Return how many changes are meant when ``rows`` are asked for."""
        meant = max(1000, round(rows * self.share))
        return meant if self.most is None else min(meant, self.most)


def record(server: BenchServer, workload: Workload, rows: int) -> Region:
    """Play a workload and return the stretch of the log that holds it."""
    changes = workload.changes(rows)
    workload.set_up(server, changes)
    server.begin_region(workload.name, workload.tables)
    played = workload.play(server, changes)
    return server.end_region(workload.name, workload.tables, played)


# -- pgbench ------------------------------------------------------------------------------------

_PGBENCH = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")


def _set_up_pgbench(server: BenchServer, changes: int) -> None:
    scale = min(50, max(1, changes // 80_000))
    _run_pgbench(server, "-i", "-q", "-s", str(scale))
    # It has no key, and nothing but inserts.
    server.run("ALTER TABLE pgbench_history REPLICA IDENTITY FULL")


def _play_pgbench(server: BenchServer, changes: int) -> int:
    each = max(1, changes // 4 // _CLIENTS)
    _run_pgbench(
        server, f"--random-seed={SEED}", "-n", "-c", str(_CLIENTS), "-j", "2", "-t", str(each)
    )
    # Three updates and one insert a transaction.
    return each * _CLIENTS * 4


def _run_pgbench(server: BenchServer, *arguments: str) -> None:
    done = subprocess.run(
        [programs.pgbench(), *arguments, server.address("unix")],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PGOPTIONS": "-c synchronous_commit=off"},
    )
    if done.returncode:
        raise SystemExit(f"pgbench failed:\n{done.stderr[-2000:]}")


# -- plain tables -------------------------------------------------------------------------------


def _in_transactions(server: BenchServer, statement: str, changes: int, each: int) -> None:
    """Run a statement for ids ``low`` to ``high``, ``each`` at a time, a transaction for each."""
    with server.connect() as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(
            f"DO $$ DECLARE low bigint; high bigint; BEGIN "
            f"FOR low IN SELECT generate_series(1, {changes}, {each}) LOOP "
            f"high := least(low + {each - 1}, {changes}); {statement}; COMMIT; "
            f"END LOOP; END $$".encode()
        )


def _insert(table: str, rows: str, each: int) -> Callable[[BenchServer, int], int]:
    def play(server: BenchServer, changes: int) -> int:
        into = f"INSERT INTO {table} {rows} FROM generate_series(low, high) AS i"
        _in_transactions(server, into, changes, each)
        return changes

    return play


def _create(table: str, columns: str) -> Callable[[BenchServer, int], None]:
    def set_up(server: BenchServer, _changes: int) -> None:
        server.run(f"CREATE TABLE {table} ({columns})")
        # Wide rows stay whole in the table, as the log carries them.
        server.run(f"ALTER TABLE {table} SET (toast_tuple_target = 8160)")

    return set_up


def _filled(table: str, identity: str) -> Callable[[BenchServer, int], None]:
    def set_up(server: BenchServer, changes: int) -> None:
        server.run(
            f"CREATE TABLE {table} ({_NARROW})",
            f"ALTER TABLE {table} REPLICA IDENTITY {identity}",
            f"INSERT INTO {table} {_NARROW_ROWS} FROM generate_series(1::bigint, {changes}) AS i",
            f"ANALYZE {table}",
        )

    return set_up


def _update(table: str) -> Callable[[BenchServer, int], int]:
    def play(server: BenchServer, changes: int) -> int:
        change = (
            f"UPDATE {table} SET a = a + 1, amount = amount + 1, note = 'changed ' || id % 1000 "
            "WHERE id BETWEEN low AND high"
        )
        _in_transactions(server, change, changes, 100)
        return changes

    return play


def _one_transaction(server: BenchServer, changes: int) -> int:
    server.run(f"INSERT INTO w5 {_NARROW_ROWS} FROM generate_series(1::bigint, {changes}) AS i")
    return changes


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("w1", "pgbench TPC-B", True, _PGBENCH, _set_up_pgbench, _play_pgbench, share=0.8),
        Workload(
            "w2",
            "inserts, 10 columns, 100 a transaction",
            True,
            ("w2",),
            _create("w2", _NARROW),
            _insert("w2", _NARROW_ROWS, 100),
        ),
        Workload(
            "w3d",
            "updates, identity DEFAULT, 100 a transaction",
            True,
            ("w3d",),
            _filled("w3d", "DEFAULT"),
            _update("w3d"),
        ),
        Workload(
            "w3f",
            "updates, identity FULL, 100 a transaction",
            True,
            ("w3f",),
            _filled("w3f", "FULL"),
            _update("w3f"),
        ),
        Workload(
            "w4",
            "inserts of 2.5 KB, 10 a transaction",
            False,
            ("w4",),
            _create("w4", _WIDE),
            _insert("w4", _WIDE_ROWS, 10),
            share=0.2,
        ),
        Workload(
            "w5",
            "one transaction",
            True,
            ("w5",),
            _create("w5", _NARROW),
            _one_transaction,
            most=1_000_000,
        ),
    )
}
"""By name; sizes are given for ``share`` 1."""
