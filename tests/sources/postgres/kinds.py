"""Every type of a column that a test can make values of, and what it becomes."""

from __future__ import annotations

import datetime as dt
import random
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

Make = Callable[[random.Random], str]

DAY = pa.date32()
MOMENT = pa.timestamp("us")
INSTANT = pa.timestamp("us", tz="UTC")
TEXT = pa.string()


@dataclass(frozen=True)
class Kind:
    """A type, what must hold it, its extremes, more of its values, and whether its binary form is known."""

    name: str
    arrow: pa.DataType
    values: Sequence[str]
    make: Make | None = None
    binary: bool = True


SETUP = (
    "CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'très bien')",
    "CREATE TYPE pair AS (x int, y text)",
    "CREATE TYPE nest AS (p pair, d date, m mood[])",
    "CREATE DOMAIN cents AS numeric(12,2) CHECK (VALUE >= 0)",
    "CREATE DOMAIN price AS cents",
    "CREATE DOMAIN label AS varchar(20)",
    "CREATE DOMAIN until AS date",
    "CREATE DOMAIN at AS timestamptz",
    "CREATE DOMAIN feeling AS mood",
    "CREATE DOMAIN open_price AS numeric",
    "CREATE DOMAIN token AS uuid",
    "CREATE DOMAIN document AS jsonb",
    "CREATE DOMAIN raw AS bytea",
    "CREATE DOMAIN yes AS boolean",
    "CREATE DOMAIN ratio AS float8",
    "CREATE DOMAIN small AS int2",
    "CREATE DOMAIN numbers AS int[]",
    "CREATE DOMAIN couple AS pair",
    "CREATE DOMAIN span AS int4range",
    "CREATE TYPE floatrange AS RANGE (subtype = float8)",
)


def number(rng: random.Random) -> str:
    def digits(count: int) -> str:
        return "".join(rng.choice("0123456789") for _ in range(count)) or "0"

    zeros = "0" * rng.choice((0, 0, 7, 20))
    text = f"{digits(rng.randint(0, 60))}.{digits(rng.randint(0, 60))}"
    return rng.choice(("", "-")) + rng.choice(
        (text, text + zeros, zeros + text, "0." + zeros + "1")
    )


def day(rng: random.Random) -> str:
    found = dt.date.fromordinal(rng.randint(1, dt.date.max.toordinal()))
    # 10,000 years later the leap years are the same; before our era they are not.
    late, era = rng.choice((("", ""), ("1", ""), ("", " BC")))
    if era and (found.year > 4000 or found.day > 28):
        era = ""
    return f"{late}{found}{era}"


def clock(rng: random.Random) -> str:
    fraction = rng.choice(("", f".{rng.randint(0, 999_999):06d}", f".{rng.randint(0, 9)}"))
    return f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}{fraction}"


def moment(rng: random.Random) -> str:
    date, _, era = day(rng).partition(" ")
    return f"{date} {clock(rng)} {era}".strip()


def instant(rng: random.Random) -> str:
    date, _, era = day(rng).partition(" ")
    zone = rng.choice(("+00", "+05:30", "-11", "+14"))
    return f"{date} {clock(rng)}{zone} {era}".strip()


def double(rng: random.Random) -> str:
    (value,) = struct.unpack(">d", rng.randbytes(8))
    return repr(value)


def single(rng: random.Random) -> str:
    (value,) = struct.unpack(">f", rng.randbytes(4))
    return "NaN" if value != value else repr(value)


def whole(bits: int) -> Make:
    return lambda rng: str(rng.randint(-(1 << bits - 1), (1 << bits - 1) - 1))


def words(rng: random.Random) -> str:
    return "".join(rng.choice("aZ é€😀'\\\"\n\t,{}()0N") for _ in range(rng.randint(0, 12)))


ENDS = ["infinity", "-infinity"]

KINDS = [
    Kind("boolean", pa.bool_(), ["t", "f"]),
    Kind("smallint", pa.int16(), ["-32768", "32767", "0"], whole(16)),
    Kind("integer", pa.int32(), ["-2147483648", "2147483647"], whole(32)),
    Kind("bigint", pa.int64(), ["-9223372036854775808", "9223372036854775807"], whole(64)),
    Kind("real", pa.float32(), ["1e-45", "-0", "NaN", "Infinity", "-Infinity", "16777217"], single),
    Kind(
        "double precision",
        pa.float64(),
        ["4.9e-324", "-0", "NaN", "Infinity", "-Infinity", "1e22", "0.1"],
        double,
    ),
    Kind(
        "numeric(10,2)",
        pa.decimal128(10, 2),
        ["-99999999.99", "0", "12.3"],
        lambda rng: f"{rng.randint(-(10**8), 10**8)}.5",
    ),
    Kind(
        "numeric(38,37)",
        pa.decimal128(38, 37),
        ["1.0000000000000000000000000000000000001", "-9.9999999999999999999999999999999999999"],
    ),
    Kind("numeric(38,0)", pa.decimal128(38, 0), ["9" * 38, "-" + "9" * 38]),
    Kind("numeric(39,2)", TEXT, ["9" * 37 + ".99", "NaN"]),
    Kind("numeric(1000,500)", TEXT, ["9" * 500 + "." + "9" * 500]),
    Kind("numeric(3,5)", TEXT, ["0.00123"]),
    Kind("numeric(3,-2)", TEXT, ["12300"]),
    Kind(
        "numeric",
        TEXT,
        ["12.300", "NaN", "Infinity", "-Infinity", "1e100", "1e-30", "9" * 2000, "0.000"],
        number,
    ),
    Kind("text", TEXT, ["", " padded ", "x" * 5000], words),
    Kind("varchar(20)", TEXT, ["a "], words),
    Kind("varchar", TEXT, ["", "é"], words),
    Kind("char(9)", TEXT, ["", "ab"], lambda rng: words(rng)[:9]),
    Kind("name", TEXT, ["some name"], words),
    Kind("bytea", pa.binary(), ["\\x", "\\x00ff5c"], lambda rng: "\\x" + rng.randbytes(9).hex()),
    Kind(
        "date",
        DAY,
        [*ENDS, "0001-01-01", "0001-12-31 BC", "4713-01-01 BC", "5874897-12-31", "12024-02-29"],
        day,
    ),
    Kind("time", TEXT, ["24:00:00", "00:00:00", "23:59:59.999999"], clock),
    Kind("time(3)", TEXT, ["12:34:56.7894"], clock),
    Kind(
        "timestamp",
        MOMENT,
        [*ENDS, "4713-01-01 00:00:00 BC", "294247-01-10 04:00:54.775806", "0001-12-31 23:59 BC"],
        moment,
    ),
    Kind("timestamp(0)", MOMENT, ["2024-02-29 12:34:56.789", "infinity"], moment),
    Kind(
        "timestamptz",
        INSTANT,
        [*ENDS, "4713-01-01 00:00:00+00 BC", "294247-01-10 04:00:54.775806+00", "12024-01-01+14"],
        instant,
    ),
    Kind(
        "uuid",
        TEXT,
        ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"],
        lambda rng: str(uuid.UUID(int=rng.getrandbits(128))),
    ),
    Kind("json", TEXT, ['{"b": 1,  "a": [1.0, null]}', "null"]),
    Kind("jsonb", TEXT, ['{"b": 1,  "a": [1.0, null]}', "null", '"é\\u0001"']),
    Kind("mood", TEXT, ["sad", "it's ok", "très bien"]),
    Kind("oid", TEXT, ["0", "4294967295"], lambda rng: str(rng.getrandbits(32))),
    Kind("price", pa.decimal128(12, 2), ["12.3"]),
    Kind("label", TEXT, ["x "]),
    Kind("until", DAY, [*ENDS, "2024-02-29"]),
    Kind("at", INSTANT, [*ENDS, "2024-02-29 00:00+09"]),
    Kind("feeling", TEXT, ["it's ok"]),
    Kind("open_price", TEXT, ["1.50", "NaN"], number),
    Kind("token", TEXT, ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"]),
    Kind("document", TEXT, ['{"a":1}']),
    Kind("raw", pa.binary(), ["\\x00"]),
    Kind("yes", pa.bool_(), ["t"]),
    Kind("ratio", pa.float64(), ["0.1", "NaN"]),
    Kind("small", pa.int16(), ["-1"]),
    # Text, in a log of text.
    Kind('"char"', TEXT, ["x", ""], binary=False),
    Kind("timetz", TEXT, ["12:34:56+05:30", "24:00:00-15:59:59"], binary=False),
    Kind(
        "interval",
        TEXT,
        ["1 year 2 mons -3 days 04:05:06.789", "-1 sec", "178000000 years", "00:00"],
        lambda rng: (
            f"{rng.randint(-99, 99)} mons {rng.randint(-9, 9)} days {rng.randint(-(9**9), 9**9)} us"
        ),
        binary=False,
    ),
    Kind("money", TEXT, ["-92233720368547758.08", "1234.5"], binary=False),
    Kind("inet", TEXT, ["10.0.0.1/8", "10.0.0.1", "::ffff:1.2.3.4/100"], binary=False),
    Kind("cidr", TEXT, ["10.0.0.0/8", "2001:db8::/32"], binary=False),
    Kind("macaddr", TEXT, ["08:00:2b:01:02:03"], binary=False),
    Kind("macaddr8", TEXT, ["08:00:2b:01:02:03:04:05"], binary=False),
    Kind("bit(3)", TEXT, ["101"], binary=False),
    Kind("varbit", TEXT, ["", "1", "0101010101"], binary=False),
    Kind("integer[]", TEXT, ["{}", "{1,NULL,3}", "[0:1]={1,2}", "{{1,NULL},{3,4}}"], binary=False),
    Kind("text[]", TEXT, ['{"a,b","NULL",NULL,"\\"",""}', '{{a,"{"},{b,"}"}}'], binary=False),
    Kind("double precision[]", TEXT, ["{0.1,NaN,-Infinity,-0}"], binary=False),
    Kind("timestamptz[]", TEXT, ["{infinity,2024-01-01 00:00:00+09,NULL}"], binary=False),
    Kind("bytea[]", TEXT, ['{"\\\\x00ff",NULL}'], binary=False),
    Kind("numeric(10,2)[]", TEXT, ["{1,NULL,NaN}"], binary=False),
    Kind("mood[]", TEXT, ['{sad,"it\'s ok",NULL}'], binary=False),
    Kind("pair[]", TEXT, ['{"(1,\\"a,b\\")",NULL}'], binary=False),
    Kind("pair", TEXT, ['(1,"a,b")', "(,)", '(,"")'], binary=False),
    Kind("nest", TEXT, ['("(1,x)",infinity,"{sad}")', "(,,)"], binary=False),
    Kind("numbers", TEXT, ["{1,NULL}"], binary=False),
    Kind("couple", TEXT, ["(1,x)"], binary=False),
    Kind("span", TEXT, ["[1,5)"], binary=False),
    Kind("int4range", TEXT, ["empty", "[1,5)", "(,)", "[,3]"], binary=False),
    Kind("int8range", TEXT, ["[-9223372036854775808,9223372036854775807)"], binary=False),
    Kind("numrange", TEXT, ["[1.50,NaN]", "(-Infinity,Infinity)"], binary=False),
    Kind("daterange", TEXT, ["[infinity,infinity]", "[0044-03-15 BC,)"], binary=False),
    Kind("tsrange", TEXT, ["(-infinity,2024-01-01 00:00:00.5]"], binary=False),
    Kind("tstzrange", TEXT, ["[2024-01-01 00:00+09,infinity)"], binary=False),
    Kind("floatrange", TEXT, ["[0.1,NaN]"], binary=False),
    Kind("int4multirange", TEXT, ["{}", "{[1,3),[5,)}"], binary=False),
    Kind("datemultirange", TEXT, ["{[2024-01-01,infinity]}"], binary=False),
    Kind("tstzrange[]", TEXT, ['{"[2024-01-01 00:00+09,infinity)",NULL}'], binary=False),
    Kind("point", TEXT, ["(0.1,-2)", "(NaN,Infinity)"], binary=False),
    Kind("line", TEXT, ["{1,2,3}"], binary=False),
    Kind("box", TEXT, ["(1,1),(0,0)"], binary=False),
    Kind("path", TEXT, ["[(0,0),(1,1)]", "((0,0),(1,1))"], binary=False),
    Kind("polygon", TEXT, ["((0,0),(1,1),(2,0))"], binary=False),
    Kind("circle", TEXT, ["<(0,0),1.5>"], binary=False),
    Kind("tsvector", TEXT, ["a fat cat", "'it''s':1A,2B"], binary=False),
    Kind("tsquery", TEXT, ["fat & (rat | !cat)", ""], binary=False),
    Kind("regclass", TEXT, ["pg_class", "pg_catalog.pg_type"], binary=False),
    Kind("regtype", TEXT, ["integer"], binary=False),
    Kind("jsonpath", TEXT, ['$."a"[*]'], binary=False),
    Kind("xid8", TEXT, ["18446744073709551615"], binary=False),
    Kind("pg_lsn", TEXT, ["16/B374D848"], binary=False),
    Kind("tid", TEXT, ["(4294967295,65535)"], binary=False),
    Kind("pg_snapshot", TEXT, ["10:20:10,14,15"], binary=False),
]

# Types of extensions that Debian's server has.
EXTENSIONS = ("citext", "hstore", "ltree", "cube")
EXTENDED = [
    Kind("citext", TEXT, ["", "ÄbC"], words),
    Kind("citext[]", TEXT, ['{Aa,"b c"}'], binary=False),
    Kind("hstore", TEXT, ['a=>1, "b c"=>NULL, ""=>"\\""', ""], binary=False),
    Kind("ltree", TEXT, ["Top.Science"], binary=False),
    Kind("cube", TEXT, ["(0.1,2),(3,4)"], binary=False),
    Kind("xml", TEXT, ['<a b="1">é</a>', '<?xml version="1.0" encoding="UTF-8"?><a/>'], binary=False),
]  # fmt: skip

# On each row's own values, and beside a whole old image.
