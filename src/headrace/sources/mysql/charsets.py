"""Character sets: which of them are decoded here, and how.

The log carries text in the column's own character set, a chunk has it converted by the server. Only sets whose table in
Python is the server's own, proved by a test for every character of theirs, are decoded.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import SourceError

__all__ = ["BINARY", "CODECS", "Collations", "decode_statement", "decode_text"]

BINARY = "binary"

CODECS: Mapping[str, str] = {
    "ascii": "ascii",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "koi8r": "koi8_r",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8": "utf_8",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
}
"""Python's codec for each character set of the server that is decoded here."""

_OF_CLIENTS: Mapping[str, str] = {
    **CODECS,
    "big5": "big5",
    "cp1256": "cp1256",
    "cp866": "cp866",
    "cp932": "cp932",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "koi8u": "koi8_u",
    "sjis": "shift_jis",
    "tis620": "tis_620",
    "ujis": "euc_jp",
}
"""Likewise for those in which clients write statements, of which only words and names are read."""

# The server's latin1 is cp1252 with the five holes filled by the control characters of ISO 8859-1.
_HOLES = {0x81: "\x81", 0x8D: "\x8d", 0x8F: "\x8f", 0x90: "\x90", 0x9D: "\x9d"}


def _fill_hole(error: UnicodeError) -> tuple[str, int]:
    if isinstance(error, UnicodeDecodeError) and error.object[error.start] in _HOLES:
        return _HOLES[error.object[error.start]], error.start + 1
    raise error


codecs.register_error("headrace-latin1", _fill_hole)


def decode_text(raw: bytes, charset: str) -> str:
    """Return text of a character set of `CODECS`.

    Raises:
        ValueError: the bytes are no text of it.
    """
    errors = "headrace-latin1" if charset == "latin1" else "strict"
    return raw.decode(CODECS[charset], errors)


def decode_statement(raw: bytes, charset: str) -> str:
    """Return a statement as text; what is no text of the character set, or of one that is not known, is marked."""
    if charset == "latin1":
        return raw.decode("cp1252", "headrace-latin1")
    return raw.decode(_OF_CLIENTS.get(charset, "utf_8"), "surrogateescape")


@dataclass(frozen=True, slots=True)
class Collations:
    """What the server's collations stand for.

    Attributes:
        charsets: character set by the collation's number.
        widths: most bytes of a character, by character set.
        collated: kinds of column for which a table map has a collation.
    """

    charsets: Mapping[int, str] = field(default_factory=dict)
    widths: Mapping[str, int] = field(default_factory=dict)
    collated: frozenset[int] = frozenset()

    def charset(self, collation: int) -> str:
        """Return the character set of a collation.

        Raises:
            SourceError: the server did not name it.
        """
        found = self.charsets.get(collation)
        if found is None:
            raise SourceError(
                f"The log names collation {collation}, which the server does not list.",
                next_step="report it with the server's version.",
            )
        return found
