"""A folder of files of changes, copied into tables and followed, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from tests.e2e.pipeline import Replicator
from tests.requirements import req

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

T = TableId("shop", "t")
SCHEMA = TableSchema(
    T,
    (Column("id", pa.int64(), "bigint", nullable=False), Column("v", pa.string(), "text")),
    ("id",),
    KeyCheck.IMMEDIATE,
)


def write(file: Path, scn: int, *changes: tuple[str, int, str | None]) -> None:
    lines: list[dict[str, Any]] = [
        {"scn": scn, "ord": n, "op": op, "table": "shop.t", "row": {"id": id_, "v": v}}
        for n, (op, id_, v) in enumerate(changes)
    ]
    lines.append({"scn": scn, "end": True, "commit_us": 1_767_225_600_000_000, "origin": "log"})
    with file.open("a") as open_:
        open_.writelines(json.dumps(line) + "\n" for line in lines)


@req("D131", "N17")
def test_a_folder_of_files_becomes_tables(tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    (feed / "tables.json").write_text(json.dumps({"feed": "shop", "tables": [SCHEMA.to_json()]}))
    write(feed / "1.ndjson", 1, ("+I", 1, "a"), ("+I", 2, "b"))
    replicator = Replicator(
        tmp_path / "copy.yaml",
        "name: copy\nsource: {type: files, path: ./feed, tables: ['shop.*']}\n"
        "target: {type: delta, path: ./lake}\nspark: {driver_memory: 1g}\n",
    )
    try:
        replicator.succeed("preflight")
        replicator.succeed("run", "--once")
        write(feed / "1.ndjson", 2, ("-D", 1, "a"))
        write(feed / "2.ndjson", 3, ("+I", 3, None))
        replicator.succeed("run", "--once")
        snapshot = DeltaTable(table_path(replicator.config.lake, T)).snapshot()
        rows = snapshot.to_table(["id", "v"]).to_pylist()
        assert sorted((row["id"], row["v"]) for row in rows) == [(2, "b"), (3, None)]
        assert "files of" in replicator.status()["slot"]["text"]
        done = replicator.command("verify")
        assert done.returncode != 0
        assert "no table to compare" in done.stdout + done.stderr
    finally:
        replicator.close()
