"""Numbers of changes: each is counted once, when it is committed, whatever the cut, the crash and the replay."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.changelog import ChangeLogReader
from headrace.errors import MissingBase
from headrace.model.block import ORIGIN_LOG, Block, Body, transaction_index
from headrace.model.schema import TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.spark.apply import Applier
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.requirements import req
from tests.spark.log import lent
from tests.spark.test_apply import Bench, Crash

pytestmark = pytest.mark.spark

PLACES = (
    "apply.before_commit",
    "apply.files_written",
    "apply.after_commit",
    "apply.before_manifest",
    "apply.after_manifest",
)
TABLE, OTHER = table_of(3), table_of(2, name="other")


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


def crash() -> None:
    raise Crash


def in_one_block(bench: Bench, schema: TableSchema, history: str) -> list[int]:
    """Append the transactions of one table in one block and return their SCNs, which follow each other."""
    log = bench.log
    rows = parse_history(history, log.following).rows
    scns = [scn for scn, *_ in rows]
    ends = sorted(set(scns))
    index = transaction_index(
        [(end, log.commit_us(end), end, scns.count(end), ORIGIN_LOG, 1) for end in ends]
    )
    body = Body(log.registry.put(schema), schema.table, change_batch(schema, rows))
    log.writer.append(Block(index, (body,), (), ends[-1]))
    log.writer.sync()
    log.scn = ends[-1]
    return ends


def places(bench: Bench) -> list[int]:
    """Return the SCN of each change row and system event that the log holds."""
    found = []
    for block in ChangeLogReader(bench.log.folder).blocks(0):
        found += [event.scn for event in block.system]
        found += [scn for body in block.bodies for scn in body.batch["_scn"].to_pylist()]
    return found


@req("C35", "C36")
def test_changes_are_numbered_densely_whatever_the_cut_and_the_crash(bench: Bench) -> None:
    """A frontier tells the number of its last change, which is how many the log holds up to there, and publishes it."""
    rng = random.Random(2)
    ends = in_one_block(bench, TABLE, "+I(1,a,b) +I(2,c,d) | =U(1,x,?) | -U(2) +U(3,y,?)")
    ends += [bench.log.write(OTHER, "+I(1,a) | +I(2,b) | T | +I(3,c)"), bench.log.complete(OTHER)]
    ends.append(bench.log.complete(TABLE))
    ends += in_one_block(bench, TABLE, "+I(7,a,b) | =U(7,x,?) | -D(7) | +I(8,a,b)")
    seen: list[tuple[int, int]] = []

    def live(*cuts: int) -> None:
        applier = bench.run(*cuts)
        seen.append((applier.status.frontier_scn, applier.status.frontier_changes))
        assert applier.status.to_json()["frontier_changes"] == seen[-1][1]

    for key, place in enumerate(rng.sample(PLACES, len(PLACES)), 100):
        ends.append(bench.log.write(OTHER, f"+I({key},x)"))
        arm(place, crash)
        with pytest.raises(Crash):
            live(*sorted(rng.sample(ends[:-1], 2)), bench.log.scn)
        disarm()
        live(*sorted(rng.sample(ends, 2)))
    # A table that is left behind has the next process begin below the frontier.
    ends.append(bench.log.write(TABLE, "=U(50,x,?)"))
    for key in (200, 201):
        ends.append(bench.log.write(OTHER, f"+I({key},x)"))
        live(ends[-1])
    ends.append(bench.log.write(TABLE, "+R(50,x,y)"))
    live(ends[-1])
    told = places(bench)
    published = [(one.scn, one.changes) for one in bench.frontier.list()]
    assert len(published) > 5
    assert published == [(scn, sum(at <= scn for at in told)) for scn, _ in published]
    assert seen[-1] == published[-1] == (bench.log.scn, len(told))
    # Everything once more, from the very beginning: the numbers are the same.
    shutil.rmtree(bench.lake / "_headrace")
    live(bench.log.scn)
    assert seen[-1] == published[-1]


@req("C35")
def test_batches_that_publish_no_frontier_are_counted_by_the_next_one(bench: Bench) -> None:
    bench.run(bench.log.write(TABLE, "+I(1,a,b)"))
    bench.run(bench.log.write(OTHER, "+I(1,a)"))
    middle = bench.log.write(TABLE, "+I(2,a,b) +I(3,a,b)")
    end = bench.log.write(OTHER, "+I(2,a)")
    arm("apply.before_manifest", crash)
    with pytest.raises(Crash):
        bench.run(end)
    disarm()
    applier = Applier(bench.options, bench.target)
    start = applier.begin()
    # Both tables are at the end: nothing is told of the way there.
    for before, after in ((start.from_scn, middle), (middle, end)):
        applier.process(before, after)
    applier.close()
    assert [one.changes for one in bench.frontier.list()] == [1, 2, 5]


@req("T20")
def test_rows_are_counted_once_when_they_are_committed(bench: Bench) -> None:
    first, second, third = in_one_block(
        bench, TABLE, "+I(1,a,b) +I(2,c,d) +I(3,e,f) | =U(1,x,?) | -U(2) +U(4,y,?)"
    )
    # Each batch reads the block, and commits its part of it.
    counts = [bench.run(end).status.tables["public.t"].rows for end in (first, second, third)]
    assert counts == [3, 1, 2]
    # Everything once more, from the very beginning: it is committed already.
    shutil.rmtree(bench.lake / "_headrace")
    assert bench.run(bench.log.scn).status.tables["public.t"].rows == 0


@req("T20")
def test_an_attempt_that_fails_counts_nothing_and_a_replay_is_no_sample_again(bench: Bench) -> None:
    bench.log.commit_us = lambda scn: scn * 1_000_000
    bench.options = replace(bench.options, freshness=bench.lake.parent / "freshness.jsonl")
    for schema in (TABLE, OTHER):
        bench.log.write(schema, "+I(1,a,b)" if schema is TABLE else "+I(1,a)")
        bench.log.complete(schema)
    ends = [bench.log.scn, bench.log.write(TABLE, "=U(2,x,?) | +I(5,q,r)")]
    ends.append(bench.log.write(OTHER, "+I(2,b)"))
    applier = bench.run(*ends)
    (error,) = applier.failing
    assert isinstance(error, MissingBase)
    assert {name: table.rows for name, table in applier.status.tables.items()} == {
        "public.t": 1,
        "public.other": 2,
    }
    # The next one begins where the table was left behind, and reads again what the frontier shows of the others.
    bench.log.write(TABLE, "+R(2,x,z)")
    applier = bench.run(bench.log.scn)
    assert not applier.failing
    assert {name: table.rows for name, table in applier.status.tables.items()} == {
        "public.t": 3,
        "public.other": 0,
    }
    assert bench.options.freshness is not None
    lines = [json.loads(line) for line in bench.options.freshness.read_text().splitlines()]
    sampled = [at_us // 1_000_000 for line in lines for at_us, _ in line["samples"]]
    assert sampled == [int(scn) for scn in ChangeLogReader(bench.log.folder).index(0)["scn"]]
