"""Random batches through our own commits, against the target in memory: any version, any reader, any size of files."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import MissingBase, NegativeCount, TargetConflict
from headrace.fold import fold
from headrace.lake import CorruptTable, settle
from headrace.lake.commit import CommitConflict, put_commit, transaction
from headrace.lake.delta_log import DeltaTable
from headrace.lake.keyed import commit_keyed
from headrace.lake.vectors import vector_path
from headrace.model.schema import KeyCheck, TableSchema
from headrace.testing.notation import change_batch, parse_history, table_of
from headrace.testing.target import ModelTable
from tests.lake.local_table import LocalTable, keep_files_apart
from tests.places import local
from tests.requirements import req


def folded_of(schema: TableSchema, history: str) -> pa.Table:
    parsed = parse_history(history)
    batches = [change_batch(schema, parsed.rows)] if parsed.rows else []
    return fold(schema, batches, parsed.truncates)


class Source:
    """Rows that a batch may change, and how; every history is one that a database could send."""

    def __init__(self, seed: int, key: int) -> None:
        self.random = random.Random(seed)
        self.key = key
        self.live: set[tuple[str, ...]] = set()
        self.patched = 0

    def batch(self, size: int) -> str:
        return " | ".join(self._transaction() for _ in range(size))

    def _key(self) -> tuple[str, ...]:
        cells = [str(self.random.randrange(200))]
        cells += [self.random.choice("abc") for _ in range(self.key - 1)]
        return tuple(cells)

    def _transaction(self) -> str:
        if self.random.random() < 0.003:
            self.live.clear()
            return "T"
        key, other = self._key(), self._key()
        text, value = ",".join(key), self.random.randrange(1_000)
        if key not in self.live:
            self.live.add(key)
            return f"{self.random.choice(['+I', '+R'])}({text},v{value},.)"
        match self.random.randrange(4):
            case 0:
                self.live.remove(key)
                return f"-D({text})"
            case 1 if other not in self.live:
                self.live.remove(key)
                self.live.add(other)
                self.patched += 1
                return f"-U({text}) +U({','.join(other)},?,m{value})"
            case 2:
                self.patched += 1
                return f"=U({text},?,p{value})"
            case _:
                return f"=U({text},u{value},w{value})"


@req("P18")
@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("key", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_random_batches_leave_what_the_model_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, key: int, vectors: bool
) -> None:
    # Files stay apart, and some lose most of their rows: all ways of settling are taken.
    keep_files_apart(monkeypatch)
    schema = table_of(key + 2, key=key)
    table, model, source = (
        LocalTable(tmp_path, schema, vectors=vectors),
        ModelTable(schema),
        Source(seed, key),
    )
    seen = 0
    for scn in range(1, 26):
        folded = folded_of(schema, source.batch(source.random.choice([1, 5, 60])))
        table.apply(folded, scn)
        model.apply(folded, scn, complete=True)
        assert table.content() == model.content()
        seen += table.vectors()
    assert source.patched > 20
    assert bool(seen) == vectors
    assert table.table.snapshot().transactions == {"t": 25}


@req("C50", "T15")
@pytest.mark.parametrize("seed", range(4))
def test_random_batches_without_key_leave_what_the_model_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    keep_files_apart(monkeypatch)
    schema = table_of(3, check=KeyCheck.NONE)
    table, model = LocalTable(tmp_path, schema), ModelTable(schema)
    generator = random.Random(seed)
    vectors = 0
    for scn in range(1, 26):
        terms = []
        held = +model.counts
        for _ in range(generator.choice([1, 5, 40])):
            if held and generator.random() < 0.45:
                row = generator.choice(list(held))
                held[row] -= 1
                held = +held
                cells = ",".join("." if cell is None else str(cell) for cell in row)
                terms.append(f"-D({cells})")
            else:
                terms.append(f"+I({generator.randrange(9)},{generator.choice('ab.')},.)")
        folded = folded_of(schema, " | ".join(terms))
        table.apply(folded, scn)
        model.apply(folded, scn, complete=True)
        assert table.content() == model.content()
        vectors += table.vectors()
    assert vectors


def test_every_version_can_be_read_beyond_checkpoints(tmp_path: Path) -> None:
    schema = table_of(2)
    table = LocalTable(tmp_path, schema)
    for scn in range(1, 46):
        table.apply(folded_of(schema, f"+I({scn},a) | -D({scn - 3})"), scn)
    names = {path.name for path in (tmp_path / "_delta_log").iterdir()}
    assert f"{20:020d}.checkpoint.parquet" in names
    assert f"{40:020d}.checkpoint.parquet" in names
    for version in (1, 19, 20, 21, 39, 40, 41, 45):
        expected = {(scn, "a") for scn in range(max(1, version - 2), version + 1)}
        assert table.content(version) == Counter(expected)
    # A position stands in the checkpoint too.
    assert table.table.snapshot(20).transactions == {"t": 20}
    # What was removed lately is remembered across the checkpoint: no vacuum may delete it yet.
    assert table.table.state(40).removed


def test_files_stay_few_however_many_batches_come(tmp_path: Path) -> None:
    schema = table_of(2)
    table = LocalTable(tmp_path, schema)
    most = 0
    for scn in range(1, 151):
        rows = " | ".join(f"+I({key},a)" for key in range(scn * 200, scn * 200 + 200))
        table.apply(folded_of(schema, rows), scn)
        most = max(most, len(table.table.snapshot().files))
    assert len(table.content()) == 150 * 200
    assert most <= 4


def test_a_batch_of_nothing_moves_the_position_alone(tmp_path: Path) -> None:
    schema = table_of(2)
    table = LocalTable(tmp_path, schema)
    table.apply(folded_of(schema, "+I(1,a)"), 1)
    before = table.table.snapshot()
    table.apply(folded_of(schema, "-D(7)"), 2)
    after = table.table.snapshot()
    assert [file.path for file in after.files] == [file.path for file in before.files]
    assert after.transactions == {"t": 2}


@req("A-11")
@pytest.mark.parametrize("change", ["=U(50,x,?)", "-U(60) +U(1,y,?)", "-D(1) | =U(1,z,?)"])
def test_a_missing_base_writes_nothing(tmp_path: Path, change: str) -> None:
    schema = table_of(3)
    table = LocalTable(tmp_path, schema)
    table.apply(folded_of(schema, "+I(1,a,b)"), 1)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(MissingBase) as caught:
        table.apply(folded_of(schema, change), 2)
    assert caught.value.columns == ["c2"]
    assert sorted(tmp_path.rglob("*")) == files
    table.apply(folded_of(schema, "=U(50,x,?)"), 2, complete=False)
    assert table.content() == Counter({(1, "a", "b"): 1})


def test_a_row_that_nobody_holds_is_not_removed(tmp_path: Path) -> None:
    schema = table_of(2, check=KeyCheck.NONE)
    table = LocalTable(tmp_path, schema)
    table.apply(folded_of(schema, "+I(1,a) +I(1,a)"), 1)
    with pytest.raises(NegativeCount):
        table.apply(folded_of(schema, "-D(1,a) -D(1,a) -D(1,a)"), 2)
    assert table.content() == Counter({(1, "a"): 2})
    table.apply(folded_of(schema, "-D(1,a) -D(1,a) -D(1,a)"), 2, complete=False)
    assert table.content() == Counter()


@pytest.mark.parametrize("change", ["+I(100,x)", "-D(5)", "T"])
def test_a_damaged_vector_is_named_whatever_the_batch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    keep_files_apart(monkeypatch, rows=2, size=100)
    schema = table_of(2)
    table = LocalTable(tmp_path, schema)
    table.apply(folded_of(schema, " ".join(f"+I({key},a)" for key in range(20))), 1)
    table.apply(folded_of(schema, "-D(3)"), 2)
    (file,) = table.table.snapshot().files
    assert file.vector is not None
    local(vector_path(tmp_path, file.vector)).write_bytes(b"damaged")
    with pytest.raises(CorruptTable, match=local(file.path).name):
        table.apply(folded_of(schema, change), 3)


@pytest.mark.parametrize("name", [".k", "a.b", "."])
def test_a_point_in_the_name_of_a_key_is_a_letter(tmp_path: Path, name: str) -> None:
    plain = table_of(2)
    columns = (replace(plain.columns[0], name=name), *plain.columns[1:])
    schema = replace(plain, columns=columns, key=(name,))
    table = LocalTable(tmp_path, schema)
    table.apply(folded_of(schema, "+I(2,b) +I(1,a)"), 1)
    table.apply(folded_of(schema, "=U(1,c) | -D(2)"), 2)
    assert table.content() == {(1, "c"): 1}


def test_one_version_has_one_writer(tmp_path: Path) -> None:
    LocalTable(tmp_path, table_of(2))
    put_commit(tmp_path, 1, [transaction("a", 1)])
    with pytest.raises(CommitConflict, match="version 1") as caught:
        put_commit(tmp_path, 1, [transaction("b", 2)])
    assert isinstance(caught.value, TargetConflict)
    assert DeltaTable(tmp_path).snapshot().transactions == {"a": 1}
    assert [path.name for path in (tmp_path / "_delta_log").iterdir() if "tmp" in path.name] == []


def test_files_of_a_commit_that_failed_are_deleted(tmp_path: Path) -> None:
    schema = table_of(2)
    table = LocalTable(tmp_path, schema)
    rows = " | ".join(f"+I({key},a)" for key in range(20_000))
    table.apply(folded_of(schema, rows), 1)
    before = sorted(path.name for path in tmp_path.iterdir())
    snapshot = table.table.snapshot()
    actions = commit_keyed(snapshot, schema, folded_of(schema, "=U(7,b) | -D(8)"), complete=True)
    assert len(list(tmp_path.iterdir())) == len(before) + 2
    settle.discard(snapshot, actions)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert len(table.content()) == 20_000
