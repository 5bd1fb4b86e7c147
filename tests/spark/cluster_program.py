"""Run by `test_cluster`: a million changes through two executors and a driver that could not hold them.

Writes a change log, applies it in two batches, and prints what it saw as one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.changelog.config import ChangeLogSettings
from headrace.changelog.writer import ChangeLogWriter
from headrace.model.block import ORIGIN_LOG, Block, Body, transaction_index
from headrace.model.change import change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.registry.file import FileRegistry
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.session import SessionSettings, build_session
from headrace.spark.targets.delta import DeltaTarget

ROWS = 1_000_000
BLOCK_ROWS = 50_000
SCHEMA = TableSchema(
    TableId("public", "big"),
    (
        Column("id", pa.int64(), "int8", nullable=False),
        Column("n", pa.int64(), "int8"),
        Column("text", pa.string(), "text"),
    ),
    ("id",),
    KeyCheck.IMMEDIATE,
)


def changes(first: int, count: int, scn: int, op: str, number: int) -> pa.RecordBatch:
    """Return changes of the keys from ``first`` on."""
    keys = np.arange(first, first + count, dtype=np.int64)
    text = pa.array(np.char.add("a text of some length, as texts are: ", keys.astype(str)))
    cells = [
        pa.array(np.full(count, scn, np.int64)),
        pa.array(np.arange(count, dtype=np.int32)),
        pa.array([op] * count),
        pa.nulls(count, pa.binary()),
        pa.array(keys),
        pa.array(keys * number),
        text.cast(pa.string()),
    ]
    return pa.record_batch(cells, schema=change_schema(SCHEMA))


def write(folder: Path) -> None:
    """Write a million inserts, then a million updates, in transactions of one block each."""
    schema_id = FileRegistry(folder / "schemas").put(SCHEMA)
    settings = ChangeLogSettings(budget_bytes=2**31)
    with ChangeLogWriter.open(folder, settings, sync=lambda _descriptor: None) as writer:
        scn = 0
        for op, number in (("+I", 1), ("=U", 2)):
            for first in range(0, ROWS, BLOCK_ROWS):
                scn += 1
                batch = changes(first, BLOCK_ROWS, scn, op, number)
                index = transaction_index([(scn, 1, scn, BLOCK_ROWS, ORIGIN_LOG, 1)])
                writer.append(Block(index, (Body(schema_id, SCHEMA.table, batch),), (), scn))
        writer.sync()


def main(folder: Path) -> None:
    """Apply the log on a cluster of two executors."""
    write(folder / "changelog")
    spark = build_session(
        SessionSettings(
            master="local-cluster[2,1,1024]",
            driver_memory="512m",
            scratch=folder / "spark",
            extra={"spark.driver.maxResultSize": "1m"},
        )
    )
    target = DeltaTarget(spark, folder / "lake", "cluster")
    options = ApplyOptions(
        "cluster", folder / "changelog", folder / "lake", max_rows=2 * ROWS, slice_rows=ROWS // 4
    )
    applier = Applier(options, target)
    half = ROWS // BLOCK_ROWS
    times = []
    begin = applier.begin().from_scn
    for end in (half, 2 * half):
        started = time.monotonic()
        applier.process(begin, end)
        times.append(round(time.monotonic() - started, 2))
        begin = end
    state = target.state(SCHEMA.table)
    jvm: Any = spark._jvm
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    report = {
        "failing": [str(error) for error in applier.failing],
        "applied_scn": state.applied_scn if state else 0,
        "executors": len(tracker.getExecutorInfos()) - 1,
        "heap_mib": jvm.java.lang.Runtime.getRuntime().maxMemory() // 2**20,
        "seconds": times,
    }
    print(json.dumps(report))
    applier.close()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
