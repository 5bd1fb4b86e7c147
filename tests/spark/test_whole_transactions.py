"""Transactions that the log holds in pieces: no batch, no stored position and no version of a table divides one."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.changelog.jobs import jobs
from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore
from headrace.model.block import ORIGIN_LOG, Block, Body, transaction_index
from headrace.model.schema import KeyCheck, TableSchema
from headrace.spark.job import ApplySettings, run_apply
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.requirements import req
from tests.spark.log import Log
from tests.spark.test_apply import KEYLESS, legal_states

pytestmark = pytest.mark.spark

BAG = table_of(2, check=KeyCheck.NONE, name="bag")
LIMIT_S = 500.0


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
    """The apply job, whose batches are to be as small as may be; it comes and goes."""

    def __init__(self, spark: SparkSession, log: Log, folder: Path) -> None:
        self._spark = spark
        self._log = log
        self.settings = ApplySettings(
            pipeline="test",
            changelog=log.folder,
            lake=folder / "lake",
            spark_dir=folder / "spark",
            trigger_s=0.0,
            max_rows_per_batch=1,
        )

    def run(self) -> None:
        """Work until the frontier has reached the last transaction that is whole."""
        stop = threading.Event()
        timer = threading.Timer(LIMIT_S, stop.set)
        timer.start()
        try:
            goal = replace(self.settings, stop_at_scn=self._log.scn)
            run_apply(goal, stop, spark=self._spark)
        finally:
            timer.cancel()
        assert not stop.is_set(), "the job did not reach its goal in time"

    def table(self, schema: TableSchema) -> DeltaTable:
        assert isinstance(self.settings.lake, Path)
        return DeltaTable(self.settings.lake / schema.table.schema / schema.table.name)

    def states(self, schema: TableSchema) -> list[Counter[tuple[object, ...]]]:
        """Return the rows of every version that a table has had."""
        table = self.table(schema)
        versions = (table.snapshot(n) for n in range(table.latest_version() + 1))
        return [Counter(tuple(r.values()) for r in v.to_table().to_pylist()) for v in versions]

    def stored(self, schema: TableSchema) -> set[int]:
        """Return every position that anything has kept: ledger, frontiers, retention, and Spark's own checkpoint."""
        table = self.table(schema)
        found = set(jobs(self.settings.changelog).values())
        found.update(FrontierStore(self.settings.lake, "test").scns())
        for number in range(table.latest_version() + 1):
            found.update(table.snapshot(number).transactions.values())
        for file in self.settings.spark_dir.glob("checkpoints/*/offsets/*"):
            lines = file.read_text().splitlines()
            found.update(json.loads(line)["scn"] for line in lines if line.startswith('{"scn"'))
        return found


@req("C48")
def test_a_transaction_cut_behind_the_seventh_event_is_not_shown_before_its_end(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    """The design's own case: with one of two renamings applied there would be an Alyce beside an Alice, as never was."""
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
    job, schema = Job(spark, log, tmp_path), table_of(2)
    job.settings = replace(job.settings, max_rows_per_batch=3)
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
