"""Rows as a consumer asked for them, whatever version of the table they come from."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel, Field

from headrace.client import Event, Subscription
from headrace.client.errors import Unconvertible
from headrace.client.shapes import ArrowShape, _holds
from headrace.model.block import Block, Body, SystemEvent, SystemKind, transaction_index
from headrace.model.change import change_schema, missing_matrix
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema, parse_type
from headrace.testing.notation import parse_history, table_of
from headrace.wire import encode_block
from tests.client.conftest import QUICK, running, suspended
from tests.client.recording import Recorder
from tests.relay.server.asking import ask
from tests.requirements import req
from tests.waiting import until

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


@pytest.mark.parametrize("wanted", ["model", "arrow"])
def test_an_event_has_its_key_also_where_nobody_asked_for_those_columns(evolved, relay, wanted):
    class Named(BaseModel):
        name: str | None

    shape = Named if wanted == "model" else pa.schema([("name", pa.string())])
    events = told(relay, shape)
    assert [event.key for event in events] == [(1,), (2,), (2**40,), (3,)]
    assert events[0].row == {"name": "one"}


@req("D115", "D125")
def test_both_versions_of_a_consumer_read_the_same_stream_at_once(log, relay):
    """One was made before the table changed, one behind it; both run while it does, and the log holds each row once."""
    log.register(OLD)
    wanted = {
        "old": pa.schema([("id", pa.int64()), ("name", pa.string())]),
        "new": pa.schema([("id", pa.int64()), ("note", pa.string())]),
    }
    consumers = {name: Recorder() for name in wanted}
    blocks = [
        block(1, OLD, (1, "one")),
        block(2, NEW, (2**40, "big", Decimal("1.50"), "n")),
        block(3, OLD, (3, "back")),
    ]
    with ExitStack() as stack:
        for name, shape in wanted.items():
            shapes = {"public.items": shape}
            asked = Subscription(relay, "shop", consumers[name], shapes=shapes, settings=QUICK)
            stack.enter_context(running(asked))
        for number, one in enumerate(blocks, 1):
            if number == 2:
                log.register(NEW)
            log.append(one)
            for consumer in consumers.values():
                until(lambda c=consumer, n=number: c.windows == [*range(1, n + 1)], "the window")  # type: ignore[misc]
    rows = {name: [dict(told[4]) for told in one.told] for name, one in consumers.items()}
    assert rows == {
        "old": [{"id": 1, "name": "one"}, {"id": 2**40, "name": "big"}, {"id": 3, "name": "back"}],
        "new": [{"id": 1, "note": None}, {"id": 2**40, "note": "n"}, {"id": 3, "note": None}],
    }
    stored = sum(len(encode_block(one)) for one in blocks)
    assert stored <= ask(relay, "/buffer?source=shop").json["bytes"] < stored + 1_000


VERSIONS = (
    version(("id", "int32"), ("n", "int32"), ("v", "string"), ("gone", "string")),
    # Added, relaxed and widened, renamed, dropped.
    version(("id", "int32"), ("n", "int32"), ("v", "string"), ("gone", "string"), ("more", "date")),
    version(("id", "int32"), ("n", "int64"), ("v", "string"), ("gone", "string"), ("more", "date")),
    version(
        *[("id", "int32"), ("n", "int64"), ("label", "string")],
        *[("gone", "string"), ("more", "date")],
    ),
    version(("id", "int32"), ("n", "int64"), ("label", "string"), ("more", "date")),
)
DAY = date(2026, 1, 2)
ROWS: tuple[tuple[Any, ...], ...] = (
    (1, 10, "a", "x"),
    (2, 20, "b", "y", DAY),
    (3, None, "c", "z", DAY),
    (4, 2**40, "d", "w", None),
    (5, 2**40, "e", DAY),
)


@req("F12", "D103")
def test_old_and_new_consumers_live_through_every_kind_of_change(log, relay):
    """Add, relax, widen, rename, drop and truncate: whoever asks for what is there gets it, else it is null."""
    log.register(*VERSIONS)
    for scn, (schema, row) in enumerate(zip(VERSIONS, ROWS, strict=True), 1):
        log.append(block(scn, schema, row))
    truncate = SystemEvent(6, 0, SystemKind.TRUNCATE, ITEMS)
    log.append(Block(transaction_index([(6, 6, 6, 1, 0, 1)]), (), (truncate,), 6))
    number = ("n", pa.int64())
    seen = {}
    for name, columns in {
        "old": [number, ("v", pa.string()), ("gone", pa.string())],
        "new": [number, ("label", pa.string()), ("more", pa.date32())],
    }.items():
        consumer = Recorder()
        shapes = {"public.items": pa.schema([("id", pa.int64()), *columns])}
        options: dict[str, Any] = {"settings": QUICK, "on_suspended": "raise"}
        Subscription(relay, "shop", consumer, shapes=shapes, upto=6, **options).run()
        events = [argument for told, argument in consumer.log if told == "on_data_event"]
        seen[name] = [tuple(event.row.values()) for event in events]
        assert [told for told, _ in consumer.log].count("on_system_event") == 1
        assert consumer.told[-1][2] == "truncate"
    assert seen == {
        "old": [
            (1, 10, "a", "x"),
            (2, 20, "b", "y"),
            (3, None, "c", "z"),
            (4, 2**40, None, "w"),
            (5, 2**40, None, None),
        ],
        "new": [
            (1, 10, None, None),
            (2, 20, None, DAY),
            (3, None, None, DAY),
            (4, 2**40, "d", None),
            (5, 2**40, "e", DAY),
        ],
    }


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
