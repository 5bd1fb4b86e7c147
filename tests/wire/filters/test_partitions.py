"""Partitions: those of one count are disjoint and together everything, by mod, range and hash."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import BadFilter
from headrace.model.block import Block
from headrace.model.rowkey import encode_rows
from headrace.model.schema import KeyCheck, TableSchema
from headrace.wire.filters import parse_filter
from headrace.wire.filters.checksums import checksums
from tests.requirements import req
from tests.wire.filters.examples import UNSENT, block_of, random_cell, rows_in, table

Row = tuple[int, int, str, tuple[Any, ...]]

KEYS = {
    "integer": table({"id": "int64", "v": "string"}, ["id"]),
    "small integer": table({"v": "string", "id": "int16"}, ["id"]),
    "text": table({"name": "string", "v": "float64"}, ["name"]),
    "decimal": table({"price": "decimal(10,2)", "v": "string"}, ["price"]),
    "day": table({"day": "date", "v": "string"}, ["day"]),
    "composite": table({"name": "string", "v": "bool", "id": "int32"}, ["id", "name"]),
    "deferred": table({"id": "int64", "v": "string"}, ["id"], KeyCheck.DEFERRED),
    "keyless": table({"double": "float64", "v": "string"}, [], KeyCheck.NONE),
    "keyless integer": table({"id": "int64"}, [], KeyCheck.NONE),
}
RANGES: dict[str, list[Any]] = {
    "integer": [0, 3],
    "small integer": [-1.5, 1],
    "text": ["a", "b"],
    "decimal": ["0.00", 13],
    "day": ["2000-01-01", "2024-02-29"],
    "composite": [-1, 5],
    "deferred": [2**63],
    "keyless": [0, 2.5],
    "keyless integer": [4],
}


def changes(schema: TableSchema, rng: random.Random, count: int) -> Block:
    """Return random changes; old images are whole where they must be, keys change now and then."""
    rows: list[Row] = []
    for scn in range(1, count + 1):
        whole = schema.key_check is not KeyCheck.IMMEDIATE
        op = rng.choice(("+I", "-D", "-U") if whole else ("+I", "+R", "-D", "=U", "-U"))
        cells = row(schema, rng)
        old = cells if whole or rng.random() < 0.5 else key_only(schema, cells)
        rows.append((scn, 0, op, old if op in ("-D", "-U") else cells))
        if op == "-U":
            after = row(schema, rng)
            if rng.random() < 0.5:
                after = tuple(
                    o if name in schema.key else n
                    for name, o, n in zip(schema.names, cells, after, strict=True)
                )
            rows.append((scn, 1, "+U", after if whole else maybe_partial(schema, after, rng)))
    return block_of(schema, rows)


def row(schema: TableSchema, rng: random.Random) -> tuple[Any, ...]:
    """Return random cells; a key is never null."""
    cells = []
    for column in schema.columns:
        cell = random_cell(rng, column)
        while cell is None and column.name in schema.key:
            cell = random_cell(rng, column)
        cells.append(cell)
    return tuple(cells)


def key_only(schema: TableSchema, cells: tuple[Any, ...]) -> tuple[Any, ...]:
    named = zip(schema.names, cells, strict=True)
    return tuple(cell if name in schema.key else UNSENT for name, cell in named)


def maybe_partial(
    schema: TableSchema, cells: tuple[Any, ...], rng: random.Random
) -> tuple[Any, ...]:
    return key_only(schema, cells) if rng.random() < 0.4 else cells


def parts(schema: TableSchema, kind: str, name: str) -> list[dict[str, Any]]:
    """Return filters that cut a table into all of its partitions."""
    if kind != "range":
        cut = [[0, 3], [1], [2, 4]]
        return [{"partition": {"by": kind, "count": 5, "take": take}} for take in cut]
    edges = RANGES[name]
    ends = [{"below": edges[0]}, {"from": edges[-1]}]
    inner = [{"from": a, "below": b} for a, b in itertools.pairwise(edges)]
    return [{"partition": {"by": "range", "ranges": [one]}} for one in [*ends, *inner]]


@req("D11", "D105", "F10")
@pytest.mark.parametrize("kind", ["mod", "hash", "range"])
@pytest.mark.parametrize("name", KEYS)
def test_partitions_are_disjoint_and_together_everything(name, kind):
    schema, rng = KEYS[name], random.Random(f"{name} {kind}")
    for _ in range(10):
        block = changes(schema, rng, 80)
        whole = rows_in(block, schema)
        taken: dict[tuple[int, int], Row] = {}
        for part in parts(schema, kind, name):
            for found in rows_in(parse_filter(part).bound(lambda _: schema).apply(block), schema):
                assert found[:2] not in taken, "one row went to two partitions"
                taken[found[:2]] = found
        assert sorted(taken) == [row[:2] for row in whole]
        for one in whole:
            assert same_cells(one[3], taken[one[:2]][3])


def same_cells(sent: tuple[Any, ...], found: tuple[Any, ...]) -> bool:
    """Return whether nothing that was sent was lost or changed."""
    return all(s is UNSENT or repr(s) == repr(f) for s, f in zip(sent, found, strict=True))


@pytest.mark.parametrize("name", KEYS)
def test_a_hash_partition_is_the_crc_of_the_encoded_key(name):
    schema = KEYS[name]
    block = changes(schema, random.Random(3), 60)
    batch = block.bodies[0].batch
    names = schema.key or schema.names
    cells = encode_rows([batch.column(key) for key in names]).to_pylist()
    expected = {
        (scn, order)
        for scn, order, cell in zip(
            batch.column("_scn").to_pylist(), batch.column("_ord").to_pylist(), cells, strict=True
        )
        if zlib.crc32(cell) % 3 == 1
    }
    bound = parse_filter({"partition": {"by": "hash", "count": 3, "take": [1]}}).bound(
        lambda _: schema
    )
    assert {row[:2] for row in rows_in(bound.apply(block), schema)} == expected


def test_mod_counts_negative_keys_up_from_zero():
    schema = KEYS["integer"]
    block = block_of(schema, [(k + 100, 0, "+I", (k, "")) for k in range(-50, 50)])
    for take in range(7):
        bound = parse_filter({"partition": {"by": "mod", "count": 7, "take": [take]}}).bound(
            lambda _: schema
        )
        found = [row[3][0] for row in rows_in(bound.apply(block), schema)]
        assert found == [k for k in range(-50, 50) if k % 7 == take]


@pytest.mark.parametrize("sliced", [0, 5])
def test_checksums_are_those_of_each_cell(sliced):
    rng = random.Random(1)
    cells = [rng.randbytes(rng.choice((0, 1, 9, 64, 65, 300))) for _ in range(300)]
    array = pa.array(cells, pa.binary()).slice(sliced)
    assert checksums(array).tolist() == [zlib.crc32(cell) for cell in cells[sliced:]]
    assert checksums(pa.array([], pa.binary())).tolist() == []


def history(text: Sequence[Row], **partition: Any) -> list[tuple[str, tuple[Any, ...]]]:
    schema = KEYS["integer"]
    bound = parse_filter({"partition": partition}).bound(lambda _: schema)
    found = rows_in(bound.apply(block_of(schema, text)), schema)
    return [(op, cells) for _, _, op, cells in found]


@req("D105")
def test_a_change_of_key_leaves_one_partition_and_comes_into_the_other():
    move = [(1, 0, "-U", (1, "a")), (1, 1, "+U", (2, UNSENT))]
    odd = history(move, by="mod", count=2, take=[1])
    even = history(move, by="mod", count=2, take=[0])
    assert (odd, even) == ([("-D", (1, "a"))], [("+I", (2, "a"))])


def test_a_row_that_comes_without_all_its_columns_is_no_insert():
    move = [(1, 0, "-U", (1, UNSENT)), (1, 1, "+U", (2, UNSENT))]
    assert history(move, by="mod", count=2, take=[0]) == [("=U", (2, UNSENT))]


def test_an_update_whose_key_stays_is_never_cut():
    update = [(1, 0, "-U", (1, "a")), (1, 1, "+U", (1, "b"))]
    assert history(update, by="hash", count=2, take=[0, 1]) == [("-U", (1, "a")), ("+U", (1, "b"))]


UNFIT = [("integer", "a"), ("integer", "NaN"), ("day", 3), ("day", "yesterday"), ("text", 1)]


@pytest.mark.parametrize(("name", "end"), UNFIT)
def test_a_range_that_does_not_fit_the_key_names_the_column(name, end):
    schema = KEYS[name]
    bound = parse_filter({"partition": {"by": "range", "ranges": [{"from": end}]}}).bound(
        lambda _: schema
    )
    with pytest.raises(BadFilter, match=f"public.t.{schema.key[0]}"):
        bound.apply(changes(schema, random.Random(0), 3))


def test_a_range_of_bytes_is_refused():
    schema = table({"raw": "binary"}, ["raw"])
    bound = parse_filter({"partition": {"by": "range", "ranges": [{"from": "a"}]}}).bound(
        lambda _: schema
    )
    with pytest.raises(BadFilter, match="binary"):
        bound.apply(block_of(schema, [(1, 0, "+I", (b"a",))]))
