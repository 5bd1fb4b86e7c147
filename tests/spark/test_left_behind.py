"""A table that is left behind harms no other, and comes back as if it had been with them; on a simulated clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError, TargetConflict, TargetUnwritable
from headrace.lake.capabilities import DELTA
from headrace.lake.copies import Copy, CopyNeeded
from headrace.lake.errors import CorruptTable
from headrace.lake.frontier import FrontierStore
from headrace.lake.settings import TableSettings
from headrace.model.block import SystemKind
from headrace.model.schema import TableId, TableSchema
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.at_work import Patience
from headrace.spark.targets.base import TableBatch, TargetState
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import Log, lent

GOOD, BAD = table_of(2, name="good"), table_of(2, name="bad")


@dataclass
class Faulty:
    """A target that keeps positions alone, and fails where it is told to.

    Attributes:
        states: of its tables.
        steps: rows that each commit of a table took.
        refuses: what becomes of commits of the bad table; ``unread``: of looks at it; ``stays``: of its copy's end;
            ``unsaid``: of its copy's begin, once that is durable.
        recopied: whether the bad table follows its columns by a new copy alone.
        tries: ends of copies that were asked for.
    """

    states: dict[TableId, TargetState] = field(default_factory=dict)
    steps: dict[TableId, list[int]] = field(default_factory=dict)
    refuses: HeadraceError | None = None
    unread: HeadraceError | None = None
    stays: HeadraceError | None = None
    unsaid: HeadraceError | None = None
    recopied: bool = False
    tries: int = 0
    capabilities: Any = DELTA
    copies: Any = None

    def __post_init__(self) -> None:
        self.copies = self

    def session(self, _table: TableId) -> None:
        """Nothing is folded that nobody looks at."""

    def state(self, table: TableId) -> TargetState | None:
        if table == BAD.table and self.unread is not None:
            raise self.unread
        return self.states.get(table)

    def evolve(self, schema: TableSchema, _policies: object = None) -> TargetState:
        found = self.states.get(schema.table, TargetState(0, 0, 0))
        if schema.table == BAD.table and self.recopied and found.copy is None:
            raise CopyNeeded("another type", next_step="copy it again")
        return self._put(schema.table, found.applied_scn, schema.schema_id, found.copy)

    def apply(self, batches: list[TableBatch]) -> list[TargetState | HeadraceError]:
        return [self._applied(batch) for batch in batches]

    def _applied(self, batch: TableBatch) -> TargetState | HeadraceError:
        table = batch.schema.table
        if table == BAD.table and self.refuses is not None:
            return self.refuses
        self.steps.setdefault(table, []).append(batch.folded.rows)
        return self._put(table, batch.scn, batch.schema.schema_id, self.states[table].copy)

    def _put(self, table: TableId, scn: int, schema_id: int, copy: Copy | None) -> TargetState:
        state = self.states[table] = TargetState(scn, scn, schema_id, copy=copy)
        return state

    def begin_copy(self, schema: TableSchema, copy: Copy) -> TargetState:
        state = self._put(schema.table, copy.after_scn, schema.schema_id, copy)
        if self.unsaid is not None:
            raise self.unsaid
        return state

    def ask_again(self, table: TableId, request: str) -> TargetState:
        held = self.states[table]
        assert held.copy is not None
        copy = Copy(request, held.copy.after_scn)
        return self._put(table, held.applied_scn, held.schema_id, copy)

    def end_copy(self, table: TableId) -> TargetState:
        self.tries += 1
        if self.stays is not None:
            raise self.stays
        held = self.states[table]
        self.recopied = False
        return self._put(table, held.applied_scn, held.schema_id, None)

    def maintain(self, *_: object) -> dict[TableId, Any]:
        return {}

    def tidy(self, *_: object) -> None:
        pass


class Life:
    """An applier over a log of two tables, and a clock that goes by itself.

    Attributes:
        request: of the dump that comes for whoever asks.
    """

    def __init__(self, folder: Path, target: Faulty, patience: Patience, max_rows: int) -> None:
        self.now = 0.0
        self.request = "asked"
        self.target = target
        self.log = Log(folder / "changelog")
        self.write(GOOD)
        self.options = ApplyOptions(
            "test",
            self.log.folder,
            folder / "lake",
            max_rows=max_rows,
            patience=patience,
            maintenance=None,
        )
        self.frontier = FrontierStore(folder / "lake", "test")
        self.applier = self.made()
        self.scn = 0

    def made(self) -> Applier:
        stub: Any = self.target
        return Applier(
            self.options, stub, ask=lambda _table, _before: self.request, clock=lambda: self.now
        )

    def await_adoption(self, schema: TableSchema) -> None:
        """Let a dump made elsewhere bring a table's first rows."""
        adopted = ((str(schema.table), TableSettings(adopted=True)),)
        self.options = replace(self.options, settings=adopted)
        self.restart()

    def restart(self) -> None:
        """Let another process take over."""
        self.applier.close()
        self.applier = self.made()
        self.scn = self.applier.begin().from_scn

    def write(self, schema: TableSchema) -> None:
        """Let a table appear."""
        self.log.write(schema, "+I(0,a)")
        self.log.complete(schema)

    def begin(self) -> None:
        self.scn = self.applier.begin().from_scn
        self.process()

    def process(self) -> None:
        self.applier.process(self.scn, self.log.scn)
        self.scn = self.log.scn

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.applier.retry(self.scn)

    def state(self, schema: TableSchema) -> str:
        return self.applier.status.tables[str(schema.table)].state

    def error(self) -> str:
        said = self.applier.status.tables[str(BAD.table)].error
        return said["name"] if said else ""


def two_live(folder: Path) -> Iterator[Life]:
    """Give two live tables until the test ends."""
    made = Life(folder, Faulty(), Patience(), max_rows=100)
    made.write(BAD)
    made.begin()
    yield from lent(made)
    made.applier.close()


@pytest.fixture
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path, Faulty(), Patience(for_s=3_600.0, longest_s=600.0), max_rows=4)
    yield from lent(made)
    made.applier.close()


@req("C60", "C62")
def test_who_comes_back_takes_what_it_lacks_in_steps_of_the_usual_size(life: Life) -> None:
    life.write(BAD)
    life.begin()
    life.target.refuses = TargetUnwritable("no room", next_step="make room")
    for key in range(1, 301):
        life.log.write(BAD, f"+I({key},a)")
        life.process()
    assert life.error() == "TargetUnwritable"
    life.target.refuses, life.target.steps = None, {}
    life.now += 3_000.0
    life.applier.retry(life.scn)
    assert life.state(BAD) == "live"
    assert sum(life.target.steps[BAD.table]) == 300
    assert max(life.target.steps[BAD.table]) == 4


@req("C60")
def test_a_table_that_cannot_be_looked_at_fails_alone(life: Life) -> None:
    life.target.unread = CorruptTable("its log does not read", next_step="mend it")
    life.begin()
    life.write(BAD)
    life.log.write(GOOD, "+I(1,b)")
    life.process()
    assert (life.state(GOOD), life.state(BAD), life.error()) == ("live", "failing", "CorruptTable")
    life.target.unread = None
    life.wait(60)
    assert life.state(BAD) == "live"
    assert life.target.states[BAD.table].applied_scn > 0


@req("C10", "C-4")
def test_a_copy_that_never_gets_into_place_is_given_up_like_any_other(life: Life) -> None:
    life.write(BAD)
    schema_id = life.log.registry.put(BAD)
    life.target.states[BAD.table] = TargetState(0, 0, schema_id, copy=Copy("asked", 0))
    life.target.stays = TargetConflict("somebody writes it all the time", next_step="end them")
    life.log.tell(SystemKind.DUMP_COMPLETE, BAD.table, request_id="asked")
    life.begin()
    assert life.error() == "TargetConflict"
    life.wait(300)
    # After 1, 2, 4, … seconds, not once a second.
    assert 5 < life.target.tries < 15
    life.wait(4_000)
    assert life.error() == "RetriesExhausted"


def test_a_copy_that_gets_into_place_in_the_end_is_live(life: Life) -> None:
    life.write(BAD)
    schema_id = life.log.registry.put(BAD)
    life.target.states[BAD.table] = TargetState(0, 0, schema_id, copy=Copy("asked", 0))
    life.target.stays = TargetConflict("somebody writes it all the time", next_step="end them")
    life.log.tell(SystemKind.DUMP_COMPLETE, BAD.table, request_id="asked")
    life.begin()
    life.target.stays = None
    life.wait(60)
    assert life.state(BAD) == "live"
    assert life.target.states[BAD.table].copy is None


def test_a_copy_that_began_as_its_table_failed_is_gone_on_with(life: Life) -> None:
    life.write(BAD)
    life.begin()
    life.target.recopied = True
    life.target.unsaid = TargetUnwritable("no room", next_step="make room")
    life.log.write(BAD, "+I(1,a)")
    life.process()
    assert life.error() == "TargetUnwritable"
    life.target.unsaid = None
    life.wait(5)
    assert life.state(BAD) == "copying"
    life.log.tell(SystemKind.DUMP_COMPLETE, BAD.table, request_id="asked")
    life.process()
    assert life.state(BAD) == "live"
    assert life.target.states[BAD.table].copy is None


def test_a_dump_that_was_given_up_while_its_table_failed_is_asked_for_again(life: Life) -> None:
    life.write(BAD)
    life.begin()
    life.target.recopied = True
    life.target.refuses = TargetUnwritable("no room", next_step="make room")
    life.log.write(BAD, "+I(1,a)")
    life.process()
    assert life.error() == "TargetUnwritable"
    life.target.refuses, life.request = None, "asked again"
    life.wait(5)
    assert life.state(BAD) == "copying"
    life.log.tell(SystemKind.DUMP_COMPLETE, BAD.table, request_id="asked again")
    life.process()
    assert life.state(BAD) == "live"


def fails_for_good(life: Life) -> None:
    """Let every attempt at the bad table fail, until the job ends with that."""
    life.target.refuses = TargetUnwritable("no room", next_step="make room")
    life.log.write(BAD, "+I(1,a)")
    life.process()
    with pytest.raises(TargetUnwritable):
        life.wait(60)
    assert life.applier.status.stuck_s > 0


def test_beside_a_table_that_was_dropped_nothing_gets_on(life: Life) -> None:
    life.write(BAD)
    life.begin()
    life.log.tell(SystemKind.DROP_TABLE, GOOD.table)
    life.process()
    assert life.state(GOOD) == "left"
    fails_for_good(life)


def test_beside_a_table_that_waits_for_its_adoption_nothing_gets_on(life: Life) -> None:
    other = table_of(2, name="other")
    life.write(BAD)
    life.begin()
    life.await_adoption(other)
    life.log.write(other, "+I(0,a)")
    life.log.tell(SystemKind.DROP_TABLE, GOOD.table)
    life.process()
    said = life.applier.status.tables[str(other.table)].error
    assert said is not None
    assert said["name"] == "AwaitsAdoption"
    fails_for_good(life)


def test_beside_a_table_that_is_copied_the_job_goes_on(life: Life) -> None:
    """Its dump may come at any time."""
    life.write(BAD)
    life.begin()
    life.log.gap(GOOD)
    life.process()
    assert life.state(GOOD) == "copying"
    life.target.refuses = TargetUnwritable("no room", next_step="make room")
    life.log.write(BAD, "+I(1,a)")
    life.process()
    life.wait(60)
    assert life.error() == "TargetUnwritable"
    assert life.applier.status.stuck_s == 0


def test_a_table_to_be_adopted_that_could_not_be_looked_at_waits_once_it_can(life: Life) -> None:
    life.begin()
    life.await_adoption(BAD)
    life.target.unread = CorruptTable("its log does not read", next_step="mend it")
    life.log.write(BAD, "+I(1,a)")
    life.process()
    assert life.error() == "CorruptTable"
    life.target.unread = None
    life.wait(5)
    assert life.error() == "AwaitsAdoption"
    assert not life.applier.failing
