"""A dump that is killed again and again goes on where it was; no Spark takes part."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.changelog import ChangeLogReader
from headrace.fold import fold
from headrace.model.change import READ
from headrace.model.schema import TableId
from headrace.registry.file import FileRegistry
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.replicator.retries import RestartPolicy
from headrace.replicator.supervisor import ChildSpec, Supervisor
from headrace.state.store import DumpProgress, StateStore
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

ROWS, CHUNK, KILLS = 6_000, 100, 3
TABLE = TableId("public", "big")


@req("P59", "P19", "P09")
def test_three_kills_cost_at_most_three_chunks(url: str, tmp_path: Path) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table big (id bigint primary key, value text not null)")
        connection.execute(
            f"insert into big select i, 'value ' || i from generate_series(1, {ROWS}) i"
        )
    file = configured(tmp_path, url, CHUNK)
    paths = StatePaths.of(load(file))
    argv = (sys.executable, "-m", "headrace.replicator.capture_process", str(file))
    policy = RestartPolicy(first_s=0.05)
    with Supervisor(paths, [ChildSpec("capture", argv)], policy=policy) as supervisor:

        def read() -> int:
            supervisor.poll()
            found = progress(paths)
            return found.rows_read if found else 0

        def restarts() -> int:
            supervisor.poll()
            return supervisor.restarts["capture"]

        for kill in range(1, KILLS + 1):
            wanted = ROWS * kill // (KILLS + 1)
            until(lambda: read() >= wanted, f"{wanted} rows read", 60)  # noqa: B023
            os.kill(supervisor.pids["capture"], signal.SIGKILL)
            # Or the next kill would find nobody, where the rows for it are read by now, and the last might go unseen.
            until(lambda: restarts() == kill, f"another capture after kill {kill}", 60)  # noqa: B023

        def complete() -> int:
            supervisor.poll()
            found = progress(paths)
            return found.completed_scn if found else 0

        until(complete, "the end of the dump", 60)
        assert supervisor.restarts == {"capture": KILLS}

    found = progress(paths)
    assert found is not None
    assert ROWS <= found.rows_read <= ROWS + KILLS * CHUNK
    assert ROWS <= sum(1 for _ in chunk_rows(paths)) <= ROWS + KILLS * CHUNK
    held = folded(paths)
    assert held.num_rows == ROWS
    assert set(held["id"].to_pylist()) == set(range(1, ROWS + 1))


PLACES = {
    "window.after_low": 5,
    "window.after_select": 5,
    "window.after_high": 5,
    "window.before_emit": 5,
    "window.after_emit": 5,
    "log.before_sync": 12,
    "log.after_sync": 12,
    "capture.after_poll": 25,
    "capture.after_append": 12,
    "capture.after_sync": 12,
    "capture.after_progress": 8,
    "capture.after_acknowledge": 8,
    "dump.before_complete": 1,
    "dump.after_complete": 1,
}
"""Every step of capture, and at which pass it dies there: in the middle of the dump where there is one."""
AS_BEFORE = {
    "window.after_high",
    "log.after_sync",
    "capture.after_poll",
    "capture.after_append",
    "capture.after_acknowledge",
}
"""Steps that differ little from the one before or behind them; in the long run alone."""


@req("P09", "P19", "A-8")
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=pytest.mark.long) if place in AS_BEFORE else place
        for place in PLACES
    ],
)
def test_a_kill_at_each_step_costs_the_unfinished_chunk_at_most(
    place: str, url: str, tmp_path: Path
) -> None:
    rows, chunk = 200, 10
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table big (id bigint primary key, value text not null)")
        connection.execute(f"insert into big select i, 'v' from generate_series(1, {rows}) i")
    file = configured(tmp_path, url, chunk)
    paths = StatePaths.of(load(file))
    argv = [sys.executable, "-m", "headrace.replicator.capture_process", str(file)]
    paths.create()
    kill_at = {"HEADRACE_FAILPOINT": f"{place}:{PLACES[place]}"}
    with (tmp_path / "first.log").open("wb") as output:
        died = subprocess.run(
            argv, env=os.environ | kill_at, stdout=output, stderr=output, timeout=120
        )
    assert died.returncode == -signal.SIGKILL, (tmp_path / "first.log").read_text()
    before = progress(paths)
    with Supervisor(paths, [ChildSpec("capture", tuple(argv))]) as supervisor:

        def complete() -> int:
            supervisor.poll()
            found = progress(paths)
            return found.completed_scn if found else 0

        until(complete, "the end of the dump", 60)
        assert not supervisor.restarts.get("capture")
    found = progress(paths)
    assert found is not None
    # No finished chunk is read again, and of the change log's rows at most one chunk's come twice.
    assert found.rows_read == rows
    # Behind the last one a look may find nothing left.
    assert found.chunks in (rows // chunk, rows // chunk + 1)
    assert before is None or found.rows_read >= before.rows_read
    assert rows <= sum(1 for _ in chunk_rows(paths)) <= rows + chunk
    assert folded(paths)["id"].to_pylist() == list(range(1, rows + 1))


def configured(folder: Path, url: str, chunk: int) -> Path:
    """Write the file of a replicator that copies the table in chunks."""
    file = folder / "big.yaml"
    file.write_text(
        "name: big\n"
        f'source: {{type: postgres, url: {json.dumps(url)}, tables: ["public.big"]}}\n'
        "target: {type: delta, path: ./lake}\n"
        f"dump: {{chunk_rows: {chunk}, delay_s: 0.02, load: 1}}\n"
    )
    return file


def progress(paths: StatePaths) -> DumpProgress | None:
    if not paths.database.exists():
        return None
    with contextlib.closing(StateStore(paths.database)) as store:
        return next(iter(store.progress()), None)


def chunk_rows(paths: StatePaths) -> Iterator[int]:
    """Yield the key of every chunk row in the change log: one that was dumped twice comes twice."""
    for block in ChangeLogReader(paths.changelog).blocks(0):
        for body in block.bodies:
            ops = body.batch.column("_op").to_pylist()
            keys = body.batch.column("id").to_pylist()
            yield from (key for key, op in zip(keys, ops, strict=True) if op == READ)


def folded(paths: StatePaths) -> pa.Table:
    """Return what the change log makes of the table."""
    registry = FileRegistry(paths.registry)
    batches = [
        (body.schema_id, body.batch)
        for block in ChangeLogReader(paths.changelog).blocks(0)
        for body in block.bodies
    ]
    (schema_id,) = {schema_id for schema_id, _ in batches}
    schema = registry.get(schema_id)
    assert schema.table == TABLE
    table = fold(schema, [batch for _, batch in batches])
    return table.filter(pc.equal(table["_effect"], "ROW"))
