"""A condition never hides that a row left: whoever folds the filtered stream shows no row that is not so."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.fold import fold
from headrace.model.block import ORIGIN_LOG, Block, Body, SystemEvent, SystemKind, transaction_index
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import KeyCheck, TableSchema
from headrace.sources.base import ReceivedMark
from headrace.sources.scripted.database import MISSING, ScriptedDatabase, Transaction
from headrace.testing.histories import BAG, PATCHY, TABLES, WHOLE, RandomHistory
from headrace.testing.notation import change_batch
from headrace.testing.target import ModelTable
from headrace.watermark.emit import chunk_block
from headrace.wire.filters import BoundFilter, parse_filter
from tests.requirements import req
from tests.watermark.test_reconciler import chunk_rows

Cells = tuple[Any, ...]
Meets = Callable[[Cells], bool]


def history(seed: int) -> tuple[ScriptedDatabase, Counter[str]]:
    """Return a database at the end of a random life that began empty."""
    database, coverage = ScriptedDatabase(TABLES), Counter[str]()
    life = RandomHistory(database, random.Random(seed), coverage)
    for _ in range(250):
        life.step()
    life.settle()
    return database, coverage


def block_of(transaction: Transaction) -> Block:
    """Return one transaction as a block."""
    bodies, events = [], []
    scn = transaction.scn
    for schema in TABLES:
        rows = [
            (scn, order, c.op, tuple("?" if cell is MISSING else cell for cell in c.cells))
            for order, c in enumerate(transaction.changes)
            if c.table == schema.table and c.op != "T"
        ]
        if rows:
            bodies.append(Body(schema.schema_id, schema.table, change_batch(schema, rows)))
    for order, change in enumerate(transaction.changes):
        if change.op == "T":
            events.append(SystemEvent(scn, order, SystemKind.TRUNCATE, change.table))
    index = transaction_index([(scn, 0, 0, len(transaction.changes), ORIGIN_LOG, 1)])
    return Block(index, tuple(bodies), tuple(events), scn)


def folded(
    database: ScriptedDatabase, schema: TableSchema, filter_: BoundFilter, rng: random.Random
) -> ModelTable:
    """Return what a consumer of the filtered stream holds of a table at the end."""
    held = ModelTable(schema)
    blocks = [filter_.apply(block_of(transaction)) for transaction in database.log]
    edges = sorted({0, len(blocks), *(rng.randrange(len(blocks) + 1) for _ in range(6))})
    for first, last in itertools.pairwise(edges):
        batch = blocks[first:last]
        changes = [b.batch for block in batch for b in block.bodies if b.table == schema.table]
        truncates = [
            (event.scn, event.ord)
            for block in batch
            for event in block.system
            if event.table == schema.table
        ]
        if changes or truncates:
            effects = fold(filter_.schema(schema.schema_id), changes, truncates)
            held.apply(effects, batch[-1].covered_scn, complete=schema is not PATCHY)
    return held


def truth(database: ScriptedDatabase, schema: TableSchema) -> Counter[Cells]:
    return +database.state_at(database.log[-1].scn)[schema.table]


SCHEMAS = {schema.schema_id: schema for schema in TABLES}
WHOLE_IMAGES: list[tuple[TableSchema, str, Meets]] = [
    (WHOLE, "k > 5 or c1 like '%3'", lambda row: row[0] > 5 or row[1].endswith("3")),
    (WHOLE, "c1 < 'c15'", lambda row: row[1] < "c15"),
    (BAG, "c1 = 'v1'", lambda row: row[1] == "v1"),
    (BAG, "k <> 1", lambda row: row[0] != 1),
]
PARTIAL_IMAGES: list[tuple[str, Meets]] = [
    ("c1 like '%1' or c1 like '%2' or c1 like '%3'", lambda row: row[1][-1] in "123"),
    ("c2 like '%4' or c2 like '%5' or c2 like '%6'", lambda row: row[2][-1] in "456"),
    ("k > 4 and not c1 like '%7'", lambda row: row[0] > 4 and row[1][-1] != "7"),
    ("k in (1, 2, 3, 5, 8)", lambda row: row[0] in (1, 2, 3, 5, 8)),
]


@req("B-9")
@pytest.mark.parametrize(("schema", "text", "meets"), WHOLE_IMAGES)
def test_with_whole_images_the_filtered_stream_folds_to_the_filtered_table(schema, text, meets):
    filter_ = parse_filter({"where": {str(schema.table): text}}).bound(SCHEMAS.__getitem__)
    shown = 0
    for seed in range(40):
        database, _ = history(seed)
        held = folded(database, schema, filter_, random.Random(seed)).content()
        expected = Counter({row: n for row, n in truth(database, schema).items() if meets(row)})
        assert held == expected, seed
        shown += held.total()
    assert shown > 30


@req("B-9")
@pytest.mark.parametrize(("text", "meets"), PARTIAL_IMAGES)
def test_with_partial_images_no_row_is_shown_that_is_not_so(text, meets):
    filter_ = parse_filter({"where": {"public.patchy": text}}).bound(SCHEMAS.__getitem__)
    shown = lost = 0
    for seed in range(60):
        database, _ = history(seed)
        held = folded(database, PATCHY, filter_, random.Random(seed)).rows
        there = {row[:1]: row for row in truth(database, PATCHY)}
        for key, row in held.items():
            assert there.get(key) == row, f"seed {seed}: a row that is gone or was changed"
        wanted = {key for key, row in there.items() if meets(row)}
        # A row that came by a change without all its columns is one that its receiver has to ask for.
        lost += len(wanted - held.keys())
        shown += len(held)
    assert shown > 60
    assert lost < shown


def test_a_condition_on_the_key_alone_needs_no_row_to_be_asked_for():
    text, meets = PARTIAL_IMAGES[3]
    filter_ = parse_filter({"where": {"public.patchy": text}}).bound(SCHEMAS.__getitem__)
    for seed in range(20):
        database, coverage = history(seed)
        held = folded(database, PATCHY, filter_, random.Random(seed)).rows
        wanted = {row[:1]: row for row in truth(database, PATCHY) if meets(row)}
        assert set(held) <= set(wanted)
        if not coverage["key changes with missing columns"]:
            assert held == wanted


@req("D105")
@pytest.mark.parametrize("by", ["mod", "hash", "range"])
def test_partitions_fold_to_the_parts_of_the_table(by):
    cut: list[dict[str, Any]] = [{"by": by, "count": 3, "take": [take]} for take in range(3)]
    if by == "range":
        ends: list[dict[str, int]] = [{"below": 4}, {"from": 4, "below": 9}, {"from": 9}]
        cut = [{"by": "range", "ranges": [one]} for one in ends]
    for seed in range(15):
        database, _ = history(seed)
        for schema in (WHOLE, BAG):
            together = Counter[Cells]()
            for part in cut:
                filter_ = parse_filter({"partition": part}).bound(SCHEMAS.__getitem__)
                together += folded(database, schema, filter_, random.Random(seed)).content()
            assert together == truth(database, schema)


@req("B-9", "H26")
@pytest.mark.parametrize("check", [KeyCheck.IMMEDIATE, KeyCheck.DEFERRED])
def test_of_rows_read_by_their_keys_each_is_told_or_leaves(check):
    schema = replace(WHOLE, key_check=check)
    mark = ReceivedMark(Mark(MarkKind.HIGH, "token", "run"), 500, 0)
    rows = chunk_rows(schema, [(1, "a"), (2, "b")])
    gone = chunk_rows(schema, [(3, None)])
    filter_ = parse_filter({"where": {str(schema.table): "c1 = 'a'"}}).bound(lambda _: schema)

    def left(*, by_key: bool) -> set[tuple[str, int, str | None]]:
        block = chunk_block(mark, schema, rows, gone, announce=False, by_key=by_key)
        (body,) = filter_.apply(block).bodies
        folded = fold(schema, [body.batch]).to_pylist()
        return {(row["_effect"], row["k"], row["c1"]) for row in folded}

    assert left(by_key=True) == {("ROW", 1, "a"), ("DEAD", 2, None), ("DEAD", 3, None)}
    # A dump states what came by no other way, or follows a truncate: what it leaves out was not there.
    assert ("DEAD", 2, None) not in left(by_key=False)
