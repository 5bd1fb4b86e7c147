"""Partitioned tables through random lives: rows move between partitions, and every reader finds them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import UnplacedValue
from headrace.fold import fold
from headrace.lake import data_file, pieces, settle
from headrace.lake.data_file import DataFile
from headrace.lake.keyed import commit_keyed
from headrace.lake.modes import Mode, shaped
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import plan_rewrite, sorted_by
from headrace.lake.tidy import tidy
from headrace.model.schema import KeyCheck, TableSchema
from headrace.testing.lives import Transaction
from headrace.testing.notation import change_batch, table_of
from headrace.testing.target import ModelTable
from headrace.testing.versions import ModelVersions
from tests.lake.kept_table import KeptTable, appended
from tests.lake.local_table import LocalTable, keep_files_apart
from tests.lake.parts import VALUES, check_files, placed_life, typed
from tests.lake.test_commits import Source, folded_of
from tests.lake.test_modes import MODES, cut
from tests.lake.test_rewrite import maintain
from tests.lake.test_tidy import aged
from tests.requirements import req

SIZES = Sizes(target_bytes=6_000, small_bytes=3_000, deleted=0.1)


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_files_apart(monkeypatch, rows=3)
    monkeypatch.setattr(pieces, "_FEW", 2)


def folded(schema: TableSchema, batch: list[Transaction]) -> pa.Table:
    rows = [row for one in batch for row in one.rows]
    truncates = [at for one in batch for at in one.truncates]
    return fold(schema, [change_batch(schema, rows)] if rows else [], truncates)


def mirrored(folder: Path, schema: TableSchema, column: str, seed: int) -> int:
    """Bring a random life into a mirror by random batches, and compare after each; return the most partitions."""
    rng = random.Random(seed)
    whole = schema.key_check is not KeyCheck.IMMEDIATE
    life = placed_life(schema, column, rng, 25, whole=whole)
    table = LocalTable(folder, schema, vectors=rng.random() < 0.7, partition_by=(column,))
    model, most = ModelTable(schema), 0
    for batch in cut(life, rng):
        effects = folded(schema, batch)
        table.apply(effects, batch[-1].scn)
        model.apply(effects, batch[-1].scn, complete=True)
        truth = Counter(batch[-1].state.values())
        assert table.content() == model.content() == truth, (seed, batch[0].scn)
        if rng.random() < 0.3:
            maintain(table.table, schema.key, 2, SIZES)
            assert table.content() == truth, (seed, batch[0].scn)
        most = max(most, check_files(folder, [column]))
    return most


TYPES = [*VALUES]


@req("C-18")
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_mirror_has_the_sources_rows_whatever_they_are_partitioned_by(
    tmp_path: Path, type_: pa.DataType
) -> None:
    schema = typed(table_of(3), "c1", type_)
    most = [mirrored(tmp_path / str(seed), schema, "c1", seed) for seed in range(4)]
    assert max(most) >= 3


def test_a_deferred_key_moves_rows_too(tmp_path: Path) -> None:
    schema = typed(table_of(3, check=KeyCheck.DEFERRED), "c2", pa.date32())
    assert max(mirrored(tmp_path / str(seed), schema, "c2", seed) for seed in range(4)) >= 3


@pytest.mark.long
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_two_thousand_lives_in_partitions(tmp_path: Path, type_: pa.DataType) -> None:
    schema = typed(table_of(3), "c1", type_)
    for seed in range(1_000, 1_286):
        mirrored(tmp_path / str(seed), schema, "c1", seed)


@req("C-11")
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_keeps_what_it_keeps_in_partitions(tmp_path: Path, mode: Mode) -> None:
    schema = table_of(3)
    key = sorted_by(shaped(schema, mode), mode)
    for seed in range(4):
        rng = random.Random(seed)
        life = placed_life(schema, "c1", rng, 25)
        own = {Mode.HISTORY: "_current", Mode.SOFT_DELETE: "_deleted"}.get(mode, "_op")
        parts = rng.choice([("c1",), (own,), ("c1", own)])
        folder = tmp_path / str(seed)
        table = KeptTable(folder, schema, mode, vectors=rng.random() < 0.7, partition_by=parts)
        model, count = ModelVersions(), 0
        for batch in cut(life, rng):
            table.apply(batch)
            for transaction in batch:
                model.take(transaction)
            count += len(batch)
            maintain(table.table, key, rng.randrange(3), SIZES)
            if mode is Mode.APPEND:
                expected = appended(schema, life[:count])
            else:
                expected = model.soft() if mode is Mode.SOFT_DELETE else model.history()
            assert table.rows() == expected, (seed, batch[0].scn)
        check_files(folder, parts)


@pytest.mark.parametrize("parts", [("c1",), ("k",), ("k", "c1"), ("c1", "c2"), ("c3",)], ids=str)
def test_keys_that_hold_partition_columns_and_keys_that_do_not(
    tmp_path: Path, parts: tuple[str, ...]
) -> None:
    schema = table_of(4, key=2)
    for seed in range(2):
        folder = tmp_path / str(seed)
        table, model = LocalTable(folder, schema, partition_by=parts), ModelTable(schema)
        source = Source(seed, 2)
        for scn in range(1, 13):
            effects = folded_of(schema, source.batch(source.random.choice([1, 5, 30])))
            table.apply(effects, scn)
            model.apply(effects, scn, complete=True)
            assert table.content() == model.content(), (seed, scn)
        check_files(folder, parts)


@req("C50", "T15")
def test_a_table_without_key_keeps_every_copy_in_its_partition(tmp_path: Path) -> None:
    schema = table_of(3, check=KeyCheck.NONE)
    table, model = LocalTable(tmp_path, schema, partition_by=("c1",)), ModelTable(schema)
    generator = random.Random(4)
    for scn in range(1, 30):
        terms = [
            f"+I({generator.randrange(5)},{generator.choice('ab.')},x)"
            for _ in range(generator.choice([1, 9]))
        ]
        held = [row for row, count in model.counts.items() for _ in range(count)]
        for row in generator.sample(held, len(held) // 4):
            cells = ",".join("." if cell is None else str(cell) for cell in row)
            terms.append(f"-D({cells})")
        effects = folded_of(schema, " ".join(terms))
        table.apply(effects, scn)
        model.apply(effects, scn, complete=True)
        assert table.content() == model.content(), scn
        if scn % 5 == 0:
            maintain(table.table, (), 2, SIZES)
            assert table.content() == model.content(), scn
    assert check_files(tmp_path, ["c1"]) == 3


def test_a_batch_leaves_the_files_of_other_partitions_alone(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, table_of(2), partition_by=("c1",))
    table.apply(folded_of(table.schema, "+I(1,a) +I(2,b) +I(3,c)"), 1)
    before = {file.path for file in table.table.snapshot().files}
    table.apply(folded_of(table.schema, "+I(4,a) | =U(1,c)"), 2)
    after = {file.path for file in table.table.snapshot().files}
    assert {path.parent.name for path in before & after} == {"c1=b"}
    assert {path.parent.name for path in after} == {"c1=a", "c1=b", "c1=c"}


@pytest.mark.parametrize(
    ("key", "parts", "looked"),
    [(2, ("c1",), {"c1=b"}), (1, ("c1",), {"c1=a", "c1=b", "c1=c"}), (1, ("k",), {"k=2"})],
)
def test_a_key_is_looked_for_in_the_partitions_that_may_hold_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: int,
    parts: tuple[str, ...],
    looked: set[str],
) -> None:
    # Large enough to stay: what is opened is opened to look for keys.
    keep_files_apart(monkeypatch, rows=0, size=0)
    schema = table_of(3, key=key)
    table = LocalTable(tmp_path, schema, partition_by=parts)
    rows = " ".join(f"+I({key},{part},x)" for key, part in ((1, "a"), (2, "b"), (3, "c")))
    rows += " +I(1,c,x) +I(3,b,x) +I(2,.,x)" if key == 2 else ""
    table.apply(folded_of(schema, rows), 1)
    opened: set[str] = set()
    read = DataFile.batches

    def batches(self: DataFile, *args: object) -> object:
        opened.add(self.path.parent.name)
        return read(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(data_file.DataFile, "batches", batches)
    gone = "-D(2,b)" if key == 2 else "-D(2)"
    table.apply(folded_of(schema, gone), 2)
    if parts == ("c1",) and key == 1:
        # The bounds of the key say the rest.
        looked = {"c1=b"}
    assert opened == looked


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_text_is_refused_by_name_and_nothing_is_written(
    tmp_path: Path, value: str | None
) -> None:
    """The format reads it as null, which it is not."""
    schema = table_of(2)
    table = LocalTable(tmp_path / "public" / "t", schema, partition_by=("c1",))
    changes = change_batch(schema, [(1, 0, "+I", (1, "a")), (1, 1, "+I", (2, value))])
    effects = fold(schema, [changes])
    if value is None:
        table.apply(effects, 1)
        assert table.content() == Counter({(1, "a"): 1, (2, None): 1})
        return
    with pytest.raises(UnplacedValue, match=r"public\.t\.c1 holds an empty text") as caught:
        table.apply(effects, 1)
    assert "nullif(c1, '')" in caught.value.next_step
    assert not [*(tmp_path / "public" / "t").rglob("*.parquet")]


@pytest.mark.parametrize("type_", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize("end", [-1, 1])
def test_a_time_without_a_text_is_refused_by_name_in_a_partition_and_held_elsewhere(
    tmp_path: Path, type_: pa.DataType, end: int
) -> None:
    schema = typed(table_of(3), "c2", type_)
    whole = pa.int32() if type_ == pa.date32() else pa.int64()
    value = 2 ** (whole.bit_width - 1) - 1 if end > 0 else -(2 ** (whole.bit_width - 1))
    changes = change_batch(schema, [(1, 0, "+I", (1, "a", None))])
    far = pa.array([value], whole).view(type_)
    effects = fold(schema, [changes.set_column(changes.num_columns - 1, "c2", far)])
    by_text = LocalTable(tmp_path / "text", schema, partition_by=("c1",))
    by_text.apply(effects, 1)
    held = by_text.table.snapshot().to_table()["c2"]
    assert held.combine_chunks().view(whole).to_pylist() == [value]
    by_time = LocalTable(tmp_path / "time", schema, partition_by=("c2",))
    with pytest.raises(UnplacedValue, match=r"c2 holds a time outside of the years 1 to 9999"):
        by_time.apply(effects, 1)
    # A key that nobody can have is looked for and not found.
    keyed = replace(schema, key=("k", "c2"))
    table = LocalTable(tmp_path / "key", keyed, partition_by=("c2",))
    gone = change_batch(keyed, [(1, 0, "-D", (1, "?", None))])
    table.apply(fold(keyed, [gone.set_column(gone.num_columns - 1, "c2", far)]), 1)
    assert table.content() == Counter()


def test_files_of_a_commit_that_failed_are_deleted_in_their_folders(tmp_path: Path) -> None:
    schema = table_of(2)
    table = LocalTable(tmp_path, schema, partition_by=("c1",))
    table.apply(folded_of(schema, "+I(1,a b/%) +I(2,c)"), 1)
    before = set(tmp_path.rglob("*.parquet"))
    held = table.table.snapshot()
    actions = commit_keyed(held, schema, folded_of(schema, "=U(2,a b/%)"), complete=True)
    assert set(tmp_path.rglob("*.parquet")) - before
    settle.discard(held, actions)
    assert set(tmp_path.rglob("*.parquet")) == before


def test_a_checkpoint_keeps_the_values_of_partitions(tmp_path: Path) -> None:
    schema = typed(table_of(3), "c1", pa.date32())
    table = LocalTable(tmp_path, schema, partition_by=("c1", "c2"))
    texts, days = VALUES[pa.string()], VALUES[pa.date32()]
    for scn in range(1, 23):
        row = (scn, days[scn % len(days)], texts[scn % len(texts)])
        changes = change_batch(schema, [(scn, 0, "+I", row)])
        table.apply(fold(schema, [changes]), scn)
    expected = table.content()
    for version in range(20):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert table.content() == expected
    assert len(expected) == 22


def test_what_is_old_goes_and_what_is_promised_stays_in_every_folder(tmp_path: Path) -> None:
    schema = table_of(2)
    table = LocalTable(tmp_path, schema, partition_by=("c1",))
    for scn in range(1, 12):
        terms = f"+R({scn % 3},a b) +R(7,%/{scn % 2})"
        table.apply(folded_of(schema, terms), scn)
    stray = tmp_path / "c1=a%20b" / "part-stray.parquet"
    stray.write_bytes(b"left by a crash")
    mine = tmp_path / "_mine" / "part-mine.parquet"
    mine.parent.mkdir()
    mine.touch()
    aged(table, 2)
    contents = {version: table.content(version) for version in range(8, 12)}
    before = len({*tmp_path.rglob("*.parquet")})
    tidy(tmp_path, 8)
    assert stray.exists()
    assert len({*tmp_path.rglob("*.parquet")}) < before
    aged(table, 8 * 24)
    tidy(tmp_path, 8)
    assert not stray.exists()
    assert mine.exists()
    assert {version: table.content(version) for version in contents} == contents


def test_maintenance_keeps_partitions_apart_and_leaves_each_in_order(tmp_path: Path) -> None:
    schema = table_of(2)
    table = LocalTable(tmp_path, schema, partition_by=("c1",))
    for scn in range(1, 30):
        keys = range(scn * 10, scn * 10 + 10)
        terms = " ".join(f"+I({key},{'ab'[key % 2]})" for key in keys)
        table.apply(folded_of(schema, terms), scn)
    expected = table.content()
    rewrite = plan_rewrite(table.table.snapshot(), ("k",), SIZES)
    assert rewrite is not None
    assert len({file.partition_values["c1"] for file in rewrite.files}) == 1
    assert maintain(table.table, ("k",), sizes=SIZES)["small"] >= 2
    assert table.content() == expected
    counts = Counter(file.partition_values["c1"] for file in table.table.snapshot().files)
    assert set(counts) == {"a", "b"}
    assert max(counts.values()) <= 3
