"""F20: rows of a target that somebody damaged are repaired by their keys, and no others are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.lake import DeltaTable
from headrace.lake.ledger import table_path
from headrace.model.schema import TableId
from headrace.spark.session import SessionSettings, build_session
from tests.binlog_servers import expressed_for_mysql
from tests.e2e.databases import each_source, said
from tests.e2e.pipeline import Pipeline
from tests.requirements import req

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

ROWS = 2_000
TABLE = TableId("shop", "t")
FILL = {
    "postgres": f"INSERT INTO shop.t SELECT n, 'v' || n FROM generate_series(1, {ROWS}) n",
    "mariadb": f"INSERT INTO shop.t SELECT seq, CONCAT('v', seq) FROM shop.seq_1_to_{ROWS}",
    "mysql": expressed_for_mysql(
        f"INSERT INTO shop.t SELECT seq, CONCAT('v', seq) FROM seq_1_to_{ROWS}"
    ),
}
DAMAGE = (
    "UPDATE delta.`{at}` SET v = 'damaged' WHERE id IN (3, 5)",
    "DELETE FROM delta.`{at}` WHERE id = 7",
    "INSERT INTO delta.`{at}` VALUES (-1, 'from nowhere')",
)
DAMAGED = (3, 5, 7, -1)


@each_source()
@req("F20", "P05", "A-13", "P17")
def test_damaged_rows_are_repaired_by_key_and_no_others_are_written(
    kind: str, shop_url: str, shop: Pipeline, tmp_path: Path
) -> None:
    pipeline = shop
    create = "CREATE TABLE shop.t (id int PRIMARY KEY, v varchar(20) NOT NULL)"
    said(shop_url, "CREATE SCHEMA shop", create, FILL[kind])
    pipeline.succeed("run", "--once")
    damage(pipeline, tmp_path)
    told = pipeline.command("verify", "--json")
    assert told.returncode == 1
    (unequal,) = json.loads(told.stdout)["tables"]
    assert (unequal["missing"], unequal["extra"], unequal["different"]) == (1, 1, 2)
    logged = ChangeLogReader(pipeline.paths.changelog).tail().covered_scn
    before = held(pipeline)

    keys = [word for key in DAMAGED for word in ("--keys", str(key))]
    pipeline.succeed("dump start", "--table", str(TABLE), *keys, "--delete-missing")
    pipeline.succeed("run", "--once")

    assert json.loads(pipeline.succeed("verify", "--json"))["equal"]
    # What the repair brought into the log, and which rows of the table it changed.
    written = [
        row["id"]
        for block in ChangeLogReader(pipeline.paths.changelog).blocks(logged)
        for body in block.bodies
        if body.table == TABLE
        for row in body.batch.to_pylist()
    ]
    assert sorted(written) == sorted(DAMAGED)
    after = held(pipeline)
    assert {key for key, _ in before ^ after} == set(DAMAGED)


def damage(pipeline: Pipeline, scratch: Path) -> None:
    """Change the target behind our back, with Spark's own statements."""
    spark = build_session(SessionSettings(driver_memory="512m", scratch=scratch / "damage"))
    try:
        for statement in DAMAGE:
            spark.sql(statement.format(at=table_path(pipeline.config.lake, TABLE)))
    finally:
        spark.stop()


def held(pipeline: Pipeline) -> set[tuple[int, str]]:
    """Return the rows of the target."""
    table = DeltaTable(table_path(pipeline.config.lake, TABLE)).snapshot()
    rows = table.to_table(["id", "v"])
    return set(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
