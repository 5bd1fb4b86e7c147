"""Names of files and folders in the log's care: they outlive a power cut, whatever a table is called."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogWriter, register_job
from headrace.changelog.dead_letters import DeadLetter, DeadLetterStore
from headrace.durable import make_folder
from headrace.model.schema import TableId
from headrace.registry.file import FileRegistry
from tests.changelog.windows import TABLE, window


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return the inodes that were synced."""
    seen: set[int] = set()
    sync = os.fsync

    def noting(descriptor: int) -> None:
        seen.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return seen


def letter(table: TableId) -> DeadLetter:
    return DeadLetter(table, 5, 1, 1, {"+I": 1}, False, {"name": "x"}, 2)


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: ChangeLogWriter.open(folder).close(),
        lambda folder: register_job(folder, "shop", 1),
        lambda folder: FileRegistry(folder).put(TABLE),
        lambda folder: DeadLetterStore(folder).put(letter(TABLE.table), iter([window(5)])),
    ],
    ids=["log", "job", "registry", "letter"],
)
def test_every_folder_on_the_way_to_a_durable_file_is_durable(
    tmp_path: Path, synced: set[int], write: Callable[[Path], object]
) -> None:
    write(tmp_path / "state" / "deep" / "folder")
    folders = [tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())]
    assert [path for path in folders if path.stat().st_ino not in synced] == []


def test_a_folder_that_is_there_costs_no_sync(tmp_path: Path, synced: set[int]) -> None:
    make_folder(tmp_path)
    assert synced == set()


@pytest.mark.parametrize("name", ["orders", "注文" * 32, "n" * 200, "é" * 63])
def test_letters_of_a_table_of_any_name_are_kept(tmp_path: Path, name: str) -> None:
    """Sixty-four letters of a server's own are more bytes, escaped, than a folder's name may have."""
    store = DeadLetterStore(tmp_path / "letters")
    tables = [TableId("shop", name), TableId("shop", f"{name[:-1]}x")]
    for table in tables:
        store.put(letter(table), iter([window(5)]))
    for table in tables:
        (found,) = store.of(table)
        assert found.table == table
        assert [int(block.last_scn) for block in store.blocks(found)] == [5]
    assert {found.table for found in store.all()} == set(tables)
