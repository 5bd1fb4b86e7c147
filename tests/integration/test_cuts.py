"""F4 on real servers: what the statements of both worked examples give is right however it is cut into batches."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.changelog import ChangeLogReader
from headrace.fold import fold
from headrace.model.schema import TableId, TableSchema
from headrace.testing.target import ModelTable
from tests.faults.faulty import at_work
from tests.fixtures_binlog import mariadb_server, mysql_server
from tests.integration.either import EACH_SERVER, MYSQL, Either, on_either
from tests.requirements import req
from tests.waiting import until

__all__ = ["mariadb_server", "mysql_server"]

EXAMPLES = {
    "with primary key": (
        "CREATE TABLE customers (id bigint PRIMARY KEY, name varchar(50))",
        "INSERT INTO customers VALUES (0, 'alice')",
        "UPDATE customers SET id = 1 WHERE id = 0",
        "UPDATE customers SET id = 2 WHERE id = 1",
        "DELETE FROM customers WHERE id = 2",
        "INSERT INTO customers VALUES (0, 'Alice'), (1, 'blob')",
        "UPDATE customers SET name = 'Bob' WHERE id = 1",
    ),
    "without primary key": (
        "CREATE TABLE customers (id bigint, name varchar(50))",
        "INSERT INTO customers VALUES (0, 'alice'), (0, 'alice'), (0, 'Bob')",
        "UPDATE customers SET name = 'Alyce' WHERE name = 'alice'",
        "UPDATE customers SET name = 'Alice' WHERE name = 'Alyce'",
        "DELETE FROM customers WHERE name = 'Alice'",
    ),
}
CUTS = {"with primary key": 64, "without primary key": 256}


@pytest.fixture
def either(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Either]:
    with on_either(kind, request, tmp_path) as made:
        yield made


def logged(folder: Path, table: TableId) -> pa.Table:
    """Return the rows that the log gave of a table, in its order."""
    batches = [
        body.batch
        for block in ChangeLogReader(folder / "changelog").blocks(0)
        for body in block.bodies
        if body.table == table
    ]
    found = pa.Table.from_batches(batches) if batches else pa.table({})
    return found.sort_by([("_scn", "ascending"), ("_ord", "ascending")]) if batches else found


def in_batches(
    schema: TableSchema, rows: pa.Table, cut: tuple[int, ...], crash: bool
) -> Counter[tuple[Any, ...]]:
    """Apply rows in batches; after one in the middle all comes again from the beginning, as after a crash.

    What the ledger has is left out, as everywhere: the crash lies between a batch's commit and whoever notes it.
    """
    target, applied = ModelTable(schema), 0
    edges = [0, *cut, len(rows)]
    batches = list(itertools.pairwise(edges))
    if crash:
        middle = len(batches) // 2
        batches.insert(middle + 1, (0, batches[middle][1]))
    for first, last in batches:
        fresh = rows.slice(max(first, applied), last - max(first, applied))
        target.apply(fold(schema, fresh.combine_chunks().to_batches()), 0, complete=True)
        applied = last
    return target.content()


@req("F4", "P17", "C42", "C46", "C50")
@pytest.mark.parametrize(
    ("kind", "example"),
    [
        *(
            pytest.param(*kind.values, example, marks=kind.marks)
            for kind in EACH_SERVER
            for example in EXAMPLES
        ),
        pytest.param(*MYSQL.values, "with primary key", marks=MYSQL.marks),
    ],
)
def test_every_cut_of_a_worked_example_ends_as_at_the_source(
    kind: str, example: str, either: Either, tmp_path: Path
) -> None:
    create, *changes = EXAMPLES[example]
    state, table = tmp_path / "state", either.table("customers")
    either.says(create)
    if kind == "postgres":
        either.says("ALTER TABLE customers REPLICA IDENTITY FULL")
    with at_work(either.source, state) as running:
        until(running.dumped, "the copy of the empty table")
        either.says(*changes)
        source = either.rows("customers")
        until(lambda: running.holds(table, source), "the changes")
        schema = running.registry.get(next(iter(_schemas(state, table))))
    rows = logged(state, table)
    ops = rows["_op"].to_pylist()
    # The two rows of an update are never parted.
    edges = [place for place in range(1, len(ops)) if ops[place] != "+U"]
    cuts = [cut for n in range(len(edges) + 1) for cut in itertools.combinations(edges, n)]
    assert len(cuts) == CUTS[example]
    for cut in cuts:
        for crash in (False, True):
            assert in_batches(schema, rows, cut, crash) == source, (cut, crash)


def _schemas(folder: Path, table: TableId) -> set[int]:
    blocks = ChangeLogReader(folder / "changelog").blocks(0)
    return {body.schema_id for block in blocks for body in block.bodies if body.table == table}
