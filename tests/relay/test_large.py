"""Large values are counted as they come into the log, and their columns named once."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from headrace.model.block import Block, Body, transaction_index
from headrace.model.change import change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.relay.large import LargeSeen, LargeValues

LIMIT = 1000


def table(name: str, *types: pa.DataType) -> TableSchema:
    columns = [Column("id", pa.int64(), "int8")]
    columns += [Column(f"c{number}", type_, "any") for number, type_ in enumerate(types, 1)]
    return TableSchema(TableId("public", name), tuple(columns), ("id",), KeyCheck.IMMEDIATE)


DOCUMENTS = table("documents", pa.string(), pa.binary(), pa.int64())
OTHERS = table("others", pa.string())


def block(schema: TableSchema, *rows: tuple) -> Block:
    count = len(rows)
    meta = [
        pa.array([7] * count, pa.int64()),
        pa.array(range(count), pa.int32()),
        pa.array(["+I"] * count),
        pa.nulls(count, pa.binary()),
    ]
    cells = [pa.array([row[i] for row in rows], c.type) for i, c in enumerate(schema.columns)]
    batch = pa.record_batch([*meta, *cells], schema=change_schema(schema))
    index = transaction_index([(7, 7, 7, count, 0, 1)])
    return Block(index, (Body(schema.schema_id, schema.table, batch),), (), 7)


def test_values_count_from_the_limit_on_and_each_column_is_named_once(caplog):
    large = LargeValues("shop", LIMIT)
    with caplog.at_level(logging.WARNING, "headrace.relay.large"):
        large.append(block(DOCUMENTS, (1, "x" * 999, b"", 0), (2, "y" * 400, None, 0)))
        assert large.seen == LargeSeen()
        large.append(block(DOCUMENTS, (1, "x" * 1000, b"z" * 3000, 0), (2, None, b"z" * 1001, 0)))
        assert large.seen == LargeSeen(3, 3000, "public.documents.c2")
        # Bytes, not letters.
        large.append(block(OTHERS, (1, "é" * 500), (2, "secret" * 700)))
        assert large.seen == LargeSeen(5, 4200, "public.others.c1")
        large.append(block(DOCUMENTS, (3, "x" * 1000, None, 0)))
        assert large.seen == LargeSeen(6, 4200, "public.others.c1")
    named = [said.split()[1] for said in caplog.messages]
    assert named == ["public.documents.c1", "public.documents.c2", "public.others.c1"]
    assert "source.columns" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("rows", [1, 500])
def test_many_small_values_are_none(rows):
    large = LargeValues("shop", LIMIT)
    large.append(block(DOCUMENTS, *((i, "x" * 20, b"y" * 20, 2**40) for i in range(rows))))
    assert large.seen.count == 0


def test_a_part_of_a_larger_batch_counts_what_it_holds():
    large = LargeValues("shop", LIMIT)
    whole = block(DOCUMENTS, (1, "x" * 2000, None, 0), (2, "y" * 2000, None, 0), (3, "z", None, 0))
    (body,) = whole.bodies
    part = Body(body.schema_id, body.table, body.batch.slice(1))
    large.append(Block(whole.index, (part,), (), 7))
    assert large.seen == LargeSeen(1, 2000, "public.documents.c1")


def test_of_a_block_that_was_cut_only_what_is_left_counts():
    large = LargeValues("shop", LIMIT)
    whole = block(OTHERS, (1, "x" * 5000), (2, "y" * 1500), (3, "z"))
    body = whole.bodies[0]
    for rows, seen in ((body.batch.slice(2), 0), (body.batch.slice(1), 1), (body.batch, 3)):
        cut = Block(whole.index, (Body(body.schema_id, body.table, rows),), (), 7)
        # A part keeps all of the memory alive.
        assert cut.nbytes == whole.nbytes > 6500
        large.append(cut)
        assert large.seen.count == seen
