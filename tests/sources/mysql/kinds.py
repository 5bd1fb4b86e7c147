"""Values of every type in docs/mysql.md: extremes, and more of them made up."""

from __future__ import annotations

import random
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_binlog import MARIADB, MYSQL

DOCUMENT = Path(__file__).parents[3] / "docs" / "mysql.md"

Make = Callable[[random.Random], str]


@dataclass(frozen=True)
class Kind:
    """A type as docs/mysql.md has it: what holds it there, the only server that has it if one is,
    literals of its extremes, and more literals.
    """

    name: str
    neutral: str
    only: str
    values: Sequence[str]
    make: Make | None = None


def documented() -> list[tuple[str, str, str]]:
    """Return the rows of the table of types."""
    text = DOCUMENT.read_text()
    table = text[text.index("| type | Arrow | only of |") :].split("\n\n")[0]
    return re.findall(r"^\| `(.+?)` \| (\S+) \| ?(\S*) \|$", table, re.MULTILINE)


def kinds() -> list[Kind]:
    """Return every documented type with its values."""
    return [Kind(name, neutral, only, *_values(name)) for name, neutral, only in documented()]


def on_servers(found: Sequence[Kind]) -> list[Any]:
    """Return parameters ``server, kind``: each type on each server that has it."""
    return [
        pytest.param(server.values[0], kind, marks=server.marks, id=f"{server.id}-{kind.name}")
        for server in (MARIADB, MYSQL)
        for kind in found
        if kind.only.lower() + "_server" in ("_server", server.values[0])
    ]


def _values(name: str) -> tuple[Sequence[str], Make | None]:
    for pattern, found in _KINDS:
        if match := re.fullmatch(pattern, name):
            return found(match)
    raise AssertionError(f"no values for {name}")


_Found = tuple[Sequence[str], Make | None]

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


def _integer(match: re.Match[str]) -> _Found:
    bits = _BITS[match[1]]
    low, high = (0, 2**bits - 1) if match[2] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return [str(low), str(high), "0", "1", str(low // 2)], lambda rng: str(rng.randint(low, high))


def _float(match: re.Match[str]) -> _Found:
    form = "<f" if match[0] == "float" else "<d"

    def make(rng: random.Random) -> str:
        (value,) = struct.unpack(form, rng.randbytes(struct.calcsize(form)))
        return repr(value) if value == value and abs(value) < 1e30 else "0.5"

    tiny = "1.17549435e-38" if match[0] == "float" else "2.2250738585072014e-308"
    return ["0", "-0.0e0", "1.5", "-1e30", "0.1", "16777216", tiny], make


def _decimal(match: re.Match[str]) -> _Found:
    precision, scale = int(match[1]), int(match[2])

    def number(digits: str) -> str:
        whole, part = digits[: precision - scale], digits[precision - scale :]
        return f"{whole or '0'}.{part}" if scale else whole

    def make(rng: random.Random) -> str:
        zeros = rng.randint(0, precision)
        digits = "0" * zeros + "".join(rng.choice("0123456789") for _ in range(precision - zeros))
        return rng.choice(("", "-")) + number(digits)

    least = number("0" * (precision - 1) + "1")
    return ["0", number("9" * precision), "-" + number("9" * precision), least, "-" + least], make


def _bit(match: re.Match[str]) -> _Found:
    most = 2 ** int(match[1]) - 1
    return ["0", "1", str(most)], lambda rng: str(rng.randint(0, most))


def _year(_: re.Match[str]) -> _Found:
    return ["0", "1901", "2155", "2024"], None


def _fraction(rng: random.Random, digits: int) -> str:
    return "." + "".join(rng.choice("0123456789") for _ in range(digits)) if digits else ""


def _day(rng: random.Random, first: int = 1, last: int = 9999) -> str:
    return f"{rng.randint(first, last):04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _clock(rng: random.Random, hours: int = 24) -> str:
    return f"{rng.randrange(hours):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}"


def _date(_: re.Match[str]) -> _Found:
    return ["'0001-01-01'", "'9999-12-31'", "'1970-01-01'", "'2000-02-29'", "'1969-12-31'"], (
        lambda rng: f"'{_day(rng)}'"
    )


def _time(match: re.Match[str]) -> _Found:
    digits = int(match[1] or 0)
    tail = "." + "9" * digits if digits else ""
    head = "." + "0" * (digits - 1) + "1" if digits else ""
    return [
        "'00:00:00'", f"'838:59:58{tail}'", f"'-838:59:58{tail}'", f"'-00:00:00{head}'", "'-00:00:01'",
        f"'-12:34:56{tail}'", "'100:00:00'",
    ], lambda rng: f"'{rng.choice(('', '-'))}{_clock(rng, 838)}{_fraction(rng, digits)}'"  # fmt: skip


def _datetime(match: re.Match[str]) -> _Found:
    digits = int(match[1] or 0)
    tail = "." + "9" * digits if digits else ""
    return ["'0001-01-01 00:00:00'", f"'9999-12-31 23:59:59{tail}'", "'1969-12-31 23:59:59'"], (
        lambda rng: f"'{_day(rng)} {_clock(rng)}{_fraction(rng, digits)}'"
    )


def _timestamp(match: re.Match[str]) -> _Found:
    digits = int(match[1] or 0)
    tail = "." + "9" * digits if digits else ""
    return ["'1970-01-01 00:00:01'", f"'2038-01-19 03:14:07{tail}'"], (
        lambda rng: f"'{_day(rng, 1971, 2037)} {_clock(rng)}{_fraction(rng, digits)}'"
    )


_WORDS = ("", "a", " b", "c ", "é", "ß", "日", "😀", "it''s", "0", "\\\\n")


def _text(match: re.Match[str]) -> _Found:
    most = int(match[2]) if match[2] else 60

    def make(rng: random.Random) -> str:
        text = "".join(rng.choice(_WORDS[1:8]) for _ in range(rng.randint(0, most // 2)))
        return f"'{text}'"

    values = [f"'{word}'" for word in _WORDS] + [f"'{'x' * most}'", f"'{'日' * most}'"]
    return values, make


def _bytes(match: re.Match[str]) -> _Found:
    most = int(match[2]) if match[2] else 60

    def make(rng: random.Random) -> str:
        return f"X'{rng.randbytes(rng.randint(0, most)).hex()}'"

    return ["X''", "X'00'", "X'ff00'", "X'0061'", f"X'{'fe' * most}'"], make


def _labels(match: re.Match[str]) -> _Found:
    labels = re.findall(r"'((?:[^']|'')*)'", match[2])
    if match[1] == "enum":
        return [f"'{label}'" for label in labels], lambda rng: f"'{rng.choice(labels)}'"
    most = 2 ** len(labels) - 1
    return ["''", "1", str(most), "6"], lambda rng: str(rng.randint(0, most))


def _geometry(_: re.Match[str]) -> _Found:
    return [
        "ST_GeomFromText('POINT(1 2)', 4326)", "ST_GeomFromText('LINESTRING(0 0,1 1)')",
        "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')", "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')",
    ], None  # fmt: skip


def _uuid(_: re.Match[str]) -> _Found:
    def make(rng: random.Random) -> str:
        return f"'{uuid.UUID(bytes=rng.randbytes(16), version=rng.choice((1, 3, 4, 5)))}'"

    return [
        f"'{uuid.UUID(int=0)}'", f"'{uuid.UUID(int=2**128 - 1)}'", "'123e4567-e89b-12d3-a456-426655440000'",
        "'123e4567-e89b-62d3-a456-426655440000'", "'123e4567-e89b-72d3-a456-426655440000'",
        "'123e4567-e89b-12d3-1456-426655440000'",
        "'123e4567-e89b-12d3-0456-426655440000'", "'11111111-2222-3333-0000-000000000000'",
    ], make  # fmt: skip


def _inet6(_: re.Match[str]) -> _Found:
    return [
        "'::'", "'::1'", "'fe80::1'", "'2001:db8::ff00:42:8329'", "'::ffff:1.2.3.4'", "'::1.2.3.4'", "'::102'", "'1::'",
        "'1:0:0:2::3'", "'1:0:2:3:4:5:6:7'", "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'", "'::2:0:0:0:1'", "'::1:0'",
    ], lambda rng: "'" + ":".join(f"{rng.choice((0, 0, rng.getrandbits(16))):x}" for _ in range(8)) + "'"  # fmt: skip


def _inet4(_: re.Match[str]) -> _Found:
    return ["'0.0.0.0'", "'255.255.255.255'", "'10.0.0.0'", "'0.0.0.7'"], None


def _json(_: re.Match[str]) -> _Found:
    def word(rng: random.Random) -> str:
        return "".join(
            rng.choice(("a", "B", "é", "😀", '\\"', "\\\\", "\\n", "\\u0001", "/"))
            for _ in range(rng.randint(0, 9))
        )

    def document(rng: random.Random, deep: int) -> str:
        match rng.randrange(9 if deep else 6):
            case 0:
                return rng.choice(("null", "true", "false"))
            case 1:
                return str(
                    rng.choice((1, -1)) * rng.getrandbits(rng.choice((3, 15, 16, 31, 32, 63)))
                )
            case 2:
                (value,) = struct.unpack("<d", rng.randbytes(8))
                return repr(value) if value == value and abs(value) < 1e308 else "1e16"
            case 3:
                return repr(rng.uniform(-1, 1) * 10 ** rng.randint(-20, 20))
            case 4 | 5:
                return f'"{word(rng)}"'
            case 6:
                return (
                    "[" + ", ".join(document(rng, deep - 1) for _ in range(rng.randint(0, 5))) + "]"
                )
            case _:
                names = (
                    f'"{word(rng)}": {document(rng, deep - 1)}' for _ in range(rng.randint(0, 5))
                )
                return "{" + ", ".join(names) + "}"

    def make(rng: random.Random) -> str:
        return "'" + document(rng, 4).replace("\\", "\\\\").replace("'", "''") + "'"

    large = ", ".join(f'"k{n}": {n}' for n in range(9000))
    return [
        "'{}'", "'[]'", "'null'", "'\"\"'", "'1.0'", "'-0.0'", "'1e15'", "'1e14'", "'0.000000000000001'",
        "'18446744073709551615'", "'-9223372036854775808'", "'65535'", "'-32769'", "'2147483648'",
        "'{\"bb\": 1, \"a\": {\"c\": [1, [2, {}]]}, \"\": null}'",
        f"'{{{large}}}'", f"'[{', '.join(['70000'] * 20000)}]'",
        f"'\"{'x' * 70000}\"'",
        "JSON_ARRAY(DATE'2020-01-02', TIMESTAMP'2020-01-02 03:04:05.6', TIME'-100:02:03.000004')",
        "JSON_ARRAY(1.50, -12345678901234567890.123456789012345, 0.0001, CAST(7 AS DECIMAL(20, 5)))",
        "JSON_ARRAY(b'101', x'00ff', REPEAT(x'ab', 100), CAST(2020 AS YEAR))", "CAST(18446744073709551615 AS JSON)",
        "CAST(ST_GeomFromText('POINT(1 2)') AS JSON)", "CAST(TIME'23:59:59' AS JSON)",
    ], make  # fmt: skip


def _vector(match: re.Match[str]) -> _Found:
    most = int(match[1])

    def make(rng: random.Random) -> str:
        numbers = ", ".join(f"{rng.uniform(-9, 9):.5f}" for _ in range(rng.randint(1, most)))
        return f"TO_VECTOR('[{numbers}]')"

    return ["TO_VECTOR('[0]')", "TO_VECTOR('[34000000000000000000, -0.000001, 3]')"], make


_KINDS: list[tuple[str, Callable[[re.Match[str]], _Found]]] = [
    (r"(tinyint|smallint|mediumint|int|bigint)( unsigned)?", _integer),
    (r"float|double", _float),
    (r"decimal\((\d+),(\d+)\)", _decimal),
    (r"bit\((\d+)\)", _bit),
    (r"year", _year),
    (r"date", _date),
    (r"time(?:\((\d)\))?", _time),
    (r"datetime(?:\((\d)\))?", _datetime),
    (r"timestamp(?:\((\d)\))?", _timestamp),
    (r"(char|varchar|tinytext|text|mediumtext|longtext)(?:\((\d+)\))?", _text),
    (r"(binary|varbinary|tinyblob|blob|mediumblob|longblob)(?:\((\d+)\))?", _bytes),
    (r"(enum|set)\((.*)\)", _labels),
    (r"geometry", _geometry),
    (r"json", _json),
    (r"vector\((\d+)\)", _vector),
    (r"uuid", _uuid),
    (r"inet6", _inet6),
    (r"inet4", _inet4),
]
