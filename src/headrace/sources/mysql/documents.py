"""Documents (``json``) as MySQL's log has them, and their text as the server renders it.

A document is one byte that tells its kind, and its value. Objects and arrays hold numbers and sizes of two bytes or of
four, entries that tell where each part lies, counted from the first byte behind the kind, and the parts. Numbers and
literals that fit lie in their entry.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.sources.mysql.reading import broken

__all__ = ["RENDERED", "Document", "Scalar", "document_of", "rendered", "texts_of"]

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _STRING, _OPAQUE = 4, 12, 15
_LITERALS = {0: None, 1: True, 2: False}
_NUMBERS: Mapping[int, str] = {
    5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q", 11: "<d",
}  # fmt: skip
"""Form of each kind of number."""
_DEEPEST = 200

RENDERED = b"\xff"
"""In the place of a kind: what follows is text of ours. No server writes it."""

_DECIMAL, _DATE, _TIME, _DATETIME, _TIMESTAMP = 246, 10, 11, 12, 7


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value that JSON has no form of its own for.

    Attributes:
        text: as the server renders it, with quotes where it has any.
    """

    text: str


Document = dict[str, Any] | list[Any] | str | int | float | bool | None | Scalar
"""A document; objects in the order in which the server keeps them."""


def document_of(data: bytes) -> Document:
    """Return a document.

    Raises:
        ProtocolError: the bytes are none.
    """
    if not data:
        # A column that does not allow null and got no value.
        return None
    try:
        return _value(data[0], data, 1, _DEEPEST)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise broken("a document is malformed") from error


def _value(kind: int, data: bytes, at: int, deepest: int) -> Document:
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY):
        if not deepest:
            raise ValueError
        return _container(kind, data, at, deepest - 1)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        found: int | float = struct.unpack_from(_NUMBERS[kind], data, at)[0]
        return found
    if kind == _STRING:
        return _counted(data, at).decode()
    if kind == _OPAQUE:
        return Scalar(_opaque(data[at], _counted(data, at + 1)))
    raise ValueError


def _container(kind: int, data: bytes, at: int, deepest: int) -> Document:
    form, wide = ("<H", 2) if kind in (_SMALL_OBJECT, _SMALL_ARRAY) else ("<I", 4)
    (count,) = struct.unpack_from(form, data, at)
    entry = at + 2 * wide
    names = []
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        if count * (wide + 2) > len(data):
            raise ValueError
        for n in range(count):
            (place,) = struct.unpack_from(form, data, entry + n * (wide + 2))
            (size,) = struct.unpack_from("<H", data, entry + n * (wide + 2) + wide)
            names.append(_slice(data, at + place, size).decode())
        entry += count * (wide + 2)
    elif count * (wide + 1) > len(data):
        raise ValueError
    parts = [_entry(data, entry + n * (wide + 1), at, form, wide, deepest) for n in range(count)]
    if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
        return parts
    return dict(zip(names, parts, strict=True))


def _entry(data: bytes, at: int, base: int, form: str, wide: int, deepest: int) -> Document:
    kind = data[at]
    inside = kind in (_LITERAL, 5, 6) or (wide == 4 and kind in (7, 8))
    if inside:
        return _value(kind, data, at + 1, deepest)
    (place,) = struct.unpack_from(form, data, at + 1)
    return _value(kind, data, base + place, deepest)


def _counted(data: bytes, at: int) -> bytes:
    """Return bytes behind their number, of which each byte has seven bits, the lowest first."""
    size = 0
    for n in range(5):
        size |= (data[at] & 0x7F) << 7 * n
        at += 1
        if data[at - 1] < 0x80:
            return _slice(data, at, size)
    raise ValueError


def _slice(data: bytes, at: int, size: int) -> bytes:
    found = data[at : at + size]
    if len(found) != size:
        raise ValueError
    return found


def texts_of(cells: Sequence[bytes]) -> list[str]:
    """Return the texts of cells that hold documents.

    Raises:
        ProtocolError: one is malformed.
    """
    return [
        cell[1:].decode() if cell[:1] == RENDERED else rendered(document_of(cell)) for cell in cells
    ]


# -- text -----------------------------------------------------------------------------------------


def rendered(document: Document) -> str:
    """Return a document's text."""
    parts: list[str] = []
    _render(document, parts.append)
    return "".join(parts)


def _render(document: Document, add: Callable[[str], None]) -> None:
    if isinstance(document, dict):
        add("{")
        for n, (name, value) in enumerate(document.items()):
            add(", " if n else "")
            add(f"{_quoted(name)}: ")
            _render(value, add)
        add("}")
    elif isinstance(document, list):
        add("[")
        for n, value in enumerate(document):
            add(", " if n else "")
            _render(value, add)
        add("]")
    elif isinstance(document, str):
        add(_quoted(document))
    elif isinstance(document, Scalar):
        add(document.text)
    elif document is None or isinstance(document, bool):
        add({None: "null", True: "true", False: "false"}[document])
    elif isinstance(document, float):
        add(_number_text(document))
    else:
        add(str(document))


_ESCAPES = {code: f"\\u{code:04x}" for code in range(32)} | {
    ord(sign): "\\" + letter for sign, letter in zip('\b\t\f\n\r"\\', 'btfnr"\\', strict=True)
}


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _number_text(value: float) -> str:
    """Return a number of 64 bits as the server shows one in a document."""
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign = "-" * mantissa.startswith("-")
    whole, _, part = mantissa.lstrip("-").partition(".")
    part = "" if part == "0" else part
    digits = (whole + part).lstrip("0")
    # Where the point stands behind the first digit that is not 0.
    point = int(exponent or 0) + (
        len(whole) if whole != "0" else len((whole + part).lstrip("0")) - len(part)
    )
    digits = digits.rstrip("0")
    if point >= -14 and (point <= 15 or len(digits) > point):
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        whole = digits[:point].ljust(point, "0")
        return f"{sign}{whole}.{digits[point:] or '0'}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{point - 1}"


def _opaque(type_: int, data: bytes) -> str:
    if type_ == _DECIMAL:
        return _decimal_text(data)
    if type_ in (_DATE, _DATETIME, _TIMESTAMP, _TIME) and len(data) == 8:
        (packed,) = struct.unpack("<q", data)
        return f'"{_time_text(packed) if type_ == _TIME else _moment_text(packed, type_)}"'
    code = base64.b64encode(data).decode()
    lines = "\n".join(code[at : at + 76] for at in range(0, len(code), 76))
    return _quoted(f"base64:type{type_}:{lines}")


def _decimal_text(data: bytes) -> str:
    """Return a decimal: digits, those behind the point, and groups of up to nine in four bytes, as a column has it."""
    precision, scale = data[0], data[1]
    negative = not data[2] & 0x80
    body = bytearray(data[2:])
    body[0] ^= 0x80
    if negative:
        body = bytearray(byte ^ 0xFF for byte in body)
    whole = precision - scale
    sizes = ([whole % 9] if whole % 9 else []) + [9] * (whole // 9)
    behind = len(sizes)
    sizes += [9] * (scale // 9) + ([scale % 9] if scale % 9 else [])
    groups, at = [], 0
    for digits in sizes:
        width = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[digits]
        groups.append(f"{int.from_bytes(_slice(bytes(body), at, width), 'big'):0{digits}d}")
        at += width
    text = "".join(groups[:behind]).lstrip("0") or "0"
    return "-" * negative + text + ("." + "".join(groups[behind:]) if scale else "")


def _moment_text(packed: int, type_: int) -> str:
    micros, whole = packed & 0xFFFFFF, packed >> 24
    day, clock = whole >> 17, whole & (1 << 17) - 1
    months, date = day >> 5, f"{day & 31:02d}"
    text = f"{months // 13:04d}-{months % 13:02d}-{date}"
    if type_ == _DATE:
        return text
    return f"{text} {clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{micros:06d}"


def _time_text(packed: int) -> str:
    size = abs(packed)
    micros, clock = size & 0xFFFFFF, size >> 24
    sign = "-" * (packed < 0)
    return f"{sign}{clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{micros:06d}"
