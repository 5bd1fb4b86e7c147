"""Binary COPY to Arrow: equal to the text path cell by cell on a real server, and safe with any bytes."""

from __future__ import annotations

import datetime as dt
import random
import struct
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError, UndecodableValue
from headrace.model.change import table_arrow_schema
from headrace.model.rowkey import encode_rows
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.connection import connect
from headrace.sources.postgres.copy_binary import HEADER, TRAILER, decode_copy, selected_columns
from headrace.sources.postgres.copy_stream import copy_out
from headrace.sources.postgres.decoder import ENGINES
from headrace.sources.postgres.types import arrow_type
from headrace.sources.postgres.values import build_batch
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.sources.postgres.test_round_trip import CASES, SETUP

T = TableId("public", "t")

Decoder = Callable[[bytes | bytearray | memoryview, TableSchema], pa.RecordBatch]


@pytest.fixture(params=ENGINES)
def decode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Decoder:
    """Run everything with each decoder that this installation has."""
    monkeypatch.setenv("HEADRACE_DECODER", request.param)
    return decode_copy


def schema_of(*types: tuple[str, pa.DataType]) -> TableSchema:
    columns = tuple(Column(f"c{n}", arrow, name) for n, (name, arrow) in enumerate(types))
    return TableSchema(T, columns, (), KeyCheck.NONE)


def copy_of(rows: Iterable[Iterable[bytes | None]]) -> bytes:
    parts = [HEADER]
    for row in rows:
        cells = list(row)
        parts.append(struct.pack(">h", len(cells)))
        for cell in cells:
            parts.append(struct.pack(">i", -1 if cell is None else len(cell)) + (cell or b""))
    return b"".join(parts) + TRAILER


def numeric(digits: list[int], weight: int, scale: int, sign: int = 0) -> bytes:
    return struct.pack(f">HhHH{len(digits)}H", len(digits), weight, sign, scale, *digits)


# -- against the text of a real server -------------------------------------------------------------


def assert_equal_to_text(database: str, decode: Decoder, table: TableId = T) -> pa.RecordBatch:
    """Read a table both ways and compare each cell bit by bit."""
    source = PostgresSource(database)
    reader = source.chunks()
    schema = reader.describe(table)
    reader.close()
    with connect(source.settings) as session:
        names = ", ".join(name for name, _ in selected_columns(schema))
        wanted = ", ".join(expression for _, expression in selected_columns(schema))
        cells = session.cells(f"SELECT {names} FROM public.{table.name} ORDER BY 1")
        copied = b"".join(
            copy_out(
                session,
                f"COPY (SELECT {wanted} FROM public.{table.name} ORDER BY 1) TO STDOUT (FORMAT binary)",
                1 << 20,
            )
        )
    plain = pa.RecordBatch.from_arrays(
        build_batch(schema, cells), schema=table_arrow_schema(schema)
    )
    rows = decode(copied, schema)
    rows.validate(full=True)
    assert rows.schema == plain.schema
    assert rows.num_rows == plain.num_rows > 0
    for column, ours, theirs in zip(schema.columns, rows.columns, plain.columns, strict=True):
        assert encode_rows([ours]).equals(encode_rows([theirs])), column
    return rows


@pytest.mark.postgres
@req("T1")
def test_every_type_is_the_same_value_by_text_and_by_copy(
    database: str, sql: Sql, decode: Decoder
) -> None:
    sql(*SETUP)
    types = [type_ for type_, _, _ in CASES]
    sql(
        f"CREATE TABLE t (id serial PRIMARY KEY, {', '.join(f'c{n} {t}' for n, t in enumerate(types))})"
    )
    deepest = max(len(values) for _, _, values in CASES)
    names = ", ".join(f"c{n}" for n in range(len(CASES)))
    for place in range(deepest + 1):
        cells = [v[place] if place < len(v) else "NULL" for _, _, v in CASES]
        sql(f"INSERT INTO t ({names}) VALUES ({', '.join(cells)})")
    assert_equal_to_text(database, decode)


def generated(seed: int, rows: int) -> list[tuple[str, list[str]]]:
    """Return columns of random literals, extremes among them."""
    rng = random.Random(seed)

    def digits(count: int) -> str:
        return "".join(rng.choice("0123456789") for _ in range(count)) or "0"

    def number() -> str:
        text = f"{digits(rng.randint(0, 40))}.{digits(rng.randint(0, 40))}"
        zeros = "0" * rng.choice((0, 0, 0, 7, 20))
        return rng.choice(("", "-")) + rng.choice(
            (text, text + zeros, zeros + text, "0." + zeros + digits(1))
        )

    def moment() -> str:
        day = dt.date.fromordinal(rng.randint(1, dt.date.max.toordinal()))
        clock = f"{rng.randint(0, 23)}:{rng.randint(0, 59)}:{rng.randint(0, 59)}.{rng.randint(0, 999999):06d}"
        # 10,000 years later the leap years are the same; before our era they are not.
        late, era = rng.choice((("", ""), ("1", ""), ("", " BC")))
        if era and (day.year > 4000 or day.day > 28):
            era = ""
        return f"{late}{day} {clock}{era}"

    def double() -> str:
        (value,) = struct.unpack(">d", rng.randbytes(8))
        return rng.choice((repr(value), "NaN", "-Infinity", "-0"))

    def single() -> str:
        (value,) = struct.unpack(">f", rng.randbytes(4))
        return "NaN" if value != value else repr(value)

    word = "aZ é€😀'\\\"\n\t,{}0"
    makers: list[tuple[str, Callable[[], str]]] = [
        ("numeric", lambda: rng.choice((number(), number(), "NaN", "Infinity", "-Infinity"))),
        ("numeric(38,10)", lambda: f"{rng.choice('-+')}{digits(28)}.{digits(10)}"),
        ("numeric(9,2)", lambda: f"{digits(rng.randint(0, 7))}.{digits(2)}"),
        ("numeric(6,6)", lambda: f".{digits(rng.randint(1, 6))}"),
        ("numeric(300,150)", lambda: f"-{digits(140)}.{digits(150)}"),
        ("double precision", double),
        ("real", single),
        ("bigint", lambda: str(rng.randint(-(2**63), 2**63 - 1))),
        ("integer", lambda: str(rng.randint(-(2**31), 2**31 - 1))),
        ("smallint", lambda: str(rng.randint(-(2**15), 2**15 - 1))),
        ("boolean", lambda: rng.choice("tf")),
        ("date", lambda: moment().partition(" ")[0]),
        ("timestamp", moment),
        ("timestamptz", moment),
        ("uuid", lambda: str(uuid.UUID(int=rng.getrandbits(128)))),
        ("bytea", lambda: "\\x" + rng.randbytes(rng.randint(0, 9)).hex()),
        ("text", lambda: "".join(rng.choice(word) for _ in range(rng.randint(0, 9)))),
        ("char(9)", lambda: "".join(rng.choice("aé ") for _ in range(rng.randint(0, 9)))),
        ("jsonb", lambda: rng.choice((f'["é", {rng.randint(-9, 9)}]', '{"a": {"b": null}}', '"x"'))),
        ("interval", lambda: f"{rng.randint(-99, 99)} mons {rng.randint(-9, 9)} days {rng.randint(-9**9, 9**9)} us"),
        ("inet", lambda: f"{rng.randint(0, 255)}.0.{rng.randint(0, 255)}.1/{rng.choice((32, 8))}"),
        ("integer[]", lambda: rng.choice(("{}", "{1,NULL,-3}", "[2:3]={1,2}", "{{1},{2}}"))),
        ("int4range", lambda: rng.choice(("empty", "[1,5)", "(,)", "[,3]"))),
    ]  # fmt: skip
    return [
        (type_, [make() if rng.random() < 0.9 else "" for _ in range(rows)])
        for type_, make in makers
    ]


def fill(sql: Sql, columns: list[tuple[str, list[str]]]) -> None:
    named = ", ".join(f"c{n} {type_}" for n, (type_, _) in enumerate(columns))
    sql(f"CREATE TABLE t (id serial PRIMARY KEY, {named})")

    def literal(text: str) -> str:
        return "NULL" if text == "" else "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    rows = zip(*(values for _, values in columns), strict=True)
    values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
    sql(f"INSERT INTO t ({', '.join(f'c{n}' for n in range(len(columns)))}) VALUES {values}")


@pytest.mark.postgres
@req("T1")
def test_generated_values_are_the_same_by_text_and_by_copy(
    database: str, sql: Sql, decode: Decoder
) -> None:
    fill(sql, generated(seed=7, rows=400))
    assert_equal_to_text(database, decode)


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(20))
@req("T1")
def test_many_generated_values_are_the_same_by_text_and_by_copy(
    database: str, sql: Sql, decode: Decoder, seed: int
) -> None:
    fill(sql, generated(seed, rows=2_000))
    assert_equal_to_text(database, decode)


@pytest.mark.postgres
@req("T1")
def test_a_nan_with_a_sign_is_the_one_nan_that_text_has(
    database: str, sql: Sql, decode: Decoder
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, d float8, f float4)",
        "INSERT INTO t VALUES (1, -'NaN'::float8, -'NaN'::float4), (2, '-0', '-0')")  # fmt: skip
    assert_equal_to_text(database, decode)


# -- framing ---------------------------------------------------------------------------------------

INTEGERS = schema_of(("integer", pa.int32()), ("text", pa.string()))
ROWS = copy_of([[b"\0\0\0\x07", b"seven"], [None, None], [b"\xff\xff\xff\xff", b""]])


def test_rows_nulls_and_empty_values(decode: Decoder) -> None:
    assert decode(ROWS, INTEGERS).to_pylist() == [
        {"c0": 7, "c1": "seven"},
        {"c0": None, "c1": None},
        {"c0": -1, "c1": ""},
    ]
    assert decode(copy_of([]), INTEGERS).num_rows == 0
    assert decode(copy_of([[], []]), schema_of()).num_columns == 0
    around = b"\0" * 9 + ROWS + b"\0\0\0\x07"
    assert decode(memoryview(around)[9:-4], INTEGERS).num_rows == 3


def test_a_header_may_be_extended(decode: Decoder) -> None:
    extended = ROWS[:15] + b"\0\0\0\x03" + b"abc" + ROWS[19:]
    assert decode(extended, INTEGERS).num_rows == 3


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"PGCOPY\n\xff\r\n\0",
        ROWS[:11] + b"\0\x01\0\0" + ROWS[15:],
        ROWS[:15] + b"\x7f\0\0\0" + ROWS[19:],
        ROWS + b"\0",
        ROWS + TRAILER,
        ROWS.replace(b"\0\0\0\x05seven", b"\0\0\0\x06seven"),
        ROWS.replace(b"\0\0\0\x05seven", b"\xff\xff\xff\xfeseven"),
        ROWS.replace(b"\0\0\0\x05seven", b"\x7f\xff\xff\xffseven"),
        copy_of([[b"\0\0\0\x07"]]),
        copy_of([[b"\0\0\0\x07", b"a", b"b"]]),
        copy_of([[b"\0\0\x07", b"a"]]),
        copy_of([[b"\0\0\0\0\x07", b"a"]]),
    ],
)
def test_bytes_that_are_no_copy_of_these_columns_are_refused(decode: Decoder, bad: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(bad, INTEGERS)


def test_every_cut_is_refused(decode: Decoder) -> None:
    for cut in range(len(ROWS)):
        with pytest.raises(ProtocolError):
            decode(ROWS[:cut], INTEGERS)


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (numeric([], 0, 0), "0"),
        (numeric([], 0, 3), "0.000"),
        (numeric([1], 0, 0), "1"),
        (numeric([1], 2, 0), "100000000"),
        (numeric([12, 3400], 0, 2), "12.34"),
        (numeric([12, 3400], 0, 6, 0x4000), "-12.340000"),
        (numeric([5], -3, 12), "0.000000000005"),
        (numeric([9999, 9999, 9999], 1, 4), "99999999.9999"),
        (numeric([], 0, 0, 0xC000), "NaN"),
        (numeric([], 0, 0, 0xD000), "Infinity"),
        (numeric([], 0, 0, 0xF000), "-Infinity"),
    ],
)
def test_numerics(decode: Decoder, cell: bytes, text: str) -> None:
    schema = schema_of(("numeric", pa.string()))
    assert decode(copy_of([[cell]]), schema).column(0).to_pylist() == [text]


@pytest.mark.parametrize(
    ("type_", "arrow", "cell"),
    [
        ("numeric", pa.string(), b"\0\0\0\0\0\0\0"),
        ("numeric", pa.string(), numeric([1], 0, 0) + b"\0"),
        ("numeric", pa.string(), numeric([1, 2], 0, 0)[:-1]),
        ("numeric", pa.string(), numeric([10_000], 0, 0)),
        ("numeric", pa.string(), numeric([1], 0, 0, 0x1234)),
        ("numeric", pa.string(), numeric([1], 0, 0x4000)),
        ("numeric(9,2)", pa.decimal128(9, 2), b""),
        ("uuid", pa.string(), b"x" * 15),
        ("uuid", pa.string(), b""),
        ("jsonb", pa.string(), b"\2{}"),
        ("jsonb", pa.string(), b""),
        ("boolean", pa.bool_(), b"\2"),
        ("boolean", pa.bool_(), b""),
        ("oid", pa.string(), b"\0\0\0"),
        ("time without time zone", pa.string(), b"\0" * 7),
        ("time without time zone", pa.string(), struct.pack(">q", -1)),
        ("time without time zone", pa.string(), struct.pack(">q", 86_400_000_001)),
        ("date", pa.date32(), b"\0" * 5),
        ("timestamp", pa.timestamp("us"), b"\0" * 7),
        ("real", pa.float32(), b"\0" * 8),
        ("bigint", pa.int64(), b""),
    ],
)
def test_a_malformed_value_is_refused(
    decode: Decoder, type_: str, arrow: pa.DataType, cell: bytes
) -> None:
    with pytest.raises(ProtocolError):
        decode(copy_of([[None], [cell]]), schema_of((type_, arrow)))


ENDS = [
    ("date", pa.date32(), struct.pack(">i", 2**31 - 1), 2**31 - 1),
    ("date", pa.date32(), struct.pack(">i", -(2**31)), -(2**31)),
    ("date", pa.date32(), struct.pack(">i", 2**31 - 10_959), 2**31 - 2),
    ("timestamp", pa.timestamp("us"), struct.pack(">q", 2**63 - 1), 2**63 - 1),
    ("timestamptz", pa.timestamp("us", tz="UTC"), struct.pack(">q", -(2**63)), -(2**63)),
    ("timestamp", pa.timestamp("us"), struct.pack(">q", -(2**63) + 1), -(2**63) + 1 + 946_684_800_000_000),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "arrow", "cell", "number"), ENDS)
def test_the_infinities_are_the_ends_of_the_integers(
    decode: Decoder, type_: str, arrow: pa.DataType, cell: bytes, number: int
) -> None:
    column = decode(copy_of([[None], [cell]]), schema_of((type_, arrow))).column(0)
    width = pa.int32() if pa.types.is_date(arrow) else pa.int64()
    assert column.cast(width).to_pylist() == [None, number]


HOMELESS = [
    ("date", pa.date32(), struct.pack(">i", 2**31 - 10_958)),
    ("date", pa.date32(), struct.pack(">i", 2**31 - 2)),
    ("timestamp", pa.timestamp("us"), struct.pack(">q", 2**63 - 1 - 946_684_800_000_000)),
    ("timestamp", pa.timestamp("us"), struct.pack(">q", 2**63 - 1 - 10_000)),
    ("numeric(9,2)", pa.decimal128(9, 2), numeric([], 0, 0, 0xC000)),
    ("numeric(5,2)", pa.decimal128(5, 2), numeric([1234], 0, 2)),
    ("text", pa.string(), b"\xff"),
    ("json", pa.string(), b"\xc3"),
]


@pytest.mark.parametrize(("type_", "arrow", "cell"), HOMELESS)
def test_a_value_without_an_exact_place_is_named_and_not_shown(
    decode: Decoder, type_: str, arrow: pa.DataType, cell: bytes
) -> None:
    with pytest.raises(UndecodableValue, match=r"public\.t\.c0"):
        decode(copy_of([[None], [cell]]), schema_of((type_, arrow)))


# -- any bytes -------------------------------------------------------------------------------------

FUZZED = schema_of(
    ("integer", pa.int32()), ("numeric", pa.string()), ("numeric(9,2)", arrow_type(1700, (9 << 16 | 2) + 4)),
    ("text", pa.string()), ("bytea", pa.binary()), ("boolean", pa.bool_()), ("date", pa.date32()),
    ("timestamptz", pa.timestamp("us", tz="UTC")), ("uuid", pa.string()), ("jsonb", pa.string()),
    ("double precision", pa.float64()), ("smallint", pa.int16()), ("interval", pa.string()),
)  # fmt: skip
FUZZED_COPY = copy_of(
    [
        [
            b"\0\0\0\x07", numeric([12, 3400], 0, 2), numeric([99, 9900], 0, 2), "é€".encode(),
            b"\0\xff", b"\1", b"\0\0\x10\0", b"\0\0\0\1\0\0\0\0", bytes(range(16)), b'\1{"a": 1}',
            struct.pack(">d", 0.1), b"\xff\xfe", b"1 day",
        ],
        [None] * len(FUZZED.columns),
        [
            b"\xff\xff\xff\xff", numeric([1], -3, 13, 0x4000), numeric([], 0, 2), b"", b"", b"\0",
            b"\xff\xff\x10\0", b"\xff\0\0\1\0\0\0\0", bytes(16), b"\1[]", struct.pack(">d", -0.0),
            b"\0\1", b"",
        ],
    ]
)  # fmt: skip


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with some of them changed, lost, added, repeated, or cut off."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(out)) if out else 0
        match rng.randrange(6):
            case 0 | 1:
                if out:
                    out[at] = rng.choice(
                        (rng.randrange(256), 0, 255, out[at] ^ 1 << rng.randrange(8))
                    )
            case 2:
                del out[at : at + rng.choice((1, 2, 4, 9))]
            case 3:
                out[at:at] = rng.randbytes(rng.choice((1, 2, 4, 9)))
            case 4:
                out[at:at] = out[at : at + rng.choice((2, 6, 40))]
            case _:
                del out[at:]
    return bytes(out)


def fuzz(decode: Decoder, seed: int, rounds: int) -> tuple[int, int]:
    """Decode mutated bytes; return how many were rows and how many were refused."""
    rng = random.Random(seed)
    accepted = refused = 0
    for _ in range(rounds):
        data = mutated(rng, FUZZED_COPY)
        # What lies around the bytes looks like more of them: a read past the end would find something.
        around = FUZZED_COPY + data + FUZZED_COPY
        view = memoryview(around)[len(FUZZED_COPY) : len(FUZZED_COPY) + len(data)]
        try:
            rows = decode(view, FUZZED)
        except (ProtocolError, UndecodableValue):
            refused += 1
        else:
            rows.validate(full=True)
            assert rows.schema == table_arrow_schema(FUZZED)
            accepted += 1
    return accepted, refused


def test_mutated_bytes_give_rows_or_a_named_error(decode: Decoder) -> None:
    assert decode(FUZZED_COPY, FUZZED).num_rows == 3
    accepted, refused = fuzz(decode, seed=1, rounds=10_000)
    assert accepted > 500
    assert refused > 5_000


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_very_many_mutated_bytes_give_rows_or_a_named_error(decode: Decoder, seed: int) -> None:
    accepted, refused = fuzz(decode, seed=100 + seed, rounds=100_000)
    assert accepted > 5_000
    assert refused > 50_000


def test_a_long_field_does_not_slow_the_decoder_down(decode: Decoder) -> None:
    """Numbers of the greatest width that a field can name stay far below the interpreter's limits."""
    wide: list[Any] = [numeric([9999] * 2_000, 32_767, 0x3FFF)]
    (text,) = decode(copy_of([wide]), schema_of(("numeric", pa.string()))).column(0).to_pylist()
    assert len(text) == 4 * 32_768 + 1 + 0x3FFF
