"""Tables of a hundred thousand rows through random histories, cuts and crashes, into every implementation.

Small histories find wrong rules. These find what only comes with size: many files and vectors over one table, rows that
move between files, batches in several tasks.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.model.block import Body, SystemEvent, SystemKind
from headrace.observe.failpoints import arm, disarm
from headrace.spark.apply import ApplyOptions
from headrace.testing.notation import Cell, Row, change_batch, table_of
from tests.requirements import req
from tests.spark.folded import run_to
from tests.spark.log import Log, lent
from tests.spark.subjects import ALL, BUCKET, Subject, made

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ROWS, PARTS, CHANGES = 100_000, 4, 8
TOUCHED, INSERTED = 6_000, 2_000
WORDS = ("a word", "another", "", None)
CRASHES = ("apply.before_commit", "apply.after_commit")


class Crash(BaseException):
    """The process ends here."""


class Life:
    """One table: filled in parts, then changed in transactions of thousands of rows."""

    def __init__(self, seed: int) -> None:
        self.schema = table_of(3, name=f"large{seed}")
        self._random = Random(seed)
        self._rows: dict[int, tuple[Cell, Cell]] = {}
        self._fresh = itertools.count()
        self._truncates_at = self._random.choice([None, None, PARTS + 2])

    def transaction(self, number: int) -> tuple[list[tuple[str, tuple[Cell, ...]]], bool]:
        """Return the changes of the next transaction, and whether it empties the table first."""
        made: list[tuple[str, tuple[Cell, ...]]] = []
        truncates = number == self._truncates_at
        if truncates:
            self._rows.clear()
        if number < PARTS or truncates:
            self._insert(ROWS // PARTS, made)
            return made, truncates
        self._change(made)
        self._insert(INSERTED, made)
        return made, False

    def truth(self) -> Counter[tuple[Any, ...]]:
        return Counter((key, *cells) for key, cells in self._rows.items())

    def _word(self) -> Cell:
        return self._random.choice(WORDS)

    def _insert(self, count: int, made: list[tuple[str, tuple[Cell, ...]]]) -> None:
        for _ in range(count):
            key = next(self._fresh)
            self._rows[key] = cells = self._word(), f"row {key}"
            made.append(("+I", (key, *cells)))

    def _change(self, made: list[tuple[str, tuple[Cell, ...]]]) -> None:
        """Let something happen to thousands of rows, each key chosen once."""
        keys = iter(self._random.sample(sorted(self._rows), TOUCHED))
        for key in keys:
            kind = self._random.choice(["update", "in place", "move", "delete", "again", "swap"])
            old = self._rows[key]
            new = self._word(), old[1]
            if kind == "update":
                self._rows[key] = new
                made += [("-U", (key, *old)), ("+U", (key, *new))]
            elif kind == "in place":
                self._rows[key] = new
                made.append(("=U", (key, new[0], "?")))
            elif kind == "move":
                to = next(self._fresh)
                del self._rows[key]
                self._rows[to] = new
                made += [("-U", (key,)), ("+U", (to, new[0], "?"))]
            elif kind == "delete":
                del self._rows[key]
                made.append(("-D", (key, *old)))
            elif kind == "again":
                self._rows[key] = new
                made += [("-D", (key, *old)), ("+I", (key, *new))]
            elif (other := next(keys, None)) is not None:
                aside, theirs = next(self._fresh), self._rows[other]
                self._rows[key], self._rows[other] = theirs, old
                made += [
                    ("-U", (key, *old)),
                    ("+U", (aside, *old)),
                    ("-U", (other, *theirs)),
                    ("+U", (key, *theirs)),
                    ("-U", (aside, *old)),
                    ("+U", (other, *old)),
                ]


class Bench:
    def __init__(self, subject: Subject, folder: Path) -> None:
        self.subject = subject
        self.log = Log(folder / "changelog")
        self.options = ApplyOptions("test", self.log.folder, subject.lake)

    def write(self, lives: list[Life], number: int) -> int:
        """Append one transaction of all tables and return its SCN."""
        scn = self.log.following
        bodies, events = [], []
        for life in lives:
            made, truncates = life.transaction(number)
            if truncates:
                events.append(SystemEvent(scn, 0, SystemKind.TRUNCATE, life.schema.table))
            rows: list[Row] = [(scn, at, op, cells) for at, (op, cells) in enumerate(made, start=1)]
            bodies.append(
                Body(
                    self.log.registry.put(life.schema),
                    life.schema.table,
                    change_batch(life.schema, rows),
                )
            )
        return self.log.batch(*bodies, events=tuple(events))

    def run(self, *ends: int) -> None:
        assert not run_to(self.options, self.subject.make(), *ends).failing


@pytest.fixture
def bench(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(made(request.param, request, spark, tmp_path), tmp_path))


def live(bench: Bench, seeds: range) -> None:
    """Take lives through one implementation as tables of the same batches."""
    lives, random = [Life(seed) for seed in seeds], Random(seeds.start)
    scns = [bench.write(lives, number) for number in range(PARTS + CHANGES)]
    ends = [*sorted(random.sample(scns[:-1], 4)), scns[-1]]
    crashes = dict(zip(random.sample(range(len(ends)), 2), CRASHES, strict=True))
    for place, end in enumerate(ends):
        if place in crashes:
            crash_in(bench, crashes[place], random.randint(1, len(lives)), end)
        bench.run(end)
    for life in lives:
        assert bench.subject.content(life.schema) == life.truth(), life.schema.table


def crash_in(bench: Bench, where: str, at_most: int, end: int) -> None:
    """End a process at a step of one of its tables; it may be through before."""
    passed = itertools.count(1)

    def crash() -> None:
        if next(passed) >= at_most:
            raise Crash

    arm(where, crash)
    try:
        bench.run(end)
    except Crash:
        pass
    finally:
        disarm()


@req("F1", "C43", "C50")
@pytest.mark.parametrize("bench", ["delta", "duckdb"], indirect=True)
def test_a_life_of_a_hundred_thousand_rows_ends_as_at_the_source(bench: Bench) -> None:
    live(bench, range(1))


@pytest.mark.long
@req("F1", "C43", "C50")
@pytest.mark.parametrize(
    "bench",
    [pytest.param(k, marks=pytest.mark.object_store) if k == BUCKET else k for k in ALL],
    indirect=True,
)
def test_twenty_lives_of_a_hundred_thousand_rows_end_as_at_the_source(bench: Bench) -> None:
    live(bench, range(20))
