"""Somebody who reads all the time while batches are applied, and never sees half a transaction."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore
from headrace.lake.ledger import table_path
from headrace.model.block import Body
from headrace.observe.failpoints import arm
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.requirements import req
from tests.spark.log import Log, lent
from tests.spark.subjects import PIPELINE, Subject, made
from tests.spark.test_targets_in_time import Bench
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

LEFT, RIGHT = table_of(2, name="left"), table_of(2, name="right")
PAIRS = 8
Sides = tuple[set[int], set[int]]


class Reader:
    """Reads both tables again and again, in a thread.

    Args:
        look: returns the keys of both tables, None before there are any.
    """

    def __init__(self, look: Callable[[], Sides | None]) -> None:
        self._look = look
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="reader")
        self.seen: list[Sides] = []
        self.looks = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def look_once(self) -> None:
        """Return when a look that began after the call has ended."""
        after = self.looks + 2
        until(lambda: self.looks >= after or self.error is not None, "a look")

    def _work(self) -> None:
        try:
            while not self._stop.wait(0.001):
                if (sides := self._look()) is not None and sides not in self.seen[-1:]:
                    self.seen.append(sides)
                self.looks += 1
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            self.error = error


def look_at(subject: Subject) -> Callable[[], Sides | None]:
    """Return how a reader looks at both tables: at a frontier's versions, or in one statement."""
    if subject.kind == "delta":
        frontier = FrontierStore(subject.lake, PIPELINE)

        def at_frontier() -> Sides | None:
            manifest = frontier.latest()
            if manifest is None:
                return None
            left, right = (
                set(
                    DeltaTable(table_path(subject.lake, schema.table))
                    .snapshot(manifest.tables[str(schema.table)].version)
                    .to_table(["k"])["k"]
                    .to_pylist()
                )
                for schema in (LEFT, RIGHT)
            )
            return left, right

        return at_frontier

    def at_once() -> Sides | None:
        query = "SELECT 0, k FROM public.left UNION ALL SELECT 1, k FROM public.right"
        with psycopg.connect(subject.warehouse.url) as session:  # type: ignore[attr-defined]
            rows = session.execute(query).fetchall()
        return {k for side, k in rows if not side}, {k for side, k in rows if side}

    return at_once


@pytest.fixture
def bench(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(made(request.param, request, spark, tmp_path), tmp_path))


def transfer(log: Log, history: dict[str, str]) -> int:
    """Write one transaction over both tables."""
    bodies = [
        Body(
            log.registry.put(schema),
            schema.table,
            change_batch(schema, parse_history(history[schema.table.name], log.following).rows),
        )
        for schema in (LEFT, RIGHT)
    ]
    return log.batch(*bodies)


@req("C55")
@pytest.mark.parametrize("bench", ["delta", "postgres"], indirect=True)
def test_a_reader_that_looks_all_the_time_sees_no_half_of_a_transaction(bench: Bench) -> None:
    """Each transaction moves a pair of keys from one table to the other: all keys are there, once, and in pairs."""
    rng = random.Random(9)
    keys = range(2 * PAIRS)
    begun = transfer(
        bench.log,
        {
            "left": " ".join(f"+I({key},a)" for key in keys),
            # A row that stays, so that both tables are there from the beginning.
            "right": "+I(-1,a)",
        },
    )
    bench.log.complete(LEFT)
    bench.log.complete(RIGHT)
    bench.run(bench.log.scn)
    truth = [(set(keys), {-1})]
    ends = [begun]
    for _ in range(8):
        pair = rng.randrange(PAIRS)
        moved = (2 * pair, 2 * pair + 1)
        left, right = (set(side) for side in truth[-1])
        to_right = moved[0] in left
        ops = ("-D({})", "+I({},a)") if to_right else ("+I({},a)", "-D({})")
        texts = [" ".join(op.format(key) for key in moved) for op in ops]
        ends.append(transfer(bench.log, dict(zip(("left", "right"), texts, strict=True))))
        truth.append(
            (left - {*moved}, right | {*moved}) if to_right else (left | {*moved}, right - {*moved})
        )
    with Reader(look_at(bench.subject)) as reader:
        for name in (
            "apply.before_commit",
            "apply.files_written",
            "apply.merged",
            "apply.after_commit",
        ):
            arm(name, reader.look_once)
        arm("apply.before_manifest", reader.look_once)
        bench.run(*ends[2:6:2], *ends[6:])
        reader.look_once()
    assert reader.error is None
    assert [sides for sides in reader.seen if sides not in truth] == []
    assert reader.seen[-1] == truth[-1]
    # It was there in between, too.
    assert len(reader.seen) > 3
