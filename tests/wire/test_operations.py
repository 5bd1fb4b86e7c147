"""The operations of a block are those that its rows say, however its bodies are laid out."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.model.block import ORIGIN_LOG, Block, Body, SystemEvent, SystemKind, transaction_index
from headrace.model.change import DELETE, INSERT, PATCH, READ, UPDATE_NEW, UPDATE_OLD, change_schema
from headrace.model.schema import TableSchema
from headrace.testing.notation import table_of
from headrace.wire import operations
from headrace.wire.block import encode_block, read_entries
from headrace.wire.operations import CODES, read_operations

OPS = (INSERT, UPDATE_OLD, UPDATE_NEW, PATCH, DELETE, READ)


def body(schema: TableSchema, rng: random.Random, rows: int) -> Body:
    """Return rows of random operations, cut out of more of them."""
    scns = sorted(rng.choices(range(1, 9), k=rows + 2))
    columns = [
        pa.array(scns, pa.int64()),
        pa.array(range(rows + 2), pa.int32()),
        pa.array(rng.choices(OPS, k=rows + 2), pa.string()),
        pa.array([rng.choice([None, b"\1"]) for _ in scns], pa.binary()),
    ]
    columns += [pa.nulls(rows + 2, column.type) for column in schema.columns]
    batch = pa.record_batch(columns, schema=change_schema(schema)).slice(1, rows)
    return Body(schema.schema_id, schema.table, batch)


def block_of(*bodies: Body) -> bytes:
    index = transaction_index([(9, 1, 9, sum(b.batch.num_rows for b in bodies), ORIGIN_LOG, 1)])
    event = SystemEvent(9, 0, SystemKind.TRUNCATE, bodies[0].table)
    return encode_block(Block(index, bodies, (event,), 9))


@pytest.mark.parametrize("seed", range(30))
def test_operations_are_those_of_the_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    schemas = [table_of(rng.randint(1, 40), name=name) for name in ("t", "other")]
    bodies = [body(schema, rng, rng.choice([1, 2, 7, 1_000])) for schema in schemas]
    data = memoryview(block_of(*bodies))
    wanted = {one.schema_id: one for one in bodies}
    # By the places of the buffers: nothing is decoded.
    monkeypatch.setattr(operations, "_decoded", None)
    found = list(read_operations(data, 3, set(wanted)))
    assert [one.schema_id for one in found] == list(wanted)
    for one in found:
        batch = wanted[one.schema_id].batch
        assert one.scns.tolist() == batch.column("_scn").to_pylist()
        assert one.codes.tolist() == [CODES[op] for op in batch.column("_op").to_pylist()]
        assert 0 < batch.nbytes <= one.bytes < len(data)
    (only,) = read_operations(data, 3, {bodies[1].schema_id})
    assert only.schema_id == bodies[1].schema_id


def test_a_body_that_is_laid_out_in_another_way_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that do not begin at zero are legal in Arrow, and no writer of ours makes them."""
    one = body(table_of(2), random.Random(1), 50)
    data = memoryview(block_of(one))

    def refuse(*_: object) -> None:
        raise ValueError("another layout")

    monkeypatch.setattr(operations, "_found", refuse)
    (found,) = read_operations(data, 2, {one.schema_id})
    assert found.codes.tolist() == [CODES[op] for op in one.batch.column("_op").to_pylist()]
    assert np.array_equal(found.scns, one.batch.column("_scn").to_numpy())


def test_bytes_that_are_no_rows_are_refused() -> None:
    one = body(table_of(2), random.Random(1), 50)
    data = bytearray(block_of(one))
    (entry, _) = read_entries(memoryview(data), 2)
    data[entry.offset : entry.offset + entry.length] = bytes(entry.length)
    with pytest.raises(ProtocolError):
        list(read_operations(memoryview(data), 2, {one.schema_id}))
