"""Tables of warehouses that keep what is gone, through random lives and any cut, against models of the truth."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import MissingBase
from headrace.lake.modes import Mode
from headrace.lake.sql.session import Session, Warehouse
from headrace.model.schema import Column, KeyCheck, Shape, TableSchema
from headrace.testing.lives import Transaction, random_life
from headrace.testing.notation import table_of
from headrace.testing.versions import ModelVersions
from tests.lake.kept_table import KeptTable, appended
from tests.lake.sql.kept_table import Cells, KeptInWarehouse
from tests.lake.sql.warehouses import EVERY_VALUE_AND_MODE, KINDS, content, made
from tests.lake.test_modes import cut
from tests.requirements import req

pytestmark = pytest.mark.postgres

IMAGES = {"patchy": (KeyCheck.IMMEDIATE, False), "full": (KeyCheck.IMMEDIATE, True)}
IMAGES["deferred"] = (KeyCheck.DEFERRED, True)
MODES = [Mode.SOFT_DELETE, Mode.HISTORY, Mode.APPEND]


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture(params=KINDS)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return made(request.param, request, tmp_path)


def crash(_session: Session) -> None:
    raise Crash


def expected(
    schema: TableSchema, mode: Mode, model: ModelVersions, life: list[Transaction]
) -> Counter[Cells]:
    """Return what a table holds behind a life."""
    if mode is Mode.APPEND:
        return appended(schema, life)
    return model.soft() if mode is Mode.SOFT_DELETE else model.history()


def live_through(warehouse: Warehouse, seed: int, images: str, mode: Mode, length: int) -> None:
    """Bring one random life into a table by random batches, some of which crash or come twice."""
    check, whole = IMAGES[images]
    schema = table_of(3, check=check, name=f"{mode.value}_{images}_{seed}")
    rng = random.Random(seed)
    life = random_life(schema, rng, length, whole=whole)
    table, model, done = KeptInWarehouse(warehouse, schema, mode), ModelVersions(), 0
    for batch in cut(life, rng):
        before = table.rows()
        if rng.random() < 0.2:
            with pytest.raises(Crash):
                table.apply(batch, inside=crash)
            # Nothing of it is there, and what comes next is cut elsewhere.
            assert table.rows() == before
            for one in batch:
                table.apply([one])
        else:
            table.apply(batch)
        done += len(batch)
        for transaction in batch:
            model.take(transaction)
        found = table.rows()
        assert found == expected(schema, mode, model, life[:done]), (seed, batch[0].scn)
        if mode is not Mode.APPEND:
            assert table.live() == Counter(batch[-1].state.values()), (seed, batch[0].scn)
        if rng.random() < 0.2:
            table.apply_again(life[rng.randrange(done) : done])
            assert table.rows() == found


@req("C-11", "C12", "C43", "C44", "C58")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("images", IMAGES)
def test_random_lives_in_random_batches_are_what_the_model_says(
    warehouse: Warehouse, images: str, mode: Mode
) -> None:
    live_through(warehouse, MODES.index(mode), images, mode, 12)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("images", IMAGES)
def test_hundreds_of_random_lives(warehouse: Warehouse, images: str, mode: Mode) -> None:
    for seed in range(100, 140):
        live_through(warehouse, seed, images, mode, 25)


def copied_beside(warehouse: Warehouse, folder: Path, seed: int, mode: Mode) -> None:
    """Take a life whose beginning nobody saw into a warehouse and a Delta table that are not complete."""
    rng = random.Random(seed)
    schema = table_of(3, name=f"{mode.value}_{seed}")
    life = random_life(schema, rng, 14)[rng.randrange(1, 4) :]
    ours, theirs = KeptInWarehouse(warehouse, schema, mode), KeptTable(folder, schema, mode)
    for batch in cut(life, rng):
        ours.apply(batch, complete=False)
        theirs.apply(batch, complete=False)
        assert ours.rows() == theirs.rows(), (seed, batch[0].scn)


@req("C-11")
@pytest.mark.parametrize("mode", [Mode.SOFT_DELETE, Mode.HISTORY])
def test_while_rows_are_missing_statements_leave_what_the_kernels_of_delta_leave(
    warehouse: Warehouse, tmp_path: Path, mode: Mode
) -> None:
    copied_beside(warehouse, tmp_path / "delta", 2, mode)


@pytest.mark.long
@pytest.mark.parametrize("mode", [Mode.SOFT_DELETE, Mode.HISTORY])
def test_while_rows_are_missing_many_lives_are_as_in_delta(
    warehouse: Warehouse, tmp_path: Path, mode: Mode
) -> None:
    for seed in range(10, 80):
        copied_beside(warehouse, tmp_path / str(seed), seed, mode)


def widened(one: Transaction) -> Transaction:
    """Return a transaction with a further column that is null, and left out wherever another one is."""
    rows = [
        (scn, order, op, (*cells, "?" if "?" in cells else None))
        for scn, order, op, cells in one.rows
    ]
    return replace(one, rows=rows)


@req("C06", "C30")
@pytest.mark.parametrize("mode", [Mode.SOFT_DELETE, Mode.HISTORY])
@pytest.mark.parametrize("images", ["patchy", "deferred"])
def test_columns_come_and_change_their_names_between_batches(
    warehouse: Warehouse, images: str, mode: Mode
) -> None:
    check, whole = IMAGES[images]
    old = replace(table_of(3, check=check), numbers={"k": 1, "c1": 2, "c2": 3})
    further = replace(old.columns[2], name="extra")
    columns = (old.columns[0], replace(old.columns[1], name="label"), old.columns[2], further)
    new = replace(old, columns=columns, numbers={"k": 1, "label": 2, "c2": 3, "extra": 4})
    rng = random.Random(5)
    life = random_life(old, rng, 14, whole=whole)
    table = KeptInWarehouse(warehouse, old, mode)
    for batch in cut(life[:7], rng):
        table.apply(batch)
    table.evolve(new)
    for batch in cut([widened(one) for one in life[7:]], rng):
        table.apply(batch)
    assert table.names[:4] == new.names
    assert table.rows(without=["extra"]) == expected(old, mode, ModelVersions.of(life), life)


@pytest.mark.parametrize("mode", MODES)
def test_the_ledger_remembers_how_a_table_was_made(warehouse: Warehouse, mode: Mode) -> None:
    source = table_of(3)
    made_so = KeptInWarehouse(warehouse, source, mode).evolve(source)
    # A new process reads it, and finds nothing to do.
    entry = KeptInWarehouse(warehouse, source, mode).evolve(source)
    assert entry == made_so
    assert entry.schema.shape == Shape(mode.value, source.schema_id)
    assert entry.version == 0


def test_what_the_log_left_out_of_a_change_is_named_and_what_it_said_is_kept(
    warehouse: Warehouse,
) -> None:
    one, wipe = Transaction(10), Transaction(20)
    one.add("=U", (1, "?", "b"))
    one.add("-D", (2, "?", "?"))
    one.add("+I", (3, None, ""))
    wipe.truncates.append((20, 0))
    table = KeptInWarehouse(warehouse, table_of(3), Mode.APPEND)
    table.apply([one, wipe])
    at, wiped_at = one.commit_us, wipe.commit_us
    assert table.rows() == Counter(
        {
            (1, None, "b", "=U", 10, 0, at, "c1"): 1,
            (2, None, None, "-D", 10, 1, at, "c1,c2"): 1,
            (3, None, "", "+I", 10, 2, at, None): 1,
            (None, None, None, "T", 20, 0, wiped_at, None): 1,
        }
    )


def test_changes_of_a_table_without_a_key_are_appended(warehouse: Warehouse) -> None:
    bag = table_of(2, check=KeyCheck.NONE)
    one = Transaction(10)
    for _ in range(2):
        one.add("+I", (1, "a"))
    table = KeptInWarehouse(warehouse, bag, Mode.APPEND)
    table.apply([one])
    assert table.rows() == appended(bag, [one])


def test_another_key_is_followed(warehouse: Warehouse) -> None:
    old = table_of(3)
    new = replace(old, key=("k", "c1"))
    first, then = Transaction(10), Transaction(20)
    first.add("+I", (1, "a", "b"))
    then.add("=U", (1, "a", "x"))
    then.add("+I", (1, None, "y"))
    last = Transaction(30)
    last.add("-D", (1, None, "?"))
    table = KeptInWarehouse(warehouse, old, Mode.HISTORY)
    table.apply([first])
    table.evolve(new)
    table.apply([then])
    table.apply([last])
    ended = (then.commit_us, last.commit_us, 20, 30, False)
    assert table.rows() == Counter(
        {
            (1, "a", "b", first.commit_us, then.commit_us, 10, 20, False): 1,
            (1, "a", "x", then.commit_us, None, 20, None, True): 1,
            (1, None, "y", *ended): 1,
        }
    )


@req("T1")
@pytest.mark.parametrize("warehouse", EVERY_VALUE_AND_MODE, indirect=True)
@pytest.mark.parametrize("together", [True, False])
def test_keys_that_differ_in_the_sign_of_a_zero_are_two(
    warehouse: Warehouse, together: bool
) -> None:
    """To the servers they are one; to the log, and to every other target, they are not."""
    keyed = table_of(2)
    keyed = replace(keyed, columns=(Column("k", pa.float64(), "float8"), keyed.columns[1]))
    first, then, last = Transaction(10), Transaction(20), Transaction(30)
    first.add("+I", (0.0, "a"))
    then.add("-U", (0.0, "?"))
    then.add("+U", (-0.0, "?"))
    last.add("=U", (-0.0, "b"))
    table = KeptInWarehouse(warehouse, keyed, Mode.SOFT_DELETE)
    for batch in [[first, then]] if together else [[first], [then]]:
        table.apply(batch)
    table.apply([last])
    found = {(str(row["k"]), *row.values()) for row in content(warehouse, keyed).to_pylist()}
    assert {row[:1] + row[2:4] for row in found} == {("0.0", "a", True), ("-0.0", "b", False)}


def test_a_patch_of_a_row_that_no_longer_lives_has_no_base(warehouse: Warehouse) -> None:
    """The cells of a deleted row are there to be read, not to be lent."""
    table = KeptInWarehouse(warehouse, table_of(3), Mode.SOFT_DELETE)
    first, then = Transaction(10), Transaction(20)
    first.add("+I", (1, "a", "b"))
    first.add("-D", (1, "?", "?"))
    then.add("=U", (1, "x", "?"))
    table.apply([first])
    with pytest.raises(MissingBase) as caught:
        table.apply([then])
    assert caught.value.columns == ["c2"]
    table.apply([then], complete=False)
    assert table.rows() == Counter()


@pytest.mark.parametrize("together", [True, False])
def test_what_comes_and_goes_with_a_truncate_is_one_version_with_it(
    warehouse: Warehouse, together: bool
) -> None:
    first, wipe = Transaction(10), Transaction(20)
    first.add("+I", (1, "a", "b"))
    first.add("+I", (2, "e", "f"))
    wipe.truncates.append((20, 0))
    wipe.add("+I", (1, "c", "d"))
    wipe.add("-D", (1, "?", "?"))
    table = KeptInWarehouse(warehouse, table_of(3), Mode.SOFT_DELETE)
    for batch in [[first, wipe]] if together else [[first], [wipe]]:
        table.apply(batch)
    at = wipe.commit_us
    assert table.rows() == Counter({(1, "c", "d", True, at, 20): 1, (2, "e", "f", True, at, 20): 1})


@pytest.mark.parametrize("together", [True, False])
def test_a_row_that_is_read_behind_a_truncate_is_a_version_even_when_it_is_as_before(
    warehouse: Warehouse, together: bool
) -> None:
    first, wipe, chunk = Transaction(10), Transaction(20), Transaction(30, read=True)
    first.add("+I", (1, "a", "b"))
    wipe.truncates.append((20, 0))
    chunk.add("+R", (1, "a", "b"))
    table = KeptInWarehouse(warehouse, table_of(3), Mode.HISTORY)
    table.apply([first])
    for batch in [[wipe, chunk]] if together else [[wipe], [chunk]]:
        table.apply(batch)
    assert table.rows() == Counter(
        {
            (1, "a", "b", first.commit_us, wipe.commit_us, 10, 20, False): 1,
            (1, "a", "b", chunk.commit_us, None, 30, None, True): 1,
        }
    )


@pytest.mark.parametrize("mode", [Mode.SOFT_DELETE, Mode.HISTORY])
def test_a_patch_without_its_row_is_mended_by_what_comes_behind_it(
    warehouse: Warehouse, mode: Mode
) -> None:
    """In a table that is complete: the batch waited for the key to be read again, or the row is gone."""
    first, patch, chunk = Transaction(10), Transaction(20), Transaction(30, read=True)
    patch.add("=U", (2, "y", "?"))
    patch.add("=U", (3, "y", "?"))
    chunk.add("+R", (2, "y", "z"))
    last = Transaction(40)
    first.add("+I", (1, "a", "b"))
    last.add("-D", (3, "?", "?"))
    table = KeptInWarehouse(warehouse, table_of(3), mode)
    table.apply([first])
    with pytest.raises(MissingBase):
        table.apply([patch, chunk])
    table.apply([patch, chunk, last])
    assert table.live() == Counter({(1, "a", "b"): 1, (2, "y", "z"): 1})
    assert len(table.rows()) == 2


@pytest.mark.parametrize("together", [True, False])
def test_patches_of_a_row_that_has_not_come_leave_no_version_even_when_they_make_a_whole_row(
    warehouse: Warehouse, together: bool
) -> None:
    first, second, chunk = Transaction(10), Transaction(20), Transaction(30, read=True)
    first.add("=U", (1, "a", "?"))
    second.add("=U", (1, "?", "b"))
    chunk.add("+R", (1, "a", "b"))
    table = KeptInWarehouse(warehouse, table_of(3), Mode.HISTORY)
    for batch in [[first, second, chunk]] if together else [[first], [second], [chunk]]:
        table.apply(batch, complete=False)
    assert table.rows() == Counter({(1, "a", "b", chunk.commit_us, None, 30, None, True): 1})
