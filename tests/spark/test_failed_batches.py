"""Batches that fail and come again, to every implementation of the port: events are read twice, rows are right."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.errors import (
    HeadraceError,
    IncompatibleSchemaChange,
    MissingBase,
    Retry,
    TargetUnwritable,
)
from headrace.model.schema import KeyCheck
from headrace.observe.failpoints import arm, disarm
from headrace.spark import at_work
from headrace.spark.apply import Applier
from headrace.spark.targets.base import TableBatch, Target, TargetState
from headrace.testing.notation import table_of
from tests.places import local
from tests.requirements import req
from tests.spark.log import lent, model
from tests.spark.subjects import DIFFERENT, SQL, Subject, made
from tests.spark.test_targets_in_time import Bench

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

KEYED, BAG = table_of(3, name="keyed"), table_of(2, check=KeyCheck.NONE, name="bag")
PARTS = {
    KEYED: ["+I(1,a,b) +I(2,c,d)", "=U(1,x,?) | -U(2) +U(3,y,?)", "-U(3) +U(4,?,z)"],
    # To count one of these twice is to have another row.
    BAG: ["+I(1,a) +I(1,a)", "-D(1,a) +I(2,b)", "+I(2,b) +I(3,c)"],
}


@dataclass
class Faulty:
    """A target that, some times, ends batches with an error before or behind their commits.

    Attributes:
        target: the real one.
        fails: how often it goes on to fail.
        committed: whether the real one carries a failing batch out, and only the answer is lost.
        seen: rows of each table that were handed over, counted once for each time.
    """

    target: Target
    fails: int = 0
    committed: bool = False
    seen: Counter[str] = field(default_factory=Counter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def apply(self, batches: Sequence[TableBatch]) -> list[TargetState | HeadraceError]:
        for batch in batches:
            self.seen[batch.schema.table.name] += batch.folded.rows
        if not self.fails:
            return self.target.apply(batches)
        self.fails -= 1
        if self.committed:
            outcomes = self.target.apply(batches)
            assert not any(isinstance(outcome, HeadraceError) for outcome in outcomes)
        refused = TargetUnwritable("The answer was lost.", next_step="it is tried again.")
        return [refused for _ in batches]


@pytest.fixture(params=DIFFERENT)
def subject(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Subject:
    return made(request.param, request, spark, tmp_path)


@pytest.fixture
def bench(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Give an implementation, where a failed table is due again at once."""
    monkeypatch.setattr(at_work, "_RETRY_FROM_S", 0.0)
    yield from lent(Bench(subject, tmp_path))


def begun(bench: Bench) -> int:
    """Apply the first part of every history, dumps complete, and write the second."""
    for schema, histories in PARTS.items():
        bench.log.write(schema, histories[0])
        bench.log.complete(schema)
    bench.run(bench.log.scn)
    return write(bench, 1)


def write(bench: Bench, part: int) -> int:
    for schema, histories in PARTS.items():
        bench.log.write(schema, histories[part])
    return bench.log.scn


def expect(bench: Bench, parts: int) -> None:
    for schema, histories in PARTS.items():
        assert bench.subject.content(schema) == model(schema, *histories[:parts]), schema.table


@req("C64", "C-12")
@pytest.mark.parametrize(
    ("committed", "later"),
    [(False, True), (True, False), (True, True)],
    ids=["refused", "answer lost", "answer lost and more to do"],
)
def test_a_batch_that_fails_is_read_again_from_the_position_of_its_tables(
    bench: Bench, committed: bool, later: bool
) -> None:
    """The offset to go back to is the ledger's, which the commit itself moves: what it took is not taken twice."""
    middle = begun(bench)
    target = Faulty(bench.subject.make(), fails=1, committed=committed)
    applier = Applier(bench.options, target)
    start = applier.begin().from_scn
    applier.process(start, middle)
    assert len(applier.failing) == len(PARTS)
    once = Counter(target.seen)
    # Readers see all of the batch or none of it, and a frontier that says which tables failed.
    expect(bench, 2 if committed else 1)
    manifest = bench.frontier.latest()
    assert manifest
    assert {entry.state for entry in manifest.tables.values()} == {"failing"}
    end = write(bench, 2) if later else middle
    applier.process(middle, end)
    applier.close()
    assert not applier.failing
    expect(bench, 3 if later else 2)
    again = target.seen - once
    if not committed:
        assert all(again[name] > once[name] for name in once)
    # The frontier leads to the rows, and a restart, which asks the ledger alone, finds nothing to do.
    versions = [bench.subject.make().state(schema.table) for schema in PARTS]
    manifest = bench.frontier.latest()
    assert manifest
    entries = [manifest.tables[str(schema.table)] for schema in PARTS]
    assert [(e.state, e.version) for e in entries] == [("live", v.version) for v in versions if v]
    bench.run(end)
    assert [bench.subject.target.state(schema.table) for schema in PARTS] == versions


BIG = 10_000
TRIES = 4


def held(spark: SparkSession) -> tuple[int, int]:
    """Return the bytes that Arrow holds in the driver, and the most that it holds in a worker."""

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch([pa.array([pa.total_allocated_bytes()])], names=["bytes"])

    rows = spark.range(0, 4, 1, 4).mapInArrow(ask, "bytes BIGINT").collect()
    return pa.total_allocated_bytes(), max(row.bytes for row in rows)


@req("C65")
@pytest.mark.parametrize(
    "subject",
    ["delta", "postgres", pytest.param("duckdb", marks=pytest.mark.long)],
    indirect=True,
)
def test_a_batch_that_fails_again_and_again_leaves_nothing_in_memory(
    bench: Bench, spark: SparkSession
) -> None:
    """Of what was not committed, driver, workers and warehouse hold as much behind the last try as behind the first."""
    # While one table goes on, the job does.
    for schema, history in ((KEYED, "+I(1,a,b)"), (BAG, "+I(1,a)")):
        bench.log.write(schema, history)
        bench.log.complete(schema)
    bench.run(bench.log.scn)
    rows = " ".join(f"+I({key},{'x' * 100}{key},.)" for key in range(2, BIG))
    end = bench.log.write(KEYED, f"{rows} =U({BIG},patch,?)")
    applier = Applier(bench.options, bench.subject.make())
    # What this process and the workers hold of the tests before is none of the batch.
    before = held(spark)
    applier.process(applier.begin().from_scn, end)
    sizes, arrow = [], []
    tracemalloc.start()
    for _ in range(TRIES):
        applier.retry(end)
        (error,) = applier.failing
        assert isinstance(error, MissingBase)
        sizes.append(tracemalloc.get_traced_memory()[0])
        arrow.append(held(spark))
    tracemalloc.stop()
    applier.close()
    batch = BIG * 100
    assert sizes[-1] - sizes[0] < batch / 4
    more = [now - then for pair in arrow for now, then in zip(pair, before, strict=True)]
    assert max(more) < batch / 4
    if bench.subject.kind in SQL:
        with bench.subject.warehouse.opened() as session:
            staged = "table_schema = 'headrace' AND table_name <> 'ledger'"
            query = f"SELECT table_name FROM information_schema.tables WHERE {staged}"
            assert not session.rows(query)


class Crash(BaseException):
    """The process ends here."""


@req("C-14")
def test_a_first_copy_that_is_broken_off_is_redone_without_doubles(bench: Bench) -> None:
    """Capture redoes the unfinished chunk alone; apply bears a copy that begins anew, rows changed in between."""
    whole = table_of(2, check=KeyCheck.DEFERRED, name="whole")
    first = bench.log.write(KEYED, "+R(1,a,b) +R(2,c,d)")
    bench.log.write(whole, "+R(1,a) +R(2,b)")
    # A table without a key comes in one window, which begins with a truncate.
    middle = bench.log.write(BAG, "T +I(1,a) +I(1,a)")

    def crash() -> None:
        raise Crash

    arm("apply.after_commit", crash)
    with pytest.raises(Crash):
        bench.run(first, middle)
    disarm()
    bench.run(middle)
    bench.log.write(KEYED, "-D(1) | =U(2,x,?)")
    bench.log.write(whole, "-U(2,b) +U(3,b)")
    bench.log.write(BAG, "-D(1,a)")
    for _ in range(2):
        bench.log.write(KEYED, "+R(2,x,d) +R(5,e,f)")
        bench.log.write(whole, "+R(1,a) +R(3,b)")
        bench.log.write(BAG, "T +I(1,a) +I(4,c)")
    for schema in (KEYED, whole, BAG):
        bench.log.complete(schema)
    arm("apply.before_manifest", crash)
    with pytest.raises(Crash):
        bench.run(bench.log.scn)
    disarm()
    applier = bench.run(bench.log.scn)
    assert not applier.failing
    assert {table.state for table in applier.status.tables.values()} == {"live"}
    assert bench.subject.content(KEYED) == {(2, "x", "d"): 1, (5, "e", "f"): 1}
    assert bench.subject.content(whole) == {(1, "a"): 1, (3, "b"): 1}
    assert bench.subject.content(BAG) == {(1, "a"): 1, (4, "c"): 1}


@req("C-15", "C60")
@pytest.mark.parametrize("subject", ["delta"], indirect=True)
def test_a_change_of_columns_that_cannot_pass_stops_and_one_that_can_is_tried_until_it_does(
    bench: Bench,
) -> None:
    """What time heals starts the job again without end; what a person has to heal ends it, and says how."""
    folder = bench.options.lake / KEYED.table.schema / KEYED.table.name
    place = local(folder)
    place.parent.mkdir(parents=True)
    place.write_text("in the way")
    bench.log.announce(KEYED)
    end = bench.log.write(KEYED, "+I(1,a,b)")

    def ended(end: int) -> HeadraceError:
        applier = Applier(bench.options, bench.subject.make())
        applier.process(applier.begin().from_scn, end)
        try:
            for _ in range(10):
                applier.retry(end)
        except HeadraceError as error:
            return error
        finally:
            applier.close()
        raise AssertionError("the job goes on")

    passing = ended(end)
    assert (type(passing), passing.retry) == (TargetUnwritable, Retry.TIMED)
    applier = Applier(bench.options, bench.subject.make())
    applier.process(applier.begin().from_scn, end)
    assert applier.failing
    place.unlink()
    applier.retry(end)
    applier.close()
    assert not applier.failing
    assert bench.subject.content(KEYED) == {(1, "a", "b"): 1}

    *kept, last = KEYED.columns
    other = replace(KEYED, columns=(*kept, replace(last, type=pa.binary(), source_type="bytea")))
    bench.log.announce(other)
    lasting = ended(bench.log.write(other, "+I(2,c,d)"))
    assert (type(lasting), lasting.retry) == (IncompatibleSchemaChange, Retry.MANUAL)
    assert "public.keyed.c2" in lasting.message
    assert lasting.next_step
    assert bench.subject.content(KEYED) == {(1, "a", "b"): 1}
