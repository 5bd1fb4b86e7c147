"""Statements that the log has as text: what they mean for rows.

Rows come as rows, so a statement is a migration, an administrator's word, or, from a session with another
``binlog_format``, a change of rows that nobody can take over. Only the words at its beginning are read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.model.schema import TableId
from headrace.sources.mysql.events import Query

__all__ = ["Meaning", "meaning_of"]

_TOKEN = re.compile(
    r"""(?P<space>\s+|/\*(?!M?!).*?\*/|--[ \t][^\n]*|\#[^\n]*)
      | (?P<open>/\*M?!\d*)|(?P<close>\*/)
      | `(?P<quoted>(?:[^`]|``)*)`
      | "(?P<double>(?:[^"]|"")*)"
      | '(?P<text>(?:[^'\\]|\\.|'')*)'
      | (?P<word>[\w$\u0080-\uffff]+)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)

_ENDS = {"COMMIT": "commit", "ROLLBACK": "rollback"}
_NOTHING = frozenset({"BEGIN", "SAVEPOINT", "RELEASE"})
_WRITES = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "MERGE", "WITH", "CALL", "DO", "EXECUTE"}
)
_PARTS = frozenset({"PARTITION", "TABLESPACE"})
_TAKING = frozenset({"TRUNCATE", "DROP", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT"})


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a statement is.

    Attributes:
        kind: ``commit``, ``rollback``, ``rollback to``, ``truncate``, ``drop``, ``parts`` (rows went or came with a
            partition), ``write`` (rows were changed by the statement itself), or ``other``.
        tables: which tables it is about, where that matters.
        word: its first word.
    """

    kind: str
    tables: tuple[TableId, ...] = ()
    word: str = ""


def meaning_of(query: Query) -> Meaning:
    """Return what a statement is; one that is not known is ``other``: table maps tell what it did to shapes."""
    tokens = list(_tokens(query.sql))
    words = [text.upper() if kind == "word" else "" for kind, text in tokens]
    first = words[0] if words else ""
    if first in _ENDS:
        partial = "TO" in words[1:4]
        return Meaning("rollback to" if partial else _ENDS[first], word=first)
    if first in _NOTHING:
        return Meaning("other", word=first)
    if first in _WRITES:
        return Meaning("write", word=first)
    names = _Names(query.schema, tokens)
    if first == "TRUNCATE":
        return Meaning("truncate", names.listed(2 if words[1:2] == ["TABLE"] else 1), first)
    if first == "DROP":
        return _drop(words, names)
    if first == "ALTER" and _takes_parts(words):
        at = words.index("TABLE") + 1 if "TABLE" in words else len(words)
        return Meaning("parts", names.listed(_past_exists(words, at))[:1], first)
    return Meaning("other", word=first)


def _drop(words: list[str], names: _Names) -> Meaning:
    at = 1
    if words[at : at + 1] == ["TEMPORARY"]:
        return Meaning("other", word="DROP")
    if words[at : at + 1] not in (["TABLE"], ["TABLES"]):
        return Meaning("other", word="DROP")
    return Meaning("drop", names.listed(_past_exists(words, at + 1)), "DROP")


def _past_exists(words: list[str], at: int) -> int:
    return at + 2 if words[at : at + 2] == ["IF", "EXISTS"] else at


def _takes_parts(words: list[str]) -> bool:
    return any(one in _TAKING and other in _PARTS for one, other in itertools.pairwise(words))


class _Names:
    """Names of tables in a list of tokens."""

    def __init__(self, schema: str, tokens: list[tuple[str, str]]) -> None:
        self._schema = schema
        self._tokens = tokens

    def listed(self, at: int) -> tuple[TableId, ...]:
        """Return the names from a token on that commas are between."""
        found = []
        while True:
            parts: list[str] = []
            while at < len(self._tokens) and self._tokens[at][0] in ("word", "quoted", "double"):
                parts.append(self._tokens[at][1])
                at += 1
                if self._sign(at) != ".":
                    break
                at += 1
            if parts:
                found.append(TableId(parts[-2] if len(parts) > 1 else self._schema, parts[-1]))
            if self._sign(at) != ",":
                return tuple(found)
            at += 1

    def _sign(self, at: int) -> str:
        return (
            self._tokens[at][1] if at < len(self._tokens) and self._tokens[at][0] == "sign" else ""
        )


def _tokens(sql: str) -> Iterator[tuple[str, str]]:
    """Yield words, names and signs; what stands in a comment that servers execute counts."""
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup
        if kind == "quoted":
            yield kind, match["quoted"].replace("``", "`")
        elif kind == "double":
            yield kind, match["double"].replace('""', '"')
        elif kind in ("word", "sign", "text"):
            yield kind, match[kind]
