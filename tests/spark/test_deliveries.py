"""How often a target is handed each change: once while nothing fails, and none at or below a stored position."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.changelog import ChangeLogReader
from headrace.changelog.jobs import jobs
from headrace.errors import HeadraceError
from headrace.model.schema import TableId
from headrace.observe.failpoints import arm, disarm
from headrace.spark.targets.base import TableBatch, TargetState
from headrace.spark.targets.parquet import ParquetTarget
from headrace.testing.lives import random_life
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import lent
from tests.spark.test_apply import Bench as DeltaBench
from tests.spark.test_numbers import PLACES
from tests.spark.test_parquet import Bench, Crash, crash

pytestmark = pytest.mark.spark

TABLES = tuple(table_of(2, name=name) for name in ("one", "two"))

Place = tuple[TableId, int, int]


class Recording(ParquetTarget):
    """Files of changes, and a record of each change that was handed over.

    Attributes:
        handed: table, SCN and ordinal of each, in order.
    """

    def __init__(self, spark: SparkSession, lake: Path) -> None:
        super().__init__(spark, lake, "test")
        self.handed: list[Place] = []

    def apply(self, batches: Sequence[TableBatch]) -> list[TargetState | HeadraceError]:
        for batch in batches:
            read = batch.folded.inside()
            assert read is not None
            for rows in read():
                places = zip(rows["_scn"].to_pylist(), rows["_ord"].to_pylist(), strict=True)
                self.handed += [(batch.schema.table, scn, order) for scn, order in places]
        return super().apply(batches)


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


def written(bench: Bench, rng: random.Random, count: int) -> tuple[list[int], Counter[Place]]:
    """Write random transactions of both tables; return their SCNs and the places of their changes."""
    ends, places = [], Counter[Place]()
    for number in range(count):
        schema = TABLES[number % 2]
        life = random_life(schema, rng, 2)
        ends.append(bench.log.write(schema, " | ".join(one.notation for one in life)))
    for block in ChangeLogReader(bench.log.folder).blocks(0):
        for body in block.bodies:
            ids = zip(body.batch["_scn"].to_pylist(), body.batch["_ord"].to_pylist(), strict=True)
            places.update((body.table, *place) for place in ids)
        places.update((event.table, event.scn, event.ord) for event in block.system)
    return ends, places


def kept(bench: Bench) -> Counter[Place]:
    """Return the places of all changes that readers of the files find."""
    return Counter(
        (schema.table, row[3], row[4]) for schema in TABLES for row in bench.rows(schema).elements()
    )


@req("C27")
def test_each_change_is_handed_over_once_while_nothing_fails_and_again_after_a_failure(
    bench: Bench,
) -> None:
    rng = random.Random(4)
    bench.target = target = Recording(bench.spark, bench.lake)
    ends, places = written(bench, rng, 6)
    # Two processes one behind the other, which end when they have finished their batches.
    bench.run(*sorted(rng.sample(ends[:4], 2)))
    bench.run(*sorted(rng.sample(ends, 2)), bench.log.scn)
    assert Counter(target.handed) == places
    ends, places = written(bench, rng, 4)
    for place in PLACES[:3]:
        arm(place, crash)
        with pytest.raises(Crash):
            bench.run(bench.log.scn)
        disarm()
    bench.run(*ends)
    handed = Counter(target.handed)
    assert handed.keys() == places.keys()
    assert handed.total() > places.total()
    assert kept(bench) == places == Counter(dict.fromkeys(places, 1))


@req("C28", "C85")
def test_nothing_at_or_below_a_stored_position_is_handed_over_again(bench: Bench) -> None:
    """A table's stands in its newest commit; that of the job, for retention, is at most the lowest."""
    rng = random.Random(6)
    skipped = 0
    for place in rng.sample(PLACES, len(PLACES)):
        ends, places = written(bench, rng, 3)
        bench.target = target = Recording(bench.spark, bench.lake)
        stored = {schema.table: target.state(schema.table) for schema in TABLES}
        applied = {table: state.applied_scn if state else 0 for table, state in stored.items()}
        registered = jobs(bench.log.folder).get("test", 0)
        arm(place, crash)
        with pytest.raises(Crash):
            bench.run(ends[0], bench.log.scn)
        disarm()
        assert all(scn > max(applied[table], registered) for table, scn, _ in target.handed)
        skipped += sum(registered < scn <= applied[table] for table, scn, _ in places)
    # Some had a table that was ahead of what the job was known to have.
    assert skipped
    bench.run(bench.log.scn)
    assert kept(bench) == written(bench, rng, 0)[1]


@req("C26")
def test_no_position_is_stored_before_its_rows_are_durable(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Looked at from outside at every failpoint: the ledger, the frontier and the job's position."""
    bench = DeltaBench(spark, tmp_path)
    one, two = TABLES
    scns: dict[TableId, list[int]] = {one.table: [], two.table: []}
    looks: Counter[str] = Counter()

    def holds(name: str) -> None:
        looks[name] += 1
        frontier, position = bench.frontier.latest(), jobs(bench.log.folder).get("test", 0)
        for schema in TABLES:
            state = bench.target.state(schema.table)
            now = {row[0] for row in bench.rows(schema)} if state else set()
            told = max(position, state.applied_scn if state else 0)
            assert now >= {scn for scn in scns[schema.table] if scn <= told}, name
            entry = frontier.tables.get(str(schema.table)) if frontier else None
            if frontier and entry and entry.version >= 0:
                then = {row[0] for row in bench.rows(schema, entry.version)}
                assert then == {scn for scn in scns[schema.table] if scn <= frontier.scn}, name

    for number in range(6):
        schema = TABLES[number % 2]
        scn = bench.log.following
        scns[schema.table].append(bench.log.write(schema, f"+I({scn},a)"))
    ends = [scns[one.table][0], scns[two.table][1], bench.log.scn]
    for name in PLACES:
        arm(name, lambda name=name: holds(name))  # type: ignore[misc]
    try:
        bench.run(*ends[:2])
        bench.run(ends[2])
    finally:
        disarm()
        bench.log.writer.close()
    holds("the end")
    assert all(looks[name] >= 3 for name in PLACES)
    assert jobs(bench.log.folder) == {"test": ends[2]}
