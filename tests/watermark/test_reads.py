"""Between which marks a read lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.model.mark import Mark
from headrace.model.schema import TableId
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.sources.scripted.database import Cells
from headrace.testing.notation import table_of
from headrace.watermark.reads import Reads
from tests.requirements import req

SCHEMA = table_of(2)
TABLE = SCHEMA.table


class Noting(ScriptedDatabase):
    """Notes what came to it."""

    def __init__(self) -> None:
        super().__init__([SCHEMA])
        self.noted: list[str] = []

    def write_mark(self, mark: Mark) -> None:
        self.noted.append(mark.kind.name)
        super().write_mark(mark)

    def visible(self, table: TableId) -> list[Cells]:
        self.noted.append("select")
        return super().visible(table)


@req("P42", "P15")
@pytest.mark.parametrize(
    "read",
    [
        lambda reads: reads.chunk("token", TABLE, None, ("9",), 10),
        lambda reads: reads.keys("token", TABLE, [("1",)]),
        lambda reads: reads.table("token", TABLE),
    ],
    ids=["chunk", "keys", "table"],
)
def test_a_read_lies_between_its_low_and_its_high_mark(
    read: Callable[[Reads], object], tmp_path: Path
) -> None:
    database = Noting()
    source = ScriptedSource(database)
    read(Reads(source.chunks(), source.watermarks(), "run", tmp_path))
    assert database.noted == ["LOW", "select", "HIGH"]
