"""A new copy takes its table's place in one commit, and what a crash leaves of it does no harm."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.fold import fold
from headrace.lake.aside import aside_path, asked_again, begin_copy, copy_of, take_place
from headrace.lake.commit import CommitConflict, put_commit, transaction
from headrace.lake.copies import Copy
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import evolve_actions
from headrace.lake.keyed import commit_keyed
from headrace.lake.mapping import MODE
from headrace.lake.snapshot import Snapshot
from headrace.model.schema import TableSchema
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.lake.local_table import LocalTable, keep_files_apart
from tests.places import local
from tests.requirements import req

OLD = table_of(3)
NEW = replace(OLD, columns=(OLD.columns[0], replace(OLD.columns[1], type=pa.binary())))
MANY = " ".join(f"+I({key},a{key})" for key in range(1, 41))


@pytest.fixture(autouse=True)
def small_files_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rows die by vectors where a file of this size would be absorbed."""
    keep_files_apart(monkeypatch, rows=1, size=100)


def folded(schema: TableSchema, history: str) -> pa.Table:
    return fold(schema, [change_batch(schema, parse_history(history).rows)])


def write(folder: Path, history: str, scn: int) -> None:
    held = DeltaTable(folder).snapshot()
    actions = commit_keyed(held, NEW, folded(NEW, history), complete=False)
    put_commit(folder, held.version + 1, [transaction("t", scn), *actions])


class Pair:
    """A table, and a new copy of it that is whole; both have deletion vectors."""

    def __init__(self, lake: Path, *, mapped: bool = False) -> None:
        self.shown = lake / "public" / "t"
        self.aside = local(aside_path(lake, "p", OLD.table))
        table = LocalTable(self.shown, OLD)
        table.apply(folded(OLD, " ".join(f"+I({key},a,b)" for key in range(1, 41))), 10)
        table.apply(folded(OLD, "-D(1)"), 20)
        self.old = table.content()
        if mapped:
            held = self.snapshot()
            narrow = replace(OLD, columns=(OLD.columns[0], OLD.columns[1]))
            put_commit(self.shown, held.version + 1, evolve_actions(held, narrow))
        begin_copy(self.aside, NEW, "t", Copy("asked", 30), vectors=True)
        write(self.aside, MANY, 40)
        write(self.aside, "-D(2) =U(3,x)", 50)

    def snapshot(self) -> Snapshot:
        return DeltaTable(self.shown).snapshot()

    def swap(self) -> None:
        take_place(self.snapshot(), DeltaTable(self.aside).snapshot(), "t")

    def is_new(self) -> bool:
        rows = {row["k"]: row["c1"] for row in self.snapshot().to_table().to_pylist()}
        wanted = {key: f"a{key}".encode() for key in range(1, 41) if key != 2} | {3: b"x"}
        return rows == wanted


@req("C12", "C43")
@pytest.mark.parametrize("mapped", [False, True])
def test_rows_columns_and_position_change_together(tmp_path: Path, mapped: bool) -> None:
    pair = Pair(tmp_path, mapped=mapped)
    before = pair.snapshot()
    assert any(file.vector for file in DeltaTable(pair.aside).snapshot().files)
    pair.swap()
    after = pair.snapshot()
    assert (after.version, after.transactions["t"]) == (before.version + 1, 50)
    assert pair.is_new()
    assert after.metadata["id"] == before.metadata["id"]
    assert (after.properties.get(MODE) == "name") is mapped
    assert not pair.aside.exists()
    # What was there is still there for whoever asks for it.
    held = DeltaTable(pair.shown).snapshot(2).to_table().to_pylist()
    assert Counter(tuple(row.values()) for row in held) == pair.old


def test_a_copy_that_a_crash_left_behind_is_not_taken_for_one_under_way(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    assert copy_of(pair.aside, pair.shown) == Copy("asked", 30)
    shutil.copytree(pair.aside, tmp_path / "kept")
    pair.swap()
    shutil.copytree(tmp_path / "kept", pair.aside)
    assert copy_of(pair.aside, pair.shown) is None
    assert not pair.aside.exists()
    # The next copy of the table is one again.
    begin_copy(pair.aside, NEW, "t", Copy("second", 60), vectors=True)
    asked_again(pair.aside, "third")
    assert copy_of(pair.aside, pair.shown) == Copy("third", 60)


def test_a_commit_of_somebody_else_leaves_the_old_table_and_the_next_try_the_new_one(
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path)
    stale, copy = pair.snapshot(), DeltaTable(pair.aside).snapshot()
    put_commit(pair.shown, stale.version + 1, [transaction("other", 1)])
    with pytest.raises(CommitConflict):
        take_place(stale, copy, "t")
    assert not pair.is_new()
    assert pair.aside.exists()
    pair.swap()
    assert pair.is_new()
    assert pair.snapshot().transactions["other"] == 1
