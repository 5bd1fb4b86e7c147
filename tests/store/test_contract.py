"""What a table's folder needs of the place where its bytes lie, of every store."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import StoreRefused
from headrace.store import Location, ObjectPath, store_of

NAMES = ["0.json", "a=%25 1/x y.bin", "ä#?{1}*.parquet", "_log/~"]
HEART = "_log"


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_is_read_whole_and_in_pieces(folder: Location, name: str) -> None:
    store, path = store_of(folder), folder / name
    assert not store.exists(path)
    with pytest.raises(FileNotFoundError):
        store.read(path)
    with pytest.raises(FileNotFoundError):
        store.read_range(path, 0, 1)
    store.put(path, b"0123456789")
    assert store.exists(path)
    assert store.read(path) == b"0123456789"
    assert store.read_range(path, 3, 4) == b"3456"
    assert store.read_range(path, 8, 40) == b"89"
    store.put(path, b"new")
    assert store.read(path) == b"new"
    assert store.delete([path]) == 1
    assert not store.exists(path)


@pytest.mark.object_store
@pytest.mark.parametrize("name", ["a\tb", "a\nb", "..", "\x7f"])
def test_a_key_that_no_object_can_have_is_refused_by_name(prefix: ObjectPath, name: str) -> None:
    """A table may be called so at its source; it must not end the job of all others."""
    store, path = store_of(prefix), prefix / name / "0.json"
    asked: list[Callable[[], object]] = [
        lambda: store.put_if_absent(path, b""),
        lambda: store.put(path, b""),
        lambda: store.read(path),
        lambda: store.exists(path),
        lambda: store.names(path.parent),
        lambda: store.delete([path]),
        lambda: list(store.walk(path.parent, bool, bool)),
    ]
    for ask in asked:
        with pytest.raises(StoreRefused, match="takes no key"):
            ask()


def test_a_name_is_given_once(folder: Location) -> None:
    store, path = store_of(folder), folder / "7.json"
    store.put_if_absent(path, b"first")
    with pytest.raises(FileExistsError):
        store.put_if_absent(path, b"second")
    assert store.read(path) == b"first"
    assert store.names(folder) == ["7.json"]


def test_of_many_writers_of_a_name_one_has_it(folder: Location) -> None:
    writers, rounds = 8, 25
    gate = Barrier(writers)

    def write(writer: int) -> list[bool]:
        won = []
        for number in range(rounds):
            gate.wait()
            try:
                store_of(folder).put_if_absent(folder / f"{number}.json", bytes([writer]) * 999)
                won.append(True)
            except FileExistsError:
                won.append(False)
        return won

    with ThreadPoolExecutor(writers) as pool:
        outcomes = list(pool.map(write, range(writers)))
    for number, won in enumerate(zip(*outcomes, strict=True)):
        assert sum(won) == 1
        assert store_of(folder).read(folder / f"{number}.json") == bytes([won.index(True)]) * 999


def test_a_block_that_fails_leaves_no_table(folder: Location) -> None:
    store = store_of(folder)
    with store.create(folder / "sub" / "whole") as file:
        file.write(b"ab")
        file.write(b"cd")
        assert file.tell() == 4
    store.sync([folder, folder / "sub"])
    assert store.read(folder / "sub" / "whole") == b"abcd"
    torn = store.create(folder / "torn")
    torn.__enter__().write(b"half")
    assert not torn.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    # A folder keeps a torso, of a name that no log has; an object is whole or is not.
    if isinstance(folder, ObjectPath):
        assert store.names(folder) == []


def test_parquet_is_read_from_small_and_large_files(folder: Location) -> None:
    store = store_of(folder)
    # Beyond what is fetched at once, whole or in pieces.
    for rows in (10, 2_000_000):
        path, numbers = folder / f"{rows}.parquet", pa.array(range(rows))
        with store.create(path) as file:
            table = pa.table({"n": numbers, "m": numbers})
            pq.write_table(table, file, use_dictionary=False, compression="none")
            size = file.tell()
        for known in (0, size):
            with pq.ParquetFile(store.parquet(path, known)) as parquet:
                assert parquet.read(columns=["n"])["n"].combine_chunks().equals(numbers)
        if isinstance(folder, ObjectPath):
            reader = store.parquet(path, size)
            assert reader.read(5) + reader.read(5) == store.read_range(path, 0, 10)
    with pytest.raises(FileNotFoundError):
        pq.ParquetFile(store.parquet(folder / "none.parquet", 10))


def test_a_folder_is_listed(folder: Location) -> None:
    store = store_of(folder)
    assert store.names(folder) == []
    names = [f"{number:03}.json" for number in range(30)]
    for name in names:
        store.put(folder / name, b"")
    store.put(folder / "below" / "x", b"")
    store.put(folder.parent / f"{folder.name} too" / "y", b"")
    assert sorted(set(store.names(folder)) - {"below"}) == names


def test_files_in_a_row_are_found_up_to_the_first_gap(folder: Location) -> None:
    store = store_of(folder)

    def row(begin: int) -> list[str]:
        paths = (folder / f"{number:020}.json" for number in itertools.count(begin))
        return [found.path.name for found in store.consecutive(paths)]

    assert row(0) == []
    for number in (3, 4, 5, 7):
        store.put(folder / f"{number:020}.json", b"")
        store.put(folder / f"{number:020}.checkpoint.parquet", b"")
    assert row(3) == [f"{number:020}.json" for number in (3, 4, 5)]
    assert row(5) == [f"{5:020}.json"]
    assert row(6) == []


def test_another_file_of_a_name_is_told_from_the_first(folder: Location) -> None:
    store, path = store_of(folder), folder / "1"
    store.put(path, b"a")
    ((first,), (again,)) = (store.consecutive([path]), store.consecutive([path]))
    store.put(path, b"b")
    (other,) = store.consecutive([path])
    assert first.tag == again.tag != other.tag


def test_folders_are_walked_where_they_are_wanted(folder: Location) -> None:
    store = store_of(folder)
    for name in ("x", "a=1/x", "a=1/b=2/x", "a=1/log/x", "log/x", "a=1/y"):
        store.put(folder / name, b"")
    found = list(store.walk(folder, lambda name: "=" in name, lambda name: name == "x"))
    wanted = [folder / name for name in ("x", "a=1/x", "a=1/b=2/x")]
    assert {file.path for file in found} == {*wanted}
    assert all(abs(file.modified_ms - found[0].modified_ms) < 60_000 for file in found)
    assert store.missing(folder, wanted) == 0
    assert store.missing(folder, [*wanted, folder / "z", folder / "a=1/z"]) == 2


def test_many_files_are_deleted_and_missing_ones_do_not_matter(folder: Location) -> None:
    store = store_of(folder)
    paths = [folder / str(number) for number in range(12)]
    for path in paths:
        store.put(path, b"")
    store.delete([*paths[:11], folder / "none"])
    assert store.names(folder) == ["11"]
    assert store.delete([]) == 0


def test_files_become_those_of_another_folder_too(folder: Location) -> None:
    store, names = store_of(folder), ["1", "a=%25/2"]
    for name in names:
        store.put(folder / name, name.encode())
    place = folder.parent / "other"
    store.put(place / "0", b"")
    store.share(folder, place, names)
    store.share(folder, place, names)
    store.discard(folder, HEART)
    assert [store.read(place / name) for name in ["0", *names]] == [b"", b"1", b"a=%25/2"]


def test_a_discarded_folder_is_gone_and_can_begin_anew(folder: Location) -> None:
    store = store_of(folder)
    store.discard(folder, HEART)
    for name in (f"{HEART}/0.json", f"{HEART}/1.json", "x"):
        store.put(folder / name, b"old")
    store.put(folder.parent / "neighbour" / "x", b"")
    store.discard(folder, HEART)
    assert (store.names(folder), store.names(folder / HEART)) == ([], [])
    store.end_discard(folder, HEART)
    store.put_if_absent(folder / HEART / "0.json", b"new")
    assert store.names(folder / HEART) == ["0.json"]
    assert store.exists(folder.parent / "neighbour" / "x")


def test_a_location_travels(folder: Location) -> None:
    store_of(folder).put(folder / "x", b"1")
    arrived = pickle.loads(pickle.dumps(folder))
    assert arrived == folder
    assert store_of(arrived).read(arrived / "x") == b"1"
