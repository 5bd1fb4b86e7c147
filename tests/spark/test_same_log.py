"""Tables go on with the change log that they were filled from, and with no other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.changelog.config import ChangeLogSettings
from headrace.changelog.identity import identity_of
from headrace.changelog.writer import ChangeLogWriter
from headrace.errors import ChangeLogLost, FrontierLost, ScnNotFound
from headrace.lake.frontier import Manifest
from headrace.model.block import ORIGIN_LOG, Block, SystemEvent, SystemKind, transaction_index
from headrace.model.schema import TableSchema
from headrace.testing.notation import table_of
from tests.places import local
from tests.requirements import req
from tests.spark.log import Log
from tests.spark.test_left_behind import BAD, GOOD, Life, two_live


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """Give two live tables."""
    yield from two_live(tmp_path)


def frontier(life: Life) -> Manifest:
    found = life.frontier.latest()
    assert found is not None
    return found


def begin_log(life: Life) -> None:
    """Put a log without a transaction in the place of the one that the tables were filled from."""
    life.log.writer.close()
    shutil.rmtree(life.log.folder)
    life.log = Log(life.log.folder)
    life.log.scn = 1_000


def replace_log(life: Life, scn: int = 1_000) -> None:
    """Put another log in the place of the one that the tables were filled from; it begins behind them."""
    begin_log(life)
    life.log.scn = scn
    life.log.write(GOOD, "+I(7,z)")
    life.log.write(BAD, "+I(7,z)")


@req("C43")
def test_a_start_finds_another_log(life: Life) -> None:
    at = frontier(life).scn
    replace_log(life)
    with pytest.raises(ChangeLogLost, match=rf"are at SCN {at} of another change log") as caught:
        life.restart()
    assert str(life.log.folder) in caught.value.message
    assert "begin anew" in caught.value.next_step


def test_a_job_that_runs_finds_another_log_before_it_applies_any_of_it(life: Life) -> None:
    life.target.steps = {}
    replace_log(life)
    with pytest.raises(ChangeLogLost, match="of another change log"):
        life.process()
    assert not life.target.steps


def test_another_log_that_has_gone_through_the_same_positions_is_another(life: Life) -> None:
    """Its transactions were committed at other times."""
    life.restart()
    life.applier.close()
    replace_log(life, 0)
    while life.log.scn <= frontier(life).scn:
        life.log.write(GOOD, "+I(8,z)")
    with pytest.raises(ChangeLogLost, match="of another change log"):
        life.restart()


def test_a_copy_that_a_relay_made_is_the_same(life: Life) -> None:
    (life.log.folder / "identity").write_bytes(b"aaaaaa\n")
    life.log.write(GOOD, "+I(1,b)")
    life.process()
    life.restart()
    life.log.write(GOOD, "+I(2,b)")
    life.process()
    assert life.state(GOOD) == "live"
    assert frontier(life).log == "aaaaaa"


def test_a_copy_that_begins_at_the_frontier_is_the_same(life: Life) -> None:
    at = frontier(life)
    life.log.writer.close()
    shutil.rmtree(life.log.folder)
    life.log = Log(life.log.folder)
    life.log.writer.begin_at(at.scn, at.commit_us)
    life.log.scn = at.scn
    life.log.registry.put(BAD)
    life.log.write(GOOD, "+I(1,b)")
    life.restart()
    life.process()
    assert life.state(GOOD) == "live"


def tell_gap(life: Life, *schemas: TableSchema) -> None:
    """Say as a resync does that the tables are empty, and changes missing before it."""
    schemas = schemas or (GOOD, BAD)
    kinds, scn = (SystemKind.TRUNCATE, SystemKind.GAP), life.log.following
    for schema in schemas:
        life.log.registry.put(schema)
    told = [(schema, kind) for schema in schemas for kind in kinds]
    life.log.batch(
        events=tuple(SystemEvent(scn, n, kind, one.table) for n, (one, kind) in enumerate(told))
    )


def test_a_log_that_a_resync_began_is_gone_on_with(life: Life) -> None:
    begin_log(life)
    tell_gap(life)
    life.restart()
    life.process()
    assert life.state(GOOD) == life.state(BAD) == "copying"
    assert frontier(life).log == identity_of(life.log.folder) != ""


def test_a_log_that_a_resync_began_may_tell_of_another_shape_than_the_targets(life: Life) -> None:
    begin_log(life)
    reshaped = table_of(3, name="bad")
    tell_gap(life, GOOD, reshaped)
    life.target.steps = {}
    life.restart()
    life.process()
    assert life.state(GOOD) == life.state(BAD) == "copying"
    held = life.target.states[BAD.table]
    assert (held.schema_id, held.applied_scn) == (reshaped.schema_id, life.log.scn)
    assert BAD.table in life.target.steps, "it was emptied"
    life.log.write(reshaped, "+R(1,a,b)")
    life.log.complete(reshaped)
    life.process()
    assert life.state(BAD) == "live"


def test_a_version_that_is_lost_beside_its_own_log_is_named(life: Life) -> None:
    reshaped = table_of(3, name="bad")
    life.log.announce(reshaped)
    life.log.write(reshaped, "+I(1,a,b)")
    life.process()
    (life.log.folder / "schemas" / f"{reshaped.schema_id:016x}.json").unlink()
    life.log.write(BAD, "+I(2,a)")
    life.restart()
    life.process()
    assert (life.error(), life.state(GOOD)) == ("StateError", "live")


def test_a_gap_that_is_told_later_says_nothing_of_what_came_before(life: Life) -> None:
    begin_log(life)
    life.log.write(GOOD, "+I(7,z)")
    tell_gap(life)
    with pytest.raises(ChangeLogLost, match="of another change log"):
        life.restart()


def test_a_gap_behind_another_transaction_of_its_block_says_nothing_of_it(life: Life) -> None:
    begin_log(life)
    events = (
        SystemEvent(1_010, 0, SystemKind.TRUNCATE, GOOD.table),
        SystemEvent(1_020, 0, SystemKind.GAP, GOOD.table),
    )
    index = transaction_index([(scn, scn, scn, 1, ORIGIN_LOG, 1) for scn in (1_010, 1_020)])
    life.log.writer.append(Block(index, (), events, 1_020))
    life.log.writer.sync()
    with pytest.raises(ChangeLogLost, match="of another change log"):
        life.restart()


def test_with_the_tables_moved_away_another_log_is_welcome(life: Life) -> None:
    life.target.states.clear()
    replace_log(life)
    life.restart()
    life.process()
    assert frontier(life).log == identity_of(life.log.folder) != ""


@pytest.mark.parametrize("side", ["frontier", "log"])
def test_what_has_no_identity_is_taken_for_the_same(life: Life, side: str) -> None:
    if side == "log":
        (life.log.folder / "identity").unlink()
    else:
        life.frontier.write(replace(frontier(life), log=""))
    life.log.write(GOOD, "+I(1,b)")
    life.restart()
    life.process()
    assert life.state(GOOD) == "live"


def trim(life: Life) -> None:
    """Let go of the segments that everybody has applied."""
    life.log.writer.close()
    small = ChangeLogSettings(segment_bytes=4096, retain_bytes=0)
    life.log.writer = ChangeLogWriter.open(life.log.folder, small)
    for key in range(1, 200):
        life.log.write(GOOD, f"+I({key},{'x' * 100})")
    life.process()
    life.log.writer.retain()
    assert life.log.writer.tail.oldest_scn


def test_a_frontier_that_went_beside_a_log_that_is_not_whole_is_named(life: Life) -> None:
    trim(life)
    folder = local(life.frontier.folder)
    shutil.move(folder, folder.with_name("kept"))
    with pytest.raises(FrontierLost, match=r"no frontier in .*/frontier, .* begins at SCN \d+"):
        life.restart()
    shutil.move(folder.with_name("kept"), folder)
    life.restart()
    life.process()
    assert life.state(GOOD) == "live"


def test_a_new_target_of_a_log_that_is_not_whole_lost_nothing(life: Life) -> None:
    trim(life)
    shutil.rmtree(local(life.frontier.folder))
    life.target.states.clear()
    with pytest.raises(ScnNotFound):
        life.restart()
