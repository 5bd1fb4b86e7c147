"""What a batch means for one table: its steps, and the blocks that each of them needs."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headrace.changelog import ChangeLogReader
from headrace.model.schema import Column, TableSchema
from headrace.registry.file import FileRegistry
from headrace.spark.plan import Range, Step, steps_of
from headrace.testing.notation import table_of
from tests.spark.log import Log

TABLE, OTHER = table_of(2), table_of(2, name="other")
WIDER = replace(TABLE, columns=(*TABLE.columns, Column("c2", pa.string(), "text")))
MANY = 1_000


def steps(log: Log, after_scn: int = 0, max_rows: int = MANY) -> list[Step]:
    reader, registry = ChangeLogReader(log.folder), FileRegistry(log.folder / "schemas")
    part = Range(reader, registry, 0, log.scn)
    current: TableSchema | None = TABLE if after_scn else None
    return steps_of(part, TABLE.table, after_scn, max_rows, current)


def held(step: Step) -> list[int]:
    """Return the SCNs of a step's blocks: each holds one transaction here."""
    return [ref.first_scn for ref in step.refs]


def test_a_step_holds_the_blocks_of_its_table_and_no_others(log: Log) -> None:
    log.write(TABLE, "+I(1,a)")
    log.write(OTHER, "+I(1,a) | +I(2,b) | T")
    log.write(TABLE, "+I(2,b) +I(3,c) | -D(1,a)")
    (step,) = steps(log)
    assert (step.after_scn, step.upto_scn) == (0, 60)
    assert held(step) == [10, 50, 60]
    assert step.schema_ids == {TABLE.schema_id}
    assert (step.rows, step.has_changes, step.truncated) == (4, True, False)


def test_a_truncate_is_among_what_a_step_holds(log: Log) -> None:
    log.write(TABLE, "+I(1,a)")
    log.write(OTHER, "+I(1,a)")
    log.write(TABLE, "T")
    (step,) = steps(log)
    assert held(step) == [10, 30]
    assert (step.rows, step.truncated) == (1, True)
    (alone,) = steps(log, after_scn=20)
    assert held(alone) == [30]
    assert (alone.rows, alone.has_changes) == (0, True)


def test_steps_share_no_block_and_leave_none_out(log: Log) -> None:
    log.write(TABLE, " | ".join(f"+I({key},a)" for key in range(6)))
    log.write(OTHER, "+I(1,a)")
    found = steps(log, max_rows=2)
    assert [(step.after_scn, step.upto_scn) for step in found] == [
        (0, 20), (20, 40), (40, 60),
    ]  # fmt: skip
    assert [held(step) for step in found] == [[10, 20], [30, 40], [50, 60]]


def test_a_step_over_two_versions_names_both_and_takes_the_newer(log: Log) -> None:
    log.write(TABLE, "+I(1,a)")
    log.announce(WIDER)
    log.write(WIDER, "+I(2,b,x)")
    (step,) = steps(log)
    assert step.schema == WIDER
    assert step.announced
    assert step.schema_ids == {TABLE.schema_id, WIDER.schema_id}
    # The announcement was read by the plan; no task needs it.
    assert held(step) == [10, 30]


def test_a_batch_that_only_ends_a_dump_has_no_steps(log: Log) -> None:
    log.complete(TABLE)
    log.write(OTHER, "+I(1,a)")
    assert steps(log) == []
