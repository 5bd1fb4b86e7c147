"""A lost slot, as a user meets it: stopped with the reason, recovered on a word or by policy, proven equal."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemKind
from tests.e2e.pipeline import Pipeline
from tests.faults.test_slot import drop_under
from tests.requirements import req

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

SLOT = "headrace_e2e"
COUNT = 3

SCHEMA = (
    "CREATE TABLE t (id int PRIMARY KEY, v text)",
    "INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 5000) n",
    "CREATE TABLE large (k text, n int, v int, body text, PRIMARY KEY (k, n))",
    "ALTER TABLE large ALTER body SET STORAGE EXTERNAL",
    "INSERT INTO large SELECT 'k' || n % 7, n, 0, repeat('body', 900) FROM generate_series(1, 300) n",
    "CREATE TABLE bag (kind text, n int)",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    "INSERT INTO bag SELECT 'a', n % 3 FROM generate_series(1, 30) n",
)
UNREAD = (
    "DELETE FROM t WHERE id % 1000 = {n}",
    "UPDATE t SET v = 'unread' WHERE id % 1000 = {n} + 1",
    "INSERT INTO large VALUES ('new', {n}, 0, repeat('fresh', 900))",
    "UPDATE large SET n = n + 1000 WHERE n = {n} + 10",
    "INSERT INTO bag VALUES ('b', {n})",
)
READ = (
    # The target has no row to patch: it was written while nobody read.
    "UPDATE large SET v = v + 1 WHERE k = 'new'",
    "UPDATE large SET k = 'moved {n}' WHERE n = {n} AND k = 'new'",
    "DELETE FROM bag WHERE kind = 'b'",
    "INSERT INTO t VALUES ({n} + 90000, 'read')",
)


def write(url: str, statements: tuple[str, ...], n: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.format(n=n).encode())


def gaps(pipeline: Pipeline) -> int:
    return sum(
        event.kind is SystemKind.GAP
        for block in ChangeLogReader(pipeline.paths.changelog).blocks(0)
        for event in block.system
    )


@req("H26")
def test_a_lost_slot_is_recovered_on_a_word_and_by_policy(url: str, tmp_path: Path) -> None:
    write(url, SCHEMA, 0)
    pipeline = Pipeline(tmp_path, url, ("public.*",), "changelog: {retain: 1GiB}\n")
    try:
        pipeline.succeed("run", "--once")
        status = pipeline.status()
        assert status["resync"] == {}
        assert status["slot"]["slot"] == SLOT
        assert status["slot"]["wal_status"] in ("reserved", "extended")
        assert "cannot be asked" in pipeline.succeed("status").replace("\n", " ")

        with psycopg.connect(url, autocommit=True) as connection:
            drop_under(connection, SLOT)
        write(url, UNREAD, 1)
        refused = pipeline.command("run", "--once")
        assert refused.returncode == 2
        assert "headrace resync" in refused.stdout + refused.stderr
        assert pipeline.status()["resync"]["state"] == "needed"
        pipeline.succeed("resync")
        assert pipeline.status()["resync"]["state"] == "ordered"
        write(url, READ, 1)
        pipeline.succeed("run", "--once")
        pipeline.succeed("verify")
        assert pipeline.status()["resync"] == {}
        assert gaps(pipeline) == COUNT

        text = pipeline.file.read_text()
        pipeline.file.write_text(
            text.replace("heartbeat_s: 1", "heartbeat_s: 1, on_lost_slot: recover")
        )
        pipeline.start()
        pipeline.running("all is live", lambda: pipeline.all_live(COUNT))
        with psycopg.connect(url, autocommit=True) as connection:
            drop_under(connection, SLOT)
        write(url, UNREAD, 2)
        pipeline.running("it recovers", lambda: gaps(pipeline) == 2 * COUNT)
        write(url, READ, 2)
        pipeline.running("it is repaired", lambda: pipeline.status()["resync"] == {})
        pipeline.running("all is live", lambda: pipeline.all_live(COUNT))
        assert pipeline.stop() == 0, pipeline.logs()
        pipeline.succeed("run", "--once")
        pipeline.succeed("verify")
        assert gaps(pipeline) == 2 * COUNT
    finally:
        pipeline.close()
