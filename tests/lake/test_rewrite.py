"""Maintenance of tables through random lives: it changes no row, whatever comes in between."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import TargetConflict
from headrace.lake import pieces, settle
from headrace.lake.commit import put_commit
from headrace.lake.delta_log import DeltaTable
from headrace.lake.modes import Mode, shaped
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import Rewrite, plan_rewrite, put_rewrite, sorted_by
from headrace.lake.tidy import tidy
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.testing.lives import random_life
from headrace.testing.notation import table_of
from headrace.testing.target import ModelTable
from headrace.testing.versions import ModelVersions
from tests.lake.kept_table import KeptTable, appended
from tests.lake.local_table import LocalTable, keep_files_apart
from tests.lake.test_commits import Source, folded_of
from tests.lake.test_modes import MODES, cut
from tests.lake.test_tidy import aged
from tests.places import local
from tests.requirements import req

SIZES = Sizes(target_bytes=3_000, small_bytes=1_500, deleted=0.1)
WIDE = Sizes(target_bytes=10_000, small_bytes=5_000, deleted=0.1)
"""For tables with a mode's own columns."""
LARGE = Sizes(target_bytes=3_000, small_bytes=100, deleted=0.1)
"""By which no file is small."""


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    # Apart, so that there is something to maintain.
    keep_files_apart(monkeypatch, rows=2, size=1)
    monkeypatch.setattr(settle, "_MOSTLY", 0.02)
    monkeypatch.setattr(pieces, "_FEW", 2)
    monkeypatch.setattr(pieces, "_CROWD", 3)


def plan(table: DeltaTable, key: tuple[str, ...], sizes: Sizes = SIZES) -> Rewrite | None:
    return plan_rewrite(table.snapshot(), key, sizes)


def put(table: DeltaTable, rewrite: Rewrite) -> int | None:
    done = put_rewrite(rewrite, rewrite.write(), table.latest)
    return done.version if done else None


def maintain(
    table: DeltaTable, key: tuple[str, ...], pieces: int = 100, sizes: Sizes = SIZES
) -> Counter[str]:
    """Carry pieces of work out until there is no more; return how many of each kind."""
    done: Counter[str] = Counter()
    while done.total() < pieces and (rewrite := plan(table, key, sizes)) is not None:
        version = put(table, rewrite)
        assert version == rewrite.snapshot.version + 1
        done[rewrite.piece.reason] += 1
    return done


def changes(table: DeltaTable, version: int) -> list[dict[str, object]]:
    path = local(table.path) / "_delta_log" / f"{version:020d}.json"
    return [json.loads(line) for line in path.read_text().splitlines()]


@req("P18")
@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("key", [1, 2])
def test_a_mirror_keeps_its_rows_and_its_position(tmp_path: Path, key: int, vectors: bool) -> None:
    done: Counter[str] = Counter()
    for seed in range(4):
        schema = table_of(key + 2, key=key)
        table = LocalTable(tmp_path / str(seed), schema, vectors=vectors)
        model, source = ModelTable(schema), Source(seed, key)
        for scn in range(1, 26):
            folded = folded_of(schema, source.batch(source.random.choice([1, 5, 60])))
            table.apply(folded, scn)
            model.apply(folded, scn, complete=True)
            if source.random.random() < 0.4:
                sizes = source.random.choice((SIZES, LARGE))
                done += maintain(table.table, schema.key, source.random.randint(1, 6), sizes)
                assert table.content() == model.content(), (seed, scn)
                assert table.table.snapshot().transactions == {"t": scn}
        done += maintain(table.table, schema.key)
        assert table.content() == model.content()
        assert len(table.table.snapshot().files) <= 5
    assert bool(done["deleted"]) == vectors
    assert done["small"]


@req("T15")
def test_a_table_without_key_keeps_every_copy_of_a_row(tmp_path: Path) -> None:
    schema = table_of(2, check=KeyCheck.NONE)
    table, model = LocalTable(tmp_path, schema), ModelTable(schema)
    generator = random.Random(3)
    done: Counter[str] = Counter()
    for scn in range(1, 40):
        held = [row for row, count in model.counts.items() for _ in range(count)]
        terms = [f"+I({generator.randrange(9)},x)" for _ in range(12)]
        terms += [f"-D({k},{v})" for k, v in generator.sample(held, len(held) // 9)]
        folded = folded_of(schema, " ".join(terms))
        table.apply(folded, scn)
        model.apply(folded, scn, complete=True)
        sizes = generator.choice((SIZES, LARGE))
        done += maintain(table.table, (), generator.randrange(2), sizes)
        assert table.content() == model.content()
    done += maintain(table.table, ())
    assert table.content() == model.content()
    assert done["small"]
    assert done["deleted"]
    assert len(table.table.snapshot().files) < 6


@req("C-11")
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_keeps_what_it_keeps(tmp_path: Path, mode: Mode) -> None:
    schema = table_of(3)
    key = sorted_by(shaped(schema, mode), mode)
    done: Counter[str] = Counter()
    for seed in range(4):
        rng = random.Random(seed)
        life = random_life(schema, rng, 40, whole=False)
        table = KeptTable(tmp_path / str(seed), schema, mode, vectors=rng.random() < 0.7)
        model, count = ModelVersions(), 0
        for batch in cut(life, rng):
            table.apply(batch)
            for transaction in batch:
                model.take(transaction)
            count += len(batch)
            done += maintain(table.table, key, rng.randrange(4), WIDE)
            if mode is Mode.APPEND:
                expected = appended(schema, life[:count])
            else:
                expected = model.soft() if mode is Mode.SOFT_DELETE else model.history()
            assert table.rows() == expected, (seed, batch[0].scn)
        if mode is Mode.APPEND:
            # A table of changes has them in the order in which they came.
            maintain(table.table, key, sizes=WIDE)
            held = table.table.snapshot()
            for file in held.files:
                rows = pa.Table.from_batches(file.live_batches(held.schema))
                order = rows.select(["_scn", "_ord"]).to_pylist()
                assert order == sorted(order, key=lambda row: (row["_scn"], row["_ord"]))
    assert done["small"]


def busy(folder: Path, commits: int = 20, seed: int = 5) -> tuple[LocalTable, Source]:
    table, source = LocalTable(folder, table_of(3)), Source(seed, 1)
    for scn in range(1, commits + 1):
        table.apply(folded_of(table.schema, source.batch(30)), scn)
    return table, source


def test_the_commit_says_that_no_data_changed_and_no_more(tmp_path: Path) -> None:
    table, _ = busy(tmp_path)
    rewrite = plan(table.table, ("k",))
    assert rewrite is not None
    version = put(table.table, rewrite)
    assert version == 21
    actions = changes(table.table, version)
    bodies = [action.get("add") or action.get("remove") for action in actions[1:]]
    assert all(isinstance(body, dict) and body["dataChange"] is False for body in bodies)
    assert {kind for action in actions for kind in action} == {"commitInfo", "add", "remove"}
    assert sum("remove" in action for action in actions) == len(rewrite.piece.files)


def test_rows_are_spread_evenly_over_the_files_that_come(tmp_path: Path) -> None:
    table, _ = busy(tmp_path)
    planned = plan(table.table, ("k",))
    assert planned is not None
    rewrite = replace(planned, piece=replace(planned.piece, count=3))
    adds = [action["add"] for action in rewrite.write() if "add" in action]
    counts = [json.loads(add["stats"])["numRecords"] for add in adds]
    assert len(counts) == 3
    assert max(counts) - min(counts) <= 2


def test_keys_lie_side_by_side_afterwards(tmp_path: Path) -> None:
    table, _ = busy(tmp_path, 40)
    maintain(table.table, ("k",))
    held = table.table.snapshot()
    depth: Counter[int] = Counter()
    for file in held.files:
        keys = pa.Table.from_batches(file.live_batches(held.schema))["k"].to_pylist()
        assert keys == sorted(keys)
        depth.update(set(range(keys[0], keys[-1])))
    # Whatever key is looked for, few files can hold it.
    assert max(depth.values()) <= 3


def test_a_batch_that_touches_other_files_is_carried_over(tmp_path: Path) -> None:
    table, _ = busy(tmp_path)
    rewrite = plan(table.table, ("k",))
    assert rewrite is not None
    actions = rewrite.write()
    # A row that nobody has: the batch only appends.
    table.apply(folded_of(table.schema, "+I(900,new,.)"), 21)
    expected = table.content()
    done = put_rewrite(rewrite, actions, table.table.latest)
    assert done is not None
    assert (done.version, done.files_before) == (22, len(rewrite.piece.files))
    assert table.content() == expected
    assert table.table.snapshot().transactions == {"t": 21}


def touched(table: LocalTable, rewrite: Rewrite) -> int:
    """Return a key that lies in a file of a piece."""
    held = rewrite.snapshot
    rows = pa.Table.from_batches(rewrite.files[0].live_batches(held.schema))
    return int(rows["k"][0].as_py())


@pytest.mark.parametrize("how", ["deletes", "empties", "changes columns"])
def test_whoever_touched_the_same_files_is_given_way(tmp_path: Path, how: str) -> None:
    table, _ = busy(tmp_path)
    rewrite = plan(table.table, ("k",))
    assert rewrite is not None
    before = set(tmp_path.iterdir())
    actions = rewrite.write()
    written = set(tmp_path.iterdir()) - before
    assert written
    if how == "changes columns":
        held = table.table.snapshot()
        text = held.metadata["schemaString"].replace('"c2"', '"other"')
        put_commit(tmp_path, 21, [{"metaData": {**held.metadata, "schemaString": text}}])
    else:
        terms = "T" if how == "empties" else f"-D({touched(table, rewrite)})"
        table.apply(folded_of(table.schema, terms), 21)
    expected = table.content()
    assert put_rewrite(rewrite, actions, table.table.latest) is None
    assert table.content() == expected
    # Nothing is left of it but the work that is planned again.
    assert not written & set(tmp_path.iterdir())
    assert table.table.latest_version() == 21


def test_a_table_that_is_removed_meanwhile_is_given_way(tmp_path: Path) -> None:
    table, _ = busy(tmp_path)
    rewrite = plan(table.table, ("k",))
    assert rewrite is not None
    assert put_rewrite(rewrite, rewrite.write(), lambda: None) is None
    other = LocalTable(tmp_path / "other", table.schema)
    assert put_rewrite(rewrite, rewrite.write(), other.table.latest) is None


def test_a_promised_version_reads_as_before_behind_maintenance_and_tidying(tmp_path: Path) -> None:
    table, source = busy(tmp_path, 4)
    contents = {}
    for scn in range(5, 10):
        table.apply(folded_of(table.schema, source.batch(30)), scn)
        maintain(table.table, ("k",), 2)
        newest = table.table.latest_version() or 0
        contents[newest] = table.content()
    promised = sorted(contents)[3]
    contents = {version: rows for version, rows in contents.items() if version >= promised}
    aged(table, 2)
    assert tidy(tmp_path, promised) > 3
    for version, content in contents.items():
        assert table.content(version) == content
    tidy(tmp_path, newest)
    assert table.content() == contents[newest]


@pytest.mark.parametrize(
    ("type_", "values", "crowds"),
    [
        (pa.string(), [f"{n:03d}" for n in range(200)], True),
        (pa.string(), ["x" * 40 + f"{n:03d}" for n in range(200)], False),
        (pa.float64(), [float(n) for n in range(200)], False),
    ],
    ids=["text", "long text", "float"],
)
def test_bounds_are_believed_where_they_are_exact(
    tmp_path: Path, type_: pa.DataType, values: list[object], crowds: bool
) -> None:
    """A bound that was cut would make neighbours a crowd for ever."""
    schema = TableSchema(
        TableId("public", "t"), (Column("k", type_, "x"),), ("k",), KeyCheck.IMMEDIATE
    )
    table = LocalTable(tmp_path, schema)
    held = table.table.snapshot()
    for part in range(12):
        rows = pa.table({"k": pa.array(values[part::12], type_)}).cast(held.schema)
        put_commit(tmp_path, part + 1, settle.settle(held, {}, rows, ["k"]))
        held = table.table.snapshot()
    big = Sizes(target_bytes=1_000, small_bytes=1, deleted=0.1)
    rewrite = plan_rewrite(held, ("k",), big)
    assert (rewrite is not None) == crowds


def test_columns_that_somebody_changed_are_named(tmp_path: Path) -> None:
    table, _ = busy(tmp_path, 2)
    with pytest.raises(TargetConflict, match="columns"):
        plan(table.table, ("nobody",))
