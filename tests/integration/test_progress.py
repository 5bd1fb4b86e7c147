"""P10: after each chunk its last key stands in the state database, behind the chunk's rows in the change log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.change import READ
from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.state.store import StateStore
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

T = TableId("public", "t")
ROWS, CHUNK = 60, 5


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def keys_read(folder: Path) -> list[tuple[int, str]]:
    """Return the keys that can be read of chunks, in the change log's order."""
    return [
        (row["a"], row["b"])
        for block in ChangeLogReader(folder / "changelog").blocks(0)
        for body in block.bodies
        for row in body.batch.to_pylist()
        if row["_op"] == READ
    ]


@req("P59", "P10", "P09", "P45", "T10")
def test_the_last_key_of_each_chunk_is_durable_behind_its_rows(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (a int, b text, PRIMARY KEY (b, a))",
        f"INSERT INTO t SELECT n, 'k' || n % 3 FROM generate_series(1, {ROWS}) n",
    )
    ordered = sorted(((n, f"k{n % 3}") for n in range(1, ROWS + 1)), key=lambda key: key[::-1])
    noted: list[tuple[str, ...]] = []
    ahead: list[tuple[int, str]] = []

    def note() -> None:
        """Look as another process would that is started after a power cut at this moment."""
        with closing(StateStore(tmp_path / "state.db")) as state:
            for progress in state.progress():
                if progress.after and progress.after not in noted[-1:]:
                    noted.append(progress.after)
                    done = ordered.index((int(progress.after[0]), progress.after[1])) + 1
                    if keys_read(tmp_path)[:done] != ordered[:done]:
                        ahead.append(ordered[done - 1])

    failpoints.arm("capture.after_progress", note)
    # People are heard at every look, so each chunk waits until the last one's progress is written.
    dump = DumpSettings(chunk_rows=CHUNK, request_interval_s=0.0)
    with running_capture(PostgresSource(database), tmp_path, dump) as running:
        until(running.dumped, "the dump")
    assert noted == [(str(a), b) for a, b in ordered[CHUNK - 1 :: CHUNK]]
    assert not ahead, "progress is ahead of the rows"
