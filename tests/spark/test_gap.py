"""A gap makes a table incomplete until its next dump completion, also over restarts; no Spark is needed for that."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.lake.capabilities import DELTA
from headrace.lake.frontier import FrontierStore
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.targets.base import TargetState
from tests.requirements import req
from tests.spark.log import Log

ORDERS = TableSchema(
    TableId("public", "orders"),
    (Column("id", pa.int64(), "bigint", nullable=False),),
    ("id",),
    KeyCheck.IMMEDIATE,
)


class Still:
    """A target with one table that nobody writes: a gap and a completion are no changes of rows."""

    capabilities = DELTA
    copies = None

    def state(self, table: TableId) -> TargetState | None:
        return TargetState(0, 0, ORDERS.schema_id) if table == ORDERS.table else None


def applied(log: Log, lake: Path) -> tuple[str, int | None]:
    """Let a new job apply everything and return how the table stands."""
    applier = Applier(ApplyOptions("gap", log.folder, lake, maintenance=None), Still())  # type: ignore[arg-type]
    try:
        start = applier.begin()
        applier.process(start.from_scn, log.scn)
        assert applier.failing == []
    finally:
        applier.close()
    manifest = FrontierStore(lake, "gap").latest()
    assert manifest is not None
    entry = manifest.tables["public.orders"]
    return entry.state, entry.complete_scn


@req("H26")
def test_a_table_with_a_gap_is_copying_until_its_dump_is_complete_again(tmp_path: Path) -> None:
    log, lake = Log(tmp_path / "log"), tmp_path / "lake"
    complete = log.complete(ORDERS)
    assert applied(log, lake) == ("live", complete)
    log.gap(ORDERS)
    assert applied(log, lake) == ("copying", None)
    # A restart goes on from the manifest, which remembers that the table is not whole.
    assert applied(log, lake) == ("copying", None)
    again = log.complete(ORDERS)
    assert applied(log, lake) == ("live", again)
    log.writer.close()


@pytest.mark.parametrize("gap_last", [False, True])
def test_within_one_batch_the_later_of_gap_and_completion_counts(
    tmp_path: Path, gap_last: bool
) -> None:
    log, lake = Log(tmp_path / "log"), tmp_path / "lake"
    complete = 0
    for gap in (not gap_last, gap_last):
        if gap:
            log.gap(ORDERS)
        else:
            complete = log.complete(ORDERS)
    assert applied(log, lake) == (("copying", None) if gap_last else ("live", complete))
    log.writer.close()
