"""Rows as a consumer asked for them, whatever version of the table they come from."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel, Field

from headrace.client import Event, Subscription
from headrace.client.errors import Unconvertible
from headrace.client.shapes import ArrowShape, _holds
from headrace.model.block import Block, Body, transaction_index
from headrace.model.change import change_schema, missing_matrix
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema, parse_type
from headrace.testing.notation import parse_history, table_of
from tests.client.conftest import QUICK, running, suspended
from tests.client.recording import Recorder
from tests.requirements import req

ITEMS = TableId("public", "items")


def version(*columns: tuple[str, str]) -> TableSchema:
    return TableSchema(
        ITEMS,
        tuple(Column(name, parse_type(type_), type_) for name, type_ in columns),
        ("id",),
        KeyCheck.IMMEDIATE,
    )


OLD = version(("id", "int32"), ("name", "string"))
NEW = version(("id", "int64"), ("name", "string"), ("price", "decimal(10,2)"), ("note", "string"))


def block(scn: int, schema: TableSchema, *rows: tuple) -> Block:
    cells = [
        pa.array([row[i] for row in rows], column.type) for i, column in enumerate(schema.columns)
    ]
    meta = [
        pa.array([scn] * len(rows), pa.int64()),
        pa.array(range(len(rows)), pa.int32()),
        pa.array(["+I"] * len(rows)),
        pa.nulls(len(rows), pa.binary()),
    ]
    batch = pa.record_batch([*meta, *cells], schema=change_schema(schema))
    index = transaction_index([(scn, scn, scn, len(rows), 0, 1)])
    return Block(index, (Body(schema.schema_id, ITEMS, batch),), (), scn)


@pytest.fixture
def evolved(log):
    log.register(OLD, NEW)
    log.append(
        block(1, OLD, (1, "one"), (2, None)),
        block(2, NEW, (2**40, "big", Decimal("1.50"), "n")),
        block(3, OLD, (3, "back")),
    )
    return log


def told(relay: str, wanted: Any) -> list[Event]:
    consumer = Recorder()
    Subscription(
        relay,
        "shop",
        consumer,
        shapes={"public.items": wanted},
        upto=3,
        settings=QUICK,
        on_suspended="raise",
    ).run()
    return [argument for name, argument in consumer.log if name == "on_data_event"]


@req("D103", "F12", "D84")
def test_an_arrow_consumer_reads_older_and_newer_versions(evolved, relay):
    wanted = pa.schema(
        [("price", pa.decimal128(12, 4)), ("id", pa.int64()), ("name", pa.large_string())]
    )
    rows = [event.row for event in told(relay, wanted)]
    assert rows == [
        {"price": None, "id": 1, "name": "one"},
        {"price": None, "id": 2, "name": None},
        {"price": Decimal("1.5000"), "id": 2**40, "name": "big"},
        {"price": None, "id": 3, "name": "back"},
    ]


@req("D103", "F12", "D84")
def test_a_model_consumer_reads_older_and_newer_versions(evolved, relay):
    class Item(BaseModel):
        id: int
        label: str | None = Field(alias="name")
        price: Decimal = Decimal("0")

    values = [event.value for event in told(relay, Item)]
    assert [(v.id, v.label, v.price) for v in values] == [
        (1, "one", Decimal("0")),
        (2, None, Decimal("0")),
        (2**40, "big", Decimal("1.50")),
        (3, "back", Decimal("0")),
    ]


@req("D115")
def test_both_versions_of_a_consumer_read_the_same_stream_at_once(evolved, relay):
    narrow = told(relay, pa.schema([("id", pa.int64())]))
    wide = told(relay, pa.schema([("id", pa.int64()), ("note", pa.string())]))
    assert [e.row["id"] for e in narrow] == [e.row["id"] for e in wide] == [1, 2, 2**40, 3]
    assert [e.key for e in narrow] == [(1,), (2,), (2**40,), (3,)]


class Strict(BaseModel):
    id: int
    colour: str


class Short(BaseModel):
    id: int
    name: str


@pytest.mark.parametrize(
    ("wanted", "column"),
    [
        (pa.schema([("id", pa.int32())]), "id"),
        (pa.schema([("name", pa.int64())]), "name"),
        (pa.schema([pa.field("price", pa.decimal128(10, 2), nullable=False)]), "price"),
        (Strict, "colour"),
        (Short, "name"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_without_values(evolved, relay, wanted, column):
    consumer = Recorder()
    subscription = Subscription(
        relay, "shop", consumer, shapes={"public.items": wanted}, settings=QUICK
    )
    with running(subscription):
        suspended(subscription)
        error = subscription.status.error
        assert isinstance(error, Unconvertible)
        assert (error.table, error.column) == ("public.items", column)
        assert "big" not in str(error)
        assert "1.5" not in str(error)


TYPES = [
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 0),
    pa.decimal128(19, 0),
    pa.decimal128(38, 10),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.bool_(),
]
EXTREMES: dict[pa.DataType, list[Any]] = {
    pa.int16(): [-(2**15), 2**15 - 1],
    pa.int32(): [-(2**31), 2**31 - 1],
    pa.int64(): [-(2**63), 2**63 - 1, 2**53 + 1],
    pa.float32(): [3.4028234663852886e38, 1.401298464324817e-45],
    pa.float64(): [1.7976931348623157e308, 0.1],
    pa.decimal128(5, 0): [Decimal("-99999"), Decimal("99999")],
    pa.decimal128(19, 0): [Decimal(10**19 - 1)],
    pa.decimal128(38, 10): [Decimal("9" * 28 + "." + "9" * 10)],
    pa.timestamp("us"): [-62_135_596_800_000_000, 253_402_300_799_999_999],
}


@req("D103")
@pytest.mark.parametrize("have", TYPES, ids=str)
def test_a_type_is_widened_only_when_every_value_stays_exact(have):
    for wanted in TYPES:
        if have == wanted or not _holds(have, wanted):
            continue
        cells = pa.array([*EXTREMES.get(have, []), None], have)
        there = cells.cast(wanted)
        assert there.cast(have).equals(cells), f"{have} is not exact in {wanted}"


def test_columns_that_were_not_sent_stay_so_at_their_new_place():
    schema = table_of(3)
    batch = parse_history("+I(1,a,b) | =U(1,?,c) | =U(1,d,?)").batch(schema)
    shaped = ArrowShape(
        pa.schema([("c2", pa.string()), ("new", pa.int64()), ("k", pa.int64())])
    ).rows(batch, schema)
    assert missing_matrix(shaped.column("_missing"), 3).tolist() == [
        [False, False, False],
        [False, False, False],
        [True, False, False],
    ]
