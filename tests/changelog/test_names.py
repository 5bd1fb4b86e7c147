"""Names of files and folders in the log's care."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.changelog.dead_letters import DeadLetter, DeadLetterStore
from headrace.model.schema import TableId
from tests.changelog.windows import window


def letter(table: TableId) -> DeadLetter:
    return DeadLetter(table, 5, 1, 1, {"+I": 1}, False, {"name": "x"}, 2)


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
