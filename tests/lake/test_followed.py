"""A table that is followed commit by commit shows what a fresh look shows."""

from __future__ import annotations

import shutil
from pathlib import Path

from headrace.lake.commit import put_commit, transaction
from headrace.lake.delta_log import DeltaTable, FollowedTable
from headrace.lake.snapshot import Snapshot
from headrace.testing.notation import table_of
from tests.lake.local_table import LocalTable
from tests.lake.test_commits import folded_of


def newest(followed: FollowedTable) -> Snapshot:
    found = followed.latest()
    assert found is not None
    return found


def test_later_commits_are_seen_whoever_made_them(tmp_path: Path) -> None:
    followed = DeltaTable(tmp_path).follow()
    assert followed.latest() is None
    table = LocalTable(tmp_path, table_of(2))
    for scn in range(1, 45):
        table.apply(folded_of(table.schema, f"+I({scn},a) | -D({scn - 2})"), scn)
        if scn % 3 == 0:
            assert followed.latest() == table.table.snapshot()
    assert followed.latest() == table.table.snapshot()
    assert followed.latest() is followed.latest()


def test_another_table_in_its_place_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "t"
    table = LocalTable(place, table_of(2))
    table.apply(folded_of(table.schema, "+I(1,a)"), 1)
    followed = DeltaTable(place).follow()
    assert followed.latest() == table.table.snapshot()
    kept = tmp_path / "kept"
    shutil.copytree(place, kept)
    put_commit(place, 2, [transaction("t", 9)])
    assert newest(followed).transactions == {"t": 9}
    shutil.rmtree(place)
    assert followed.latest() is None
    kept.rename(place)
    assert newest(followed).transactions == {"t": 1}
    other = LocalTable(tmp_path / "other", table_of(3))
    for scn in (1, 2, 3):
        other.apply(folded_of(other.schema, f"+I({scn},a,b)"), scn)
    shutil.rmtree(place)
    (tmp_path / "other").rename(place)
    assert newest(followed).schema.names == ["k", "c1", "c2"]
    assert followed.latest() == DeltaTable(place).snapshot()
