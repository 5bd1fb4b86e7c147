"""A lost slot or a purged log: stopped with the reason, recovered on a user's word or by policy, proven equal."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemKind
from headrace.replicator import runner
from tests.binlog_servers import expressed_for_mysql
from tests.e2e.databases import asked, each_source, said
from tests.e2e.pipeline import Pipeline
from tests.faults.test_slot import drop_under
from tests.requirements import req
from tests.waiting import until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

SLOT = "headrace_e2e"
COUNT = 3

SCHEMA = {
    "postgres": (
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.t (id int PRIMARY KEY, v text)",
        "INSERT INTO shop.t SELECT n, 'v' || n FROM generate_series(1, 5000) n",
        "CREATE TABLE shop.large (k text, n int, v int, body text, PRIMARY KEY (k, n))",
        "ALTER TABLE shop.large ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO shop.large SELECT 'k' || n % 7, n, 0, repeat('body', 900) FROM generate_series(1, 300) n",
        "CREATE TABLE shop.bag (kind text, n int)",
        "ALTER TABLE shop.bag REPLICA IDENTITY FULL",
        "INSERT INTO shop.bag SELECT 'a', n % 3 FROM generate_series(1, 30) n",
    ),
    "mariadb": (
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.t (id int PRIMARY KEY, v text)",
        "INSERT INTO shop.t SELECT seq, CONCAT('v', seq) FROM shop.seq_1_to_5000",
        "CREATE TABLE shop.large (k varchar(20), n int, v int, body text, PRIMARY KEY (k, n))",
        "INSERT INTO shop.large SELECT CONCAT('k', seq % 7), seq, 0, repeat('body', 900) FROM shop.seq_1_to_300",
        "CREATE TABLE shop.bag (kind text, n int)",
        "INSERT INTO shop.bag SELECT 'a', seq % 3 FROM shop.seq_1_to_30",
    ),
}
# Of a table without a key MySQL cannot say what a read has seen.
SCHEMA["mysql"] = tuple(
    expressed_for_mysql(statement.replace("shop.seq_", "seq_")).replace(
        "shop.bag (kind text, n int)",
        "shop.bag (kind text, n int, id int AUTO_INCREMENT PRIMARY KEY INVISIBLE)",
    )
    for statement in SCHEMA["mariadb"]
)
UNREAD = (
    "DELETE FROM shop.t WHERE id % 1000 = {n}",
    "UPDATE shop.t SET v = 'unread' WHERE id % 1000 = {n} + 1",
    "INSERT INTO shop.large VALUES ('new', {n}, 0, repeat('fresh', 900))",
    "UPDATE shop.large SET n = n + 1000 WHERE n = {n} + 10",
    "INSERT INTO shop.bag VALUES ('b', {n})",
)
READ = (
    # The target has no row to patch: it was written while nobody read.
    "UPDATE shop.large SET v = v + 1 WHERE k = 'new'",
    "UPDATE shop.large SET k = 'moved {n}' WHERE n = {n} AND k = 'new'",
    "DELETE FROM shop.bag WHERE kind = 'b'",
    "INSERT INTO shop.t VALUES ({n} + 90000, 'read')",
)
_NOBLOB = "SET SESSION binlog_row_image = NOBLOB"
LARGE_LEFT_OUT = {"postgres": "SELECT 1", "mariadb": _NOBLOB, "mysql": _NOBLOB}
"""After it the log leaves out large values that do not change."""


def write(kind: str, url: str, statements: tuple[str, ...], n: int) -> None:
    said(url, LARGE_LEFT_OUT[kind], *(statement.format(n=n) for statement in statements))


def lose(kind: str, url: str, n: int) -> None:
    """Take away what the pipeline has to read on from, and have changes there that it did not read."""
    if kind == "postgres":
        with psycopg.connect(url, autocommit=True) as connection:
            drop_under(connection, SLOT)
    write(kind, url, UNREAD, n)
    if kind != "postgres":
        said(url, "FLUSH BINARY LOGS")
        *_, (newest, *_) = asked(url, "SHOW BINARY LOGS")

        def purged() -> bool:
            # A reader that has gone holds its file until the server notices.
            said(url, f"PURGE BINARY LOGS TO '{newest}'")
            return len(asked(url, "SHOW BINARY LOGS")) == 1

        until(purged, "the log is gone")


def gaps(pipeline: Pipeline) -> int:
    return sum(
        event.kind is SystemKind.GAP
        for block in ChangeLogReader(pipeline.paths.changelog).blocks(0)
        for event in block.system
    )


@each_source()
@req("H26", "P17")
def test_a_lost_log_is_recovered_on_a_word_and_by_policy(
    kind: str, shop_url: str, tmp_path: Path
) -> None:
    said(shop_url, *SCHEMA[kind])
    pipeline = Pipeline(tmp_path, shop_url, more="changelog: {retain: 1GiB}\n")
    try:
        pipeline.succeed("run", "--once")
        status = pipeline.status()
        assert status["resync"] == {}
        if kind == "postgres":
            assert status["slot"]["slot"] == SLOT
            assert status["slot"]["wal_status"] in ("reserved", "extended")
            assert "cannot be asked" in pipeline.succeed("status").replace("\n", " ")

        lose(kind, shop_url, 1)
        refused = pipeline.command("run", "--once")
        assert refused.returncode == 2
        assert "headrace resync" in refused.stdout + refused.stderr
        assert pipeline.status()["resync"]["state"] == "needed"
        pipeline.succeed("resync")
        assert pipeline.status()["resync"]["state"] == "ordered"
        write(kind, shop_url, READ, 1)
        pipeline.succeed("run", "--once")
        pipeline.succeed("verify")
        assert pipeline.status()["resync"] == {}
        assert gaps(pipeline) == COUNT

        text = pipeline.file.read_text()
        pipeline.file.write_text(
            text.replace("heartbeat_s: 1", "heartbeat_s: 1, on_lost_slot: recover")
        )
        if kind == "postgres":
            # The others keep the files that somebody reads.
            pipeline.start()
            pipeline.running("all is live", lambda: pipeline.all_live(COUNT))
        lose(kind, shop_url, 2)
        if kind != "postgres":
            pipeline.start()
        pipeline.running("it recovers", lambda: gaps(pipeline) == 2 * COUNT)
        write(kind, shop_url, READ, 2)
        pipeline.running("it is repaired", lambda: pipeline.status()["resync"] == {})
        pipeline.running("all is live", lambda: pipeline.all_live(COUNT))
        assert pipeline.stop() == 0, pipeline.logs()
        pipeline.succeed("run", "--once")
        pipeline.succeed("verify")
        assert gaps(pipeline) == 2 * COUNT
    finally:
        pipeline.close()


RESHAPED = (
    "ALTER TABLE shop.t ADD COLUMN w int DEFAULT 7",
    "ALTER TABLE shop.large DROP COLUMN v, ADD COLUMN v bigint DEFAULT 0",
    "ALTER TABLE shop.bag RENAME COLUMN n TO m",
    "INSERT INTO shop.bag VALUES ('c', 1)",
)
"""No log tells of it; the first word of the log that begins then is of tables in a shape that the target lacks."""


@pytest.mark.parametrize("reshaped", [(), RESHAPED], ids=["as they were", "reshaped"])
@pytest.mark.parametrize(
    "target", ["{type: delta, path: ./lake}", "{type: duckdb, path: ./shop.duckdb}"]
)
def test_tables_of_a_state_that_is_gone_are_copied_again_on_a_word(
    url: str, tmp_path: Path, target: str, reshaped: tuple[str, ...]
) -> None:
    """As behind a deletion that keeps the tables; what was deleted since is in no log."""
    said(url, *SCHEMA["postgres"])
    before = Pipeline(tmp_path, url, target=target)
    try:
        before.succeed("run", "--once")
    finally:
        before.close()
    runner.release_source(before.config)
    shutil.rmtree(before.paths.root)
    write("postgres", url, UNREAD, 1)
    said(url, *reshaped)
    pipeline = Pipeline(tmp_path, url, target=target)
    try:
        refused = pipeline.command("run", "--once")
        assert refused.returncode == 2
        assert "ChangeLogLost" in refused.stdout + refused.stderr
        pipeline.succeed("resync")
        write("postgres", url, READ, 1)
        pipeline.succeed("run", "--once")
        pipeline.succeed("verify")
        assert gaps(pipeline) == COUNT
    finally:
        pipeline.close()
