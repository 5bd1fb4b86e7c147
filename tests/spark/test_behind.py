"""What one small batch costs the driver while much more of the log waits behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.changelog import reader
from headrace.changelog.reader import ChangeLogReader
from headrace.lake.capabilities import DELTA
from headrace.model.schema import TableId
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.counting import Tally
from headrace.spark.plan import Range
from headrace.spark.slices import Limits, batch_end
from headrace.testing.notation import table_of
from tests.spark.log import Log

TABLE = table_of(2)
MUCH = 1 << 40
BEHIND = 500


class NoTables:
    """A target that nobody writes to."""

    capabilities, copies = DELTA, None

    def state(self, _table: TableId) -> None:
        """Return that there is no such table."""


@pytest.fixture
def looked_at(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Much of a log, and the blocks of it that a reader looks at, by SCN."""
    log.write(TABLE, " | ".join(f"+I({key},a)" for key in range(BEHIND)))
    found: list[int] = []

    def noting(name: str, place: int) -> None:
        really = getattr(reader, name)

        def look(*given: Any) -> Any:
            found.append(given[place].first_scn)
            return really(*given)

        monkeypatch.setattr(reader, name, look)

    noting("block_ref", 2)
    noting("read_index", 1)
    return found


def test_the_end_of_a_batch_is_found_without_a_look_at_what_waits_behind_it(
    log: Log, looked_at: list[int]
) -> None:
    assert batch_end(ChangeLogReader(log.folder), 0, log.scn, Limits(3, MUCH)) == 30
    # The first that is too many is looked at.
    assert looked_at == [10, 20, 30, 40]


def test_a_batch_is_carried_out_without_a_look_at_what_waits_behind_it(
    log: Log, looked_at: list[int], tmp_path: Path
) -> None:
    target: Any = NoTables()
    options = ApplyOptions("test", log.folder, tmp_path / "lake", tables=("other.*",))
    applier = Applier(options, target)
    applier.begin()
    applier.process(0, 30)
    applier.process(30, 50)
    applier.close()
    assert applier.status.frontier_changes == 5
    assert set(looked_at) == {10, 20, 30, 40, 50}


def test_a_table_that_caught_up_is_counted_without_a_look_at_what_waits_behind_it(
    log: Log, looked_at: list[int]
) -> None:
    tally, source = Tally(None), ChangeLogReader(log.folder)
    tally.begin(None, [TABLE.table])
    batch, index = Range(source, log.registry, 30, 50), source.index(30, 50)
    looked_at.clear()
    fresh = np.ones(len(index), np.bool_)
    counts, _ = tally.add(batch, {TABLE.table: 50}, {}, index, fresh, 0)
    assert counts[TABLE.table].inserts == 5
    assert set(looked_at) == {10, 20, 30, 40, 50}
