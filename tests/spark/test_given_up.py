"""A table that goes on to fail is tried for as long as was asked for, on a simulated clock; the others go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import RetriesExhausted, Retry
from headrace.spark.apply import Applier
from headrace.spark.at_work import Patience
from headrace.testing.notation import table_of
from tests.places import local
from tests.requirements import req
from tests.spark.log import lent
from tests.spark.test_apply import Bench

pytestmark = pytest.mark.spark

HOUR_S = 3_600.0
GOOD, BAD = table_of(3, name="good"), table_of(3, name="bad")


class Life:
    """An applier, and a clock that goes by itself to where the next attempt is due."""

    def __init__(self, bench: Bench, patience: Patience) -> None:
        self.bench = bench
        self.now = 0.0
        options = replace(bench.options, patience=patience)
        self.applier = Applier(options, bench.target, clock=lambda: self.now)
        self.scn = self.applier.begin().from_scn

    def process(self, end: int) -> None:
        self.applier.process(self.scn, end)
        self.scn = end

    def wait(self, seconds: float, step: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + step)
            self.applier.retry(self.scn)

    @property
    def attempts(self) -> int:
        manifest = self.bench.frontier.latest()
        assert manifest is not None
        return manifest.tables[str(BAD.table)].counts.errors

    def said(self) -> dict[str, str]:
        found = self.applier.status.tables[str(BAD.table)]
        assert found.state == "failing"
        assert found.error is not None
        return found.error


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    """Give two live tables, and a change of one that lacks the row that it changes."""
    made = Bench(spark, tmp_path)
    for schema in (GOOD, BAD):
        made.log.write(schema, "+I(1,a,b)")
        made.log.complete(schema)
    made.run(made.log.scn)
    made.log.write(BAD, "=U(2,x,?)")
    yield from lent(made)


@req("C10", "C-4")
def test_a_table_is_tried_for_an_hour_then_given_up_while_the_others_go_on(bench: Bench) -> None:
    life = Life(bench, Patience(for_s=HOUR_S, longest_s=600.0))
    life.process(bench.log.scn)
    assert (life.said()["name"], life.said()["retry"]) == ("MissingBase", "timed")
    life.wait(HOUR_S - 1, step=60.0)
    assert (life.said()["name"], life.said()["retry"]) == ("MissingBase", "manual")
    # 1, 2, 4, … 512 s and then every ten minutes, at most: not every minute that the clock was looked at.
    assert 8 < life.attempts < 20

    life.wait(1_201.0, step=600.0)
    given_up = life.said()
    assert given_up["name"] == "RetriesExhausted"
    assert "retry.for_s is 3600" in given_up["message"]
    assert given_up["next_step"].endswith("then stop and start the replicator.")
    before = life.attempts
    life.wait(HOUR_S, step=600.0)
    assert life.attempts == before, "nobody tries any more"

    life.process(bench.log.write(GOOD, "+I(2,c,d)"))
    life.applier.close()
    assert bench.rows(GOOD) == Counter({(1, "a", "b"): 1, (2, "c", "d"): 1})
    assert life.applier.status.tables[str(GOOD.table)].state == "live"
    # The next start begins anew, and what a person did meanwhile has mended it.
    bench.run(bench.log.write(BAD, "+R(2,x,z)"))
    assert bench.rows(BAD) == Counter({(1, "a", "b"): 1, (2, "x", "z"): 1})


@req("C10")
def test_where_that_was_asked_for_the_job_ends_with_the_table(bench: Bench) -> None:
    life = Life(bench, Patience(for_s=60.0, longest_s=10.0, alone=False))
    life.process(bench.log.scn)
    life.wait(59.0, step=1.0)
    with pytest.raises(RetriesExhausted, match=r"public\.bad: given up after") as caught:
        life.wait(12.0, step=1.0)
    assert caught.value.retry is Retry.MANUAL, "the supervisor stops the replicator with it"
    life.applier.close()


@req("C60", "C62")
def test_an_hours_outage_of_one_target_is_over_within_one_pause(bench: Bench) -> None:
    """A file lies in the place of a new table's folder; the others go on."""
    other = table_of(3, name="other")
    place = local(bench.lake / "public" / "other")
    place.write_text("in the way")
    life = Life(bench, Patience(longest_s=30.0))
    bench.log.write(BAD, "+R(2,x,z)")
    bench.log.write(other, "+I(1,a,b)")
    bench.log.complete(other)
    life.process(bench.log.scn)
    life.wait(HOUR_S, step=30.0)
    states = {name: table.state for name, table in life.applier.status.tables.items()}
    assert states == {"public.good": "live", "public.bad": "live", "public.other": "failing"}
    away = life.applier.status.tables["public.other"].error
    assert away is not None
    assert away["retry"] == "timed", "time mends it, however long it takes"
    manifest = bench.frontier.latest()
    assert manifest is not None
    assert 100 < manifest.tables["public.other"].counts.errors < 130

    place.unlink()
    life.wait(30.0, step=30.0)
    life.process(bench.log.write(GOOD, "+I(2,c,d)"))
    life.applier.close()
    assert bench.rows(other) == Counter({(1, "a", "b"): 1})
    assert life.applier.status.tables["public.other"].state == "live"


def test_without_a_limit_there_is_no_end(bench: Bench) -> None:
    life = Life(bench, Patience())
    life.process(bench.log.scn)
    life.wait(30 * 24 * HOUR_S, step=HOUR_S * 24)
    assert life.said()["name"] == "MissingBase"
    life.applier.close()
