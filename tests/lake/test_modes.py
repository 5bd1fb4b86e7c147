"""Tables that keep what is gone, through random lives and any cut, against models that know only the truth."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import IncompatibleSchemaChange, MissingBase
from headrace.fold import fold
from headrace.lake.modes import Mode, live_batches, shaped
from headrace.model.schema import Column, KeyCheck, TableSchema
from headrace.testing.lives import Transaction, random_life
from headrace.testing.notation import change_batch, table_of
from headrace.testing.versions import ModelVersions
from tests.lake.kept_table import KeptTable, appended
from tests.lake.local_table import keep_files_apart
from tests.places import local
from tests.requirements import req

PATCHY = table_of(3)
WHOLE = table_of(3, check=KeyCheck.DEFERRED)


def cut(life: list[Transaction], rng: random.Random) -> Iterator[list[Transaction]]:
    """Yield a life in batches of any size."""
    begin = 0
    while begin < len(life):
        end = begin + rng.choice((1, 1, 2, 3, 5, 8, len(life)))
        yield life[begin:end]
        begin = end


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    # Files stay apart, so that rows die in all the ways there are.
    keep_files_apart(monkeypatch, rows=4)


def check(folder: Path, seed: int, schema: TableSchema, mode: Mode, whole: bool) -> None:
    """Bring one random life into a table by random batches, and compare after each."""
    rng = random.Random(seed)
    life = random_life(schema, rng, 25, whole=whole)
    table = KeptTable(folder, schema, mode, vectors=rng.random() < 0.5)
    model, done = ModelVersions(), 0
    for batch in cut(life, rng):
        table.apply(batch)
        for transaction in batch:
            model.take(transaction)
        done += len(batch)
        if mode is Mode.SOFT_DELETE:
            assert table.rows() == model.soft(), (seed, batch[0].scn)
        elif mode is Mode.HISTORY:
            assert table.rows() == model.history(), (seed, batch[0].scn)
        else:
            assert table.rows() == appended(schema, life[:done]), (seed, batch[0].scn)
            continue
        assert table.live() == Counter(batch[-1].state.values()), (seed, batch[0].scn)
    if mode is Mode.HISTORY:
        for one in life:
            assert table.as_of(one.scn, one.commit_us) == (one.state, one.state), (seed, one.scn)


IMAGES = [(PATCHY, False), (PATCHY, True), (WHOLE, True)]
MODES = [Mode.SOFT_DELETE, Mode.HISTORY, Mode.APPEND]


@req("C-11")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("schema", "whole"), IMAGES, ids=["patchy", "full", "deferred"])
def test_random_lives_in_random_batches_are_what_the_model_says(
    tmp_path: Path, schema: TableSchema, whole: bool, mode: Mode
) -> None:
    for seed in range(4):
        check(tmp_path / str(seed), seed, schema, mode, whole)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("schema", "whole"), IMAGES, ids=["patchy", "full", "deferred"])
def test_two_thousand_random_lives(
    tmp_path: Path, schema: TableSchema, whole: bool, mode: Mode
) -> None:
    for seed in range(1_000, 1_223):
        check(tmp_path / str(seed), seed, schema, mode, whole)


def test_a_column_that_is_called_like_one_of_the_modes_own_is_refused() -> None:
    for mode in MODES:
        for name in ("_scn", "_OP", "_missing"):
            taken = replace(PATCHY, columns=(*PATCHY.columns, Column(name, pa.int64(), "int8")))
            with pytest.raises(IncompatibleSchemaChange, match="needs for itself"):
                shaped(taken, mode)
    assert shaped(PATCHY, Mode.MIRROR) is PATCHY


@pytest.mark.parametrize("mode", [Mode.SOFT_DELETE, Mode.HISTORY])
def test_a_batch_opens_no_file_that_its_keys_are_not_in(tmp_path: Path, mode: Mode) -> None:
    table = KeptTable(tmp_path, PATCHY, mode)
    far, near, later = Transaction(10), Transaction(20), Transaction(30)
    for key in range(100, 110):
        far.add("+I", (key, "a", "b"))
    near.add("+I", (1, "a", "b"))
    near.add("+I", (2, "a", "b"))
    table.apply([far])
    (file,) = table.table.snapshot().files
    table.apply([near])
    # Whoever looks for the keys in it misses it.
    local(file.path).unlink()
    later.add("=U", (1, "x", "?"))
    later.add("+I", (3, "c", "d"))
    later.add("-D", (2,))
    table.apply([later])
    held = table.table.snapshot()
    held = replace(held, files=tuple(one for one in held.files if one.path != file.path))
    live = pa.Table.from_batches(live_batches(held, mode), schema=held.schema)
    assert dict(zip(*live.select(["k", "c1"]).to_pydict().values(), strict=True)) == {
        1: "x",
        3: "c",
    }


@pytest.mark.parametrize("name", ["_op", "_missing", "_count", "_hole", "_origin_k"])
def test_a_column_that_is_called_like_one_of_the_folded_form_is_refused(name: str) -> None:
    taken = replace(PATCHY, columns=(*PATCHY.columns, Column(name, pa.int64(), "int8")))
    for mode in (Mode.MIRROR, Mode.SOFT_DELETE, Mode.HISTORY):
        with pytest.raises(IncompatibleSchemaChange, match=f"public.t has a column {name}, "):
            shaped(taken, mode)
    with pytest.raises(IncompatibleSchemaChange, match=f"public.t has a column {name}, "):
        fold(taken, [change_batch(taken, [(1, 0, "+I", (1, "a", "b", 2))])])


def test_what_the_log_left_out_of_a_change_is_named(tmp_path: Path) -> None:
    one = Transaction(10)
    one.add("=U", (1, "?", "b"))
    one.add("-D", (2, "?", "?"))
    table = KeptTable(tmp_path, PATCHY, Mode.APPEND)
    table.apply([one])
    held = table.table.snapshot().to_table().to_pylist()
    assert [row["_missing"] for row in held] == ["c1", "c1,c2"]


def test_a_patch_of_a_row_that_no_longer_lives_has_no_base(tmp_path: Path) -> None:
    """The cells of a deleted row are there to be read, not to be lent."""
    table = KeptTable(tmp_path, PATCHY, Mode.SOFT_DELETE)
    first, then = Transaction(10), Transaction(20)
    first.add("+I", (1, "a", "b"))
    first.add("-D", (1, "?", "?"))
    then.add("=U", (1, "x", "?"))
    table.apply([first])
    with pytest.raises(MissingBase):
        table.apply([then])
    table.apply([then], complete=False)
    assert table.rows() == Counter()


@pytest.mark.parametrize("together", [True, False])
def test_what_comes_and_goes_with_a_truncate_is_one_version_with_it(
    tmp_path: Path, together: bool
) -> None:
    first, wipe = Transaction(10), Transaction(20)
    first.add("+I", (1, "a", "b"))
    wipe.truncates.append((20, 0))
    wipe.add("+I", (1, "c", "d"))
    wipe.add("-D", (1, "?", "?"))
    table = KeptTable(tmp_path, PATCHY, Mode.SOFT_DELETE)
    for batch in [[first, wipe]] if together else [[first], [wipe]]:
        table.apply(batch)
    assert table.rows() == Counter({(1, "c", "d", True, wipe.commit_us, 20): 1})


@pytest.mark.parametrize("together", [True, False])
def test_patches_of_a_row_that_has_not_come_leave_no_version_even_when_they_make_a_whole_row(
    tmp_path: Path, together: bool
) -> None:
    first, second, chunk = Transaction(10), Transaction(20), Transaction(30, read=True)
    first.add("=U", (1, "a", "?"))
    second.add("=U", (1, "?", "b"))
    chunk.add("+R", (1, "a", "b"))
    table = KeptTable(tmp_path, PATCHY, Mode.HISTORY)
    for batch in [[first, second, chunk]] if together else [[first], [second], [chunk]]:
        table.apply(batch, complete=False)
    assert table.rows() == Counter({(1, "a", "b", chunk.commit_us, None, 30, None, True): 1})
