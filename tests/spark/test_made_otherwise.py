"""A target table that was made in another way than the file asks for fails alone, and comes back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.changelog.config import ChangeLogSettings
from headrace.changelog.writer import ChangeLogWriter
from headrace.errors import MadeOtherwise, Retry, UnfitSettings
from headrace.lake.modes import Mode
from headrace.lake.settings import TableSettings
from headrace.model.block import ORIGIN_SELECT
from headrace.spark.apply import Applier
from headrace.spark.status import TableStatus
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import lent
from tests.spark.test_modes import Bench

pytestmark = pytest.mark.spark

TABLE, OTHER = table_of(3, name="t"), table_of(2, name="other")
MADE, ASKED = TableSettings(), TableSettings(Mode.SOFT_DELETE)
MASKED = TableSettings(mask=(("c2", "sha2(c2, 256)"),))
MAIL = replace(TABLE, columns=(*TABLE.columns[:2], replace(TABLE.columns[2], name="mail")))


class Life:
    """An applier, and a clock that a test moves."""

    def __init__(self, bench: Bench) -> None:
        self.now = 0.0
        self.applier = Applier(bench.options, bench.target, clock=lambda: self.now)
        self.scn = self.applier.begin().from_scn

    def process(self, end: int) -> None:
        self.applier.process(self.scn, end)
        self.scn = end

    @property
    def states(self) -> dict[str, str]:
        return {name: table.state for name, table in self.applier.status.tables.items()}

    @property
    def error(self) -> dict[str, str]:
        told: TableStatus = self.applier.status.tables[str(TABLE.table)]
        assert told.error is not None
        return told.error


def asks(bench: Bench, settings: TableSettings) -> None:
    """Begin the file anew with what it asks for the table."""
    bench.options = replace(bench.options, settings=((str(TABLE.table), settings),))


def begun(bench: Bench, settings: TableSettings) -> None:
    """Copy both tables, the one in the given way."""
    asks(bench, settings)
    for schema, history in ((TABLE, "+I(1,a,b) +I(2,c,d)"), (OTHER, "+I(1,a)")):
        bench.log.announce(schema, {name: at for at, name in enumerate(schema.names, 1)})
        bench.log.write(schema, history)
        bench.log.complete(schema)
    bench.run(bench.log.scn)


def dumped(bench: Bench, *rows: tuple[Any, ...]) -> int:
    """Write a dump of the table and return where it ends."""
    bench.log.write(TABLE, " ".join(f"+R({','.join(map(str, row))})" for row in rows))
    return bench.log.complete(TABLE)


def softly(bench: Bench) -> list[tuple[Any, ...]]:
    """Return key and text of the rows that a table with deletions kept says are there."""
    rows = sorted(bench.rows(TABLE), key=lambda row: int(row[0]))
    return [row[:3] for row in rows if not row[3]]


def trimmed(bench: Bench) -> None:
    """Let go of a segment that was applied."""
    log = bench.log
    log.writer.close()
    small = ChangeLogSettings(segment_bytes=4096, retain_bytes=0)
    log.writer = ChangeLogWriter.open(log.folder, small, sync=lambda _descriptor: None)
    bench.run(log.write(OTHER, "+I(9,b)"))
    log.writer.retain()
    assert log.writer.tail.oldest_scn > 0


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


@req("C10", "C-4")
def test_a_table_in_another_mode_fails_alone_until_the_file_is_set_back(bench: Bench) -> None:
    begun(bench, MADE)
    asks(bench, ASKED)
    life = Life(bench)
    assert life.states == {"public.t": "failing", "public.other": "live"}
    bench.log.write(TABLE, "-D(1)")
    # Also when it is tried again, and with nothing but its own changes to apply.
    added = (7, 8, 9)
    for key in added:
        life.process(bench.log.write(OTHER, f"+I({key},b)"))
        life.process(bench.log.write(TABLE, f"+I({key},x,y)"))
        life.now += 60.0
    assert life.states == {"public.t": "failing", "public.other": "live"}
    assert life.error["name"] == MadeOtherwise.__name__
    assert "public.t was made as mirror, and the file asks for soft_delete" in life.error["message"]
    assert "move the target table away" in life.error["next_step"]
    assert MadeOtherwise.retry is Retry.MANUAL
    life.applier.close()
    assert sorted(bench.rows(TABLE)) == [(1, "a", "b"), (2, "c", "d")]
    assert len(bench.rows(OTHER)) == 4

    asks(bench, MADE)
    assert not bench.run(bench.log.write(OTHER, "+I(2,b)")).failing
    assert {row[0] for row in bench.rows(TABLE)} == {2, *added}


@req("C10", "C-4")
def test_a_table_that_was_moved_away_is_copied_as_asked_while_the_job_runs(bench: Bench) -> None:
    """The whole dump comes in one batch, before the table's next attempt is due."""
    begun(bench, MADE)
    asks(bench, ASKED)
    life = Life(bench)
    life.process(bench.log.write(TABLE, "-D(1)"))
    shutil.rmtree(bench.folder(TABLE))
    life.process(dumped(bench, (2, "c", "d")))
    life.now += 60.0
    life.process(bench.log.write(OTHER, "+I(2,b)"))
    life.applier.close()
    assert life.states == {"public.t": "live", "public.other": "live"}
    assert softly(bench) == [(2, "c", "d")]


def test_a_table_that_was_moved_away_without_a_dump_is_told_as_copying(bench: Bench) -> None:
    begun(bench, MADE)
    asks(bench, ASKED)
    life = Life(bench)
    shutil.rmtree(bench.folder(TABLE))
    life.now += 60.0
    life.process(bench.log.write(OTHER, "+I(2,b)"))
    assert life.states == {"public.t": "copying", "public.other": "live"}
    life.process(dumped(bench, (1, "a", "b"), (2, "c", "d")))
    life.applier.close()
    assert life.states == {"public.t": "live", "public.other": "live"}
    assert softly(bench) == [(1, "a", "b"), (2, "c", "d")]


def test_a_dump_that_a_table_did_not_take_fills_the_one_in_its_place(bench: Bench) -> None:
    """It came while the table failed, which is moved away only then."""
    begun(bench, MADE)
    asks(bench, ASKED)
    life = Life(bench)
    life.process(dumped(bench, (1, "a", "b"), (2, "c", "d")))
    assert life.states == {"public.t": "failing", "public.other": "live"}
    shutil.rmtree(bench.folder(TABLE))
    life.now += 60.0
    life.process(bench.log.write(OTHER, "+I(2,b)"))
    life.applier.close()
    assert life.states == {"public.t": "live", "public.other": "live"}
    assert softly(bench) == [(1, "a", "b"), (2, "c", "d")]


@req("C-14")
def test_a_table_that_was_moved_away_inside_a_dump_is_whole_with_the_next_one(bench: Bench) -> None:
    """That dump's first rows went with it; a restart forgets that no more than the job does."""
    begun(bench, MADE)
    life = Life(bench)
    life.process(bench.log.write(TABLE, "+R(1,a,b)"))
    shutil.rmtree(bench.folder(TABLE))
    life.process(bench.log.write(TABLE, "+R(2,c,d)"))
    assert life.states == {"public.t": "copying", "public.other": "live"}
    life.applier.close()
    life = Life(bench)
    life.process(bench.log.complete(TABLE))
    assert life.states == {"public.t": "copying", "public.other": "live"}
    life.process(dumped(bench, (1, "a", "b"), (2, "c", "d")))
    life.applier.close()
    assert life.states == {"public.t": "live", "public.other": "live"}
    assert sorted(bench.rows(TABLE)) == [(1, "a", "b"), (2, "c", "d")]


@req("C-14")
def test_a_dump_of_a_table_that_was_moved_away_may_come_in_one_batch(bench: Bench) -> None:
    begun(bench, MADE)
    life = Life(bench)
    shutil.rmtree(bench.folder(TABLE))
    life.process(dumped(bench, (1, "a", "b"), (2, "c", "d")))
    life.applier.close()
    assert life.states == {"public.t": "live", "public.other": "live"}
    assert sorted(bench.rows(TABLE)) == [(1, "a", "b"), (2, "c", "d")]


@req("C-14")
def test_a_table_that_was_moved_away_inside_a_dump_while_nothing_ran_is_no_other(
    bench: Bench,
) -> None:
    begun(bench, MADE)
    trimmed(bench)
    bench.run(bench.log.write(TABLE, "+R(1,a,b)"))
    shutil.rmtree(bench.folder(TABLE))
    life = Life(bench)
    bench.log.write(TABLE, "+R(2,c,d)")
    life.process(bench.log.complete(TABLE))
    assert life.states == {"public.t": "copying", "public.other": "live"}
    life.applier.close()


def test_a_table_that_was_moved_away_from_a_log_that_was_cut_needs_a_dump_alone(
    bench: Bench,
) -> None:
    begun(bench, MADE)
    trimmed(bench)
    asks(bench, ASKED)
    shutil.rmtree(bench.folder(TABLE))
    life = Life(bench)
    assert life.states == {"public.t": "copying", "public.other": "live"}
    life.process(bench.log.write(OTHER, "+I(2,b)"))
    life.process(bench.log.write(TABLE, "+I(3,e,f)"))
    assert life.states == {"public.t": "copying", "public.other": "live"}
    life.process(dumped(bench, (1, "a", "b"), (2, "c", "d"), (3, "e", "f")))
    life.applier.close()
    assert life.states == {"public.t": "live", "public.other": "live"}
    assert softly(bench) == [(1, "a", "b"), (2, "c", "d"), (3, "e", "f")]


@req("C11", "C19")
def test_settings_that_were_corrected_take_the_table_that_is_copied_again(bench: Bench) -> None:
    """What the next step of `UnfitSettings` says, and then that of `MadeOtherwise`."""
    begun(bench, MASKED)
    bench.log.announce(MAIL, {name: at for at, name in enumerate(MAIL.names, 1)})
    end = bench.log.write(MAIL, "+I(3,e,f)")
    assert [type(error) for error in bench.run(end).failing] == [UnfitSettings]
    asks(bench, TableSettings(mask=(("mail", "sha2(mail, 256)"),)))
    assert [type(error) for error in bench.run(end).failing] == [MadeOtherwise]
    shutil.rmtree(bench.folder(TABLE))
    bench.log.write(MAIL, "+R(1,a,b) +R(2,c,d) +R(3,e,f)")
    end = bench.log.complete(MAIL)
    applier = bench.run(end)
    assert not applier.failing
    assert {name: table.state for name, table in applier.status.tables.items()} == {
        "public.t": "live",
        "public.other": "live",
    }
    digests = [row[0] for row in bench.spark.sql("SELECT sha2('f', 256)").collect()]
    assert sorted(row[2] for row in bench.rows(TABLE) if row[0] == 3) == digests


def renamed_back(bench: Bench) -> None:
    """Write changes under a name that the settings do not know, and others under the old name again."""
    begun(bench, MASKED)
    bench.log.announce(MAIL, {name: at for at, name in enumerate(MAIL.names, 1)})
    end = bench.log.write(MAIL, "+I(3,e,f) | =U(1,x,?)")
    assert [type(error) for error in bench.run(end).failing] == [UnfitSettings]
    bench.log.announce(TABLE, {name: at for at, name in enumerate(TABLE.names, 1)})
    bench.log.write(TABLE, "+I(4,g,h)")


def state(applier: Applier) -> str:
    return applier.status.tables[str(TABLE.table)].state


@req("C11", "C19")
def test_a_column_whose_old_name_came_back_is_no_reason_to_fail_once_the_table_is_copied_again(
    bench: Bench,
) -> None:
    renamed_back(bench)
    assert [type(error) for error in bench.run(bench.log.scn).failing] == [UnfitSettings]
    shutil.rmtree(bench.folder(TABLE))
    assert state(bench.run(bench.log.write(OTHER, "+I(2,b)"))) == "copying"
    applier = bench.run(dumped(bench, (1, "x", "b"), (2, "c", "d"), (3, "e", "f"), (4, "g", "h")))
    assert state(applier) == "live"
    assert {row[:2] for row in bench.rows(TABLE)} == {(1, "x"), (2, "c"), (3, "e"), (4, "g")}


@pytest.mark.long
def test_changes_in_the_middle_of_a_dump_are_not_passed_over(bench: Bench) -> None:
    """The end of that dump would speak of rows that are not there."""
    renamed_back(bench)
    bench.log.announce(MAIL, {name: at for at, name in enumerate(MAIL.names, 1)})
    bench.log.write(MAIL, "+R(1,x,b) +R(2,c,d)", ORIGIN_SELECT)
    bench.log.announce(TABLE, {name: at for at, name in enumerate(TABLE.names, 1)})
    bench.log.write(TABLE, "+R(3,e,f) +R(4,g,h)", ORIGIN_SELECT)
    shutil.rmtree(bench.folder(TABLE))
    applier = bench.run(bench.log.complete(TABLE))
    assert [type(error) for error in applier.failing] == [UnfitSettings]


@pytest.mark.long
def test_a_dump_that_ended_among_passed_changes_makes_nothing_complete(bench: Bench) -> None:
    renamed_back(bench)
    bench.log.announce(MAIL, {name: at for at, name in enumerate(MAIL.names, 1)})
    bench.log.write(MAIL, "+R(1,x,b) +R(2,c,d) +R(3,e,f) +R(4,g,h)", ORIGIN_SELECT)
    bench.log.complete(MAIL)
    bench.log.announce(TABLE, {name: at for at, name in enumerate(TABLE.names, 1)})
    shutil.rmtree(bench.folder(TABLE))
    assert state(bench.run(bench.log.write(TABLE, "+I(5,i,j)"))) == "copying"
