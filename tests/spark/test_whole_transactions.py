"""Transactions that the log holds in pieces: no batch, no stored position and no version of a table divides one."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.changelog.jobs import jobs
from headrace.changelog.reader import ChangeLogReader
from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore
from headrace.lake.snapshot import Snapshot
from headrace.model.block import ORIGIN_LOG, Block, Body, transaction_index
from headrace.model.schema import KeyCheck, TableSchema
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.clock import BatchClock
from headrace.spark.slices import Limits
from headrace.spark.targets.delta import DeltaTarget
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.requirements import req
from tests.spark.log import Log
from tests.spark.test_apply import KEYLESS, legal_states

pytestmark = pytest.mark.spark

BAG = table_of(2, check=KeyCheck.NONE, name="bag")


def write(log: Log, schema: TableSchema, transaction: str, cuts: Sequence[int], done: int) -> int:
    """Append pieces of one transaction, a block for each, and return its SCN.

    Args:
        log: the log.
        schema: of its rows.
        transaction: all its rows.
        cuts: how many rows there are behind each piece; the transaction is open while that is not all of them.
        done: pieces that were written before.
    """
    scn = log.following
    rows = parse_history(transaction, scn).rows
    schema_id = log.registry.put(schema)
    for first, last in list(itertools.pairwise([0, *cuts]))[done:]:
        ends = last == len(rows)
        part = rows[first:last]
        index = transaction_index(
            [(scn, log.commit_us(scn), scn, len(part), ORIGIN_LOG, int(ends))]
        )
        body = Body(schema_id, schema.table, change_batch(schema, part))
        log.writer.append(Block(index, (body,), (), scn if ends else log.scn))
        if ends:
            log.scn = scn
    log.writer.sync()
    return scn


class Job:
    """Appliers that come and go, and take the batches that the job's clock gives: as small as may be.

    Args:
        spark: the session.
        log: the log.
        folder: of the tables.
        max_rows: limit of a batch.
    """

    def __init__(self, spark: SparkSession, log: Log, folder: Path, max_rows: int = 1) -> None:
        self._lake = folder / "lake"
        self._options = ApplyOptions("test", log.folder, self._lake)
        self._target = DeltaTarget(spark, self._lake, "test")
        self._clock = BatchClock(ChangeLogReader(log.folder), Limits(max_rows, 1 << 40), 0.0)

    def run(self) -> None:
        """Apply, batch by batch, what the log has to give."""
        applier = Applier(self._options, self._target)
        try:
            begin = applier.begin().from_scn
            while (end := self._clock.due(begin)) is not None:
                applier.process(begin, end)
                begin = end
        finally:
            applier.close()
        assert not applier.failing

    def versions(self, schema: TableSchema) -> list[Snapshot]:
        table = DeltaTable(self._lake / schema.table.schema / schema.table.name)
        return [table.snapshot(number) for number in range(table.snapshot().version + 1)]

    def states(self, schema: TableSchema) -> list[Counter[tuple[object, ...]]]:
        """Return the rows of every version that a table has had."""
        rows = [held.to_table().to_pylist() for held in self.versions(schema)]
        return [Counter(tuple(row.values()) for row in held) for held in rows]

    def stored(self, schema: TableSchema) -> set[int]:
        """Return every position that is kept: in the ledger, by frontiers and their tables, and for retention."""
        frontier = FrontierStore(self._lake, "test")
        found = set(jobs(self._options.changelog).values())
        for manifest in frontier.list():
            found.add(manifest.scn)
            found.update(entry.applied_scn for entry in manifest.tables.values())
        for held in self.versions(schema):
            found.update(held.transactions.values())
        return found


@req("C48")
def test_a_transaction_cut_behind_the_seventh_event_is_not_shown_before_its_end(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    """The design's own case: with one of two renamings applied there would be an Alyce beside an Alice."""
    job = Job(spark, log, tmp_path)
    one, two, three, four = KEYLESS.split("|")
    for transaction in (one, two):
        log.write(BAG, transaction)
    # Events 7 and 8 are the two updates of the third transaction, of two rows each.
    write(log, BAG, three, [2], 0)
    legal = legal_states(BAG, KEYLESS)
    job.run()
    assert job.states(BAG)[-1] == legal[2]
    write(log, BAG, three, [2, 4], 1)
    log.write(BAG, four)
    log.complete(BAG)
    job.run()
    shown = job.states(BAG)
    assert shown[-1] == legal[-1] == Counter({(0, "Bob"): 1})
    assert [state for state in shown if state not in legal] == []
    # Each was shown: the batches were as small as they may be.
    assert all(state in shown for state in legal)


@req("C56", "C57", "T14")
def test_every_position_that_is_stored_lies_between_transactions(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    rng = random.Random(5)
    job, schema = Job(spark, log, tmp_path, max_rows=3), table_of(2)
    ends, sizes, key = [0], {}, 0
    for _ in range(3):
        for _ in range(5):
            count = rng.choice((1, 2, 7))
            rows = " ".join(f"+I({key + n},a)" for n in range(count))
            cuts = [*sorted(rng.sample(range(1, count), min(count - 1, 2))), count]
            ends.append(write(log, schema, rows, cuts, 0))
            sizes[ends[-1]], key = count, key + count
        # One more has begun.
        rows = " ".join(f"+I({key + n},b)" for n in range(4))
        scn = write(log, schema, rows, [2], 0)
        job.run()
        assert scn not in job.stored(schema)
        assert job.states(schema)[-1].total() == key
        write(log, schema, rows, [2, 4], 1)
        ends.append(scn)
        sizes[scn], key = 4, key + 4
    log.complete(schema)
    job.run()
    stored = job.stored(schema)
    assert stored <= {*ends, log.scn}
    assert len(stored) > 6
    # And what a version holds is whole transactions, of which a batch may take several.
    totals = [state.total() for state in job.states(schema)]
    whole = list(itertools.accumulate((sizes[end] for end in ends[1:]), initial=0))
    assert set(totals) <= set(whole)
    assert any(whole.index(b) - whole.index(a) > 1 for a, b in itertools.pairwise(totals))
