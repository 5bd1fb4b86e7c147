"""A target table that somebody put back from a backup goes on if the log still can, and is named if not; alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ScnNotFound
from headrace.spark.targets.base import TargetState
from tests.places import local
from tests.requirements import req
from tests.spark.test_left_behind import BAD, GOOD, Life, two_live
from tests.spark.test_same_log import frontier, trim


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """Give two live tables, of which one has a backup that the log does not reach back to any more."""
    yield from two_live(tmp_path)


def put_back(life: Life) -> TargetState:
    """Start with the bad table as it was before the log that is left, and return how it was meanwhile."""
    old = life.target.states[BAD.table]
    life.log.write(BAD, "+I(1,b)")
    life.process()
    newest = life.target.states[BAD.table]
    trim(life)
    life.target.states[BAD.table] = old
    life.restart()
    return newest


@req("C60")
def test_one_that_is_older_than_the_log_is_named_and_the_others_go_on(life: Life) -> None:
    put_back(life)
    life.log.write(GOOD, "+I(1000,b)")
    life.process()
    assert (life.state(GOOD), life.state(BAD), life.error()) == ("live", "failing", "TargetBehind")
    said = life.applier.status.tables[str(BAD.table)].error
    assert said is not None
    assert "public.bad is at SCN " in said["message"]
    assert "headrace dump start FILE --table public.bad" in said["next_step"]
    assert frontier(life).scn == life.log.scn
    life.restart()
    assert life.error() == "TargetBehind"


def test_a_newer_backup_goes_on_while_the_job_runs(life: Life) -> None:
    newest = put_back(life)
    life.log.write(BAD, "+I(2,b)")
    life.process()
    life.target.states[BAD.table] = newest
    life.target.steps = {}
    life.wait(60)
    assert life.state(BAD) == "live"
    assert life.target.steps[BAD.table] == [1]


def test_moved_away_and_dumped_it_comes_back_while_the_job_runs(life: Life) -> None:
    put_back(life)
    del life.target.states[BAD.table]
    life.log.write(BAD, "+I(2,b)")
    life.process()
    life.wait(60)
    assert life.state(BAD) == "copying"
    life.write(BAD)
    life.process()
    assert life.state(BAD) == "live"
    life.restart()
    assert life.state(BAD) == "live"


def test_a_log_that_begins_behind_the_frontier_lacks_something_for_all(life: Life) -> None:
    folder = local(life.frontier.folder)
    shutil.copytree(folder, folder.with_name("old"))
    trim(life)
    shutil.rmtree(folder)
    shutil.move(folder.with_name("old"), folder)
    with pytest.raises(ScnNotFound):
        life.restart()
