"""A table goes through every kind of change while captured, and each row keeps the shape that it was written in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import IncompatibleSchemaChange
from headrace.fold import promote
from headrace.model.block import ORIGIN_LOG, SystemKind
from headrace.model.schema import TableSchema
from tests.faults.faulty import AtWork, at_work
from tests.fixtures_binlog import mariadb_server, mysql_server
from tests.integration.either import EACH_SERVER, MYSQL, Either, on_either
from tests.requirements import req
from tests.waiting import until

__all__ = ["mariadb_server", "mysql_server"]

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize("kind", [*EACH_SERVER, MYSQL]),
]

LARGE = 5_000_000_000
Row = dict[str, object]

STEPS: tuple[tuple[str, str, Row], ...] = (
    ("as it was", "", {"id": 10, "n": 1, "v": "a"}),
    ("add", "ADD more text", {"id": 11, "n": 2, "v": "b", "more": "m"}),
    ("relax", "MODIFY n int", {"id": 12, "n": None, "v": "c", "more": None}),
    ("widen a text", "MODIFY v text", {"id": 13, "n": 3, "v": "long" * 9, "more": "m"}),
    ("widen a number", "MODIFY n bigint", {"id": 14, "n": LARGE, "v": "e", "more": "m"}),
    ("rename", "RENAME COLUMN v TO label", {"id": 15, "n": 4, "label": "f", "more": "m"}),
    ("drop", "DROP more", {"id": 16, "n": 5, "label": "g"}),
)
"""What is done to the table, and a row that is written then."""

ON_POSTGRES = {
    "MODIFY n int": "ALTER n DROP NOT NULL",
    "MODIFY v text": "ALTER v TYPE text",
    "MODIFY n bigint": "ALTER n TYPE bigint",
}
"""The same where a column is not stated anew."""


@pytest.fixture
def either(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Either]:
    with on_either(kind, request, tmp_path) as made:
        yield made


def follows(running: AtWork, either: Either) -> None:
    """Wait until the change log amounts to what the source holds."""
    wanted = either.rows("t")
    until(lambda: running.holds(either.table("t"), wanted), "the table as the source has it")


def written(running: AtWork) -> dict[object, tuple[TableSchema, pa.RecordBatch]]:
    """Return each row that the log brought, by id, with the version that it names."""
    found: dict[object, tuple[TableSchema, pa.RecordBatch]] = {}
    for block in ChangeLogReader(running.folder / "changelog").blocks(0):
        logged = {int(e["scn"]) for e in block.index if e["origin"] == ORIGIN_LOG}
        for body in block.bodies:
            for place, row in enumerate(body.batch.to_pylist()):
                if row["_scn"] in logged and row["_op"] == "+I":
                    schema = running.registry.get(body.schema_id)
                    found[row["id"]] = (schema, body.batch.slice(place, 1))
    return found


def values(batch: pa.RecordBatch) -> Row:
    (row,) = batch.to_pylist()
    return {name: value for name, value in row.items() if not name.startswith("_")}


@req("F12", "P33", "P34", "P22", "D114")
def test_every_row_keeps_the_shape_it_was_written_in_and_old_and_new_readers_understand_it(
    either: Either, tmp_path: Path
) -> None:
    either.says(
        "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, v varchar(5))",
        "INSERT INTO t VALUES (1, 1, 'v1'), (2, 2, 'v2'), (3, 3, 'v3'), (4, 4, 'v4')",
    )
    with at_work(either.source, tmp_path) as running:
        # Rows of a table that is written anew change without a log event.
        running.judged = False
        until(running.dumped, "the first copy")
        shapes: dict[object, TableSchema] = {}
        early: dict[object, pa.RecordBatch] = {}
        for name, change, row in STEPS:
            if change:
                if either.kind == "postgres":
                    change = ON_POSTGRES.get(change, change)
                either.says(f"ALTER TABLE t {change}")
            marks = ", ".join(["%s"] * len(row))
            with either.session.cursor() as cursor:
                cursor.execute(
                    f"INSERT INTO t ({', '.join(row)}) VALUES ({marks})", [*row.values()]
                )
            got = until(lambda: written(running).get(row["id"]), f"the row of {name!r}")  # noqa: B023
            assert got is not None
            shapes[row["id"]], early[row["id"]] = got
            assert values(got[1]) == row, name
            if name == "widen a number" and either.kind == "postgres":
                # Nothing is read again for the change of a name, so the rows are known under the old one alone.
                until(
                    lambda: len(running.state.requests()) > 1 and running.dumped(), "the new heap"
                )
        follows(running, either)
        until(running.dumped, "what was read again")

        # What a row says of its shape never changes behind it, nor does the row.
        assert {key: batch for key, (_, batch) in written(running).items()} == early
        # PostgreSQL's log says nothing about NOT NULL, so every column but a key's may be null from the start.
        silent = either.kind == "postgres"
        assert [shapes[n].column("n").nullable for n in (11, 12)] == [silent, True]
        versions = len(STEPS) - silent
        assert len({schema.schema_id for schema in shapes.values()}) == versions
        oldest, newest = shapes[10], shapes[16]
        assert newest.column("n").type == pa.int64()
        assert oldest.column("n").type == pa.int32()

        # A reader of today reads the first row, one that stayed behind the later ones, as far as they fit.
        assert values(promote(early[10], oldest, newest)) == {"id": 10, "n": 1, "label": None}
        assert values(promote(early[13], shapes[13], oldest)) == {"id": 13, "n": 3, "v": "long" * 9}
        assert values(promote(early[16], newest, oldest)) == {"id": 16, "n": 5, "v": None}
        with pytest.raises(IncompatibleSchemaChange, match=r"\bt\.n\b"):
            promote(early[14], shapes[14], oldest)

        either.says("TRUNCATE TABLE t", "INSERT INTO t VALUES (17, 6, 'after')")
        follows(running, either)
        assert list(running.content(either.table("t"))) == [(17, 6, "after")]
        told = [
            event.kind
            for block in ChangeLogReader(tmp_path / "changelog").blocks(0)
            for event in block.system
            if event.table == either.table("t")
        ]
        assert told.count(SystemKind.TRUNCATE) == 1
        # One for each version, the first included.
        assert told.count(SystemKind.SCHEMA) >= versions
    assert running.error is None
