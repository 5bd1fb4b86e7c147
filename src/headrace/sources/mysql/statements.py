"""Statements that the log has as text: what they mean for rows.

Rows come as rows, so a statement is a migration, an administrator's word, or, from a session with another
``binlog_format``, a change of rows that nobody can take over. Only the words at its beginning are read.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.model.schema import TableId
from headrace.sources.mysql.events import Query

__all__ = ["Meaning", "meaning_of"]

_TOKEN = r"""(?P<space>\s+|/\*(?!M?!).*?\*/|--(?!\S)[^\n]*|\#[^\n]*)
      | (?P<open>/\*M?!\d*)|(?P<close>\*/)
      | `(?P<quoted>(?:[^`]|``)*)`
      | "(?P<double>{double})"
      | '(?P<text>{text})'
      | (?P<word>[\w$\u0080-\uffff]+)
      | (?P<sign>.)"""
_PLAIN = r"(?:[^{0}]|{0}{0})*"
_ESCAPING = r"(?:[^{0}\\]|\\.|{0}{0})*"
"""What stands between quotes."""

_XID = re.compile(r"X'[0-9a-f]*',X'[0-9a-f]*',\d+$")
_ENDS = {"COMMIT": "commit", "ROLLBACK": "rollback"}
_XA = {
    "START": "xa start",
    "BEGIN": "xa start",
    "COMMIT": "xa commit",
    "ROLLBACK": "xa rollback",
}
_WRITES = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "MERGE", "WITH", "CALL", "DO", "EXECUTE"}
)
_PARTS = frozenset({"PARTITION", "TABLESPACE"})
_PARTS_OF_TABLES = frozenset({"COLUMN", "INDEX", "KEY"})
_ALTERING = frozenset({"CHANGE", "MODIFY", "CONVERT"})
_WAYS = frozenset({"ONLINE", "OFFLINE", "IGNORE"})
_REMOVING = _ALTERING | {"UNIQUE", "PRIMARY", "CHECK", "PARTITION"}
_MAKING = _WAYS | {"OR", "REPLACE"}
_ENSURING = ["IF", "NOT", "EXISTS"]
_SETTING = (["SET", "NULL"], ["SET", "DEFAULT"])
_COMPUTED = frozenset({"AS", "GENERATED"})
_NO_COLUMNS = frozenset(
    {"INDEX", "KEY", "UNIQUE", "PRIMARY", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"}
    | {"PARTITION"}
)
_NO_COLUMN = (["PERIOD", "FOR"], ["SYSTEM", "VERSIONING"])
"""Of which each word alone is the name of a column."""
_TAKING = frozenset({"TRUNCATE", "DROP", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT"})


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a statement is.

    Attributes:
        kind: ``begin``, ``commit``, ``rollback``, ``savepoint``, ``rollback to`` (one), ``xa start``, ``xa commit`` or
            ``xa rollback`` (of what was prepared), ``truncate``, ``drop``, ``drop database``, ``rename``, ``alter``
            (columns may be others, with values that no row event carries), ``drop columns`` (and nothing else),
            ``create``, ``temporary`` (created for its session alone), ``ensure`` (created if it was not there),
            ``replace`` (created in place of one of that name), ``parts`` (rows went or came with a partition),
            ``ignore`` (rows that were in the way went, or those of its history), ``history`` (the table keeps old rows
            from here on), ``write`` (rows were changed by the statement itself), or ``other``.
        tables: which tables it is about, where that matters; of ``rename`` old and new name in turn; of ``drop
            database`` one without a name of its own.
        word: its first word.
        xid: of ``xa commit`` and ``xa rollback`` the name of the distributed transaction, as the server writes it; of
            ``savepoint`` and ``rollback to`` that of the savepoint, in small letters.
        fills: of ``alter``, whether a column may hold other values though it has the name and the type of before.
        dropped: of ``alter`` and ``drop columns``, the columns that went by it, in small letters.
        remade: of ``alter``, columns that hold other values than that of their name did, in small letters.
        unfit: of ``alter``, columns whose texts may have lost letters that did not fit, in small letters; all of them
            where an empty name is among these.
        acting: the table to which it gives a foreign key that changes rows by itself, None where it gives none.
        surely: whether every server takes that for one: some pass over what stands behind a column.
    """

    kind: str
    tables: tuple[TableId, ...] = ()
    word: str = ""
    xid: str = ""
    fills: bool = False
    dropped: frozenset[str] = frozenset()
    remade: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()
    acting: TableId | None = None
    surely: bool = False


def meaning_of(query: Query, *, folds: bool = False) -> Meaning:
    """Return what a statement is; one that is not known is ``other``: table maps tell what it did to shapes.

    Args:
        query: the statement.
        folds: whether its server keeps names in small letters, however they were written.
    """
    tokens = list(_tokens(query))
    words = [text.upper() if kind == "word" else "" for kind, text in tokens]
    begin = _past_settings(words)
    tokens, words = tokens[begin:], words[begin:]
    first = words[0] if words else ""
    if first in _ENDS and "TO" in words[1:4]:
        return Meaning("rollback to", word=first, xid=tokens[-1][1].lower())
    if first in _ENDS:
        return Meaning(_ENDS[first], word=first)
    if first == "SAVEPOINT":
        return Meaning("savepoint", word=first, xid=tokens[-1][1].lower())
    if first == "BEGIN":
        return Meaning("begin", word=first)
    if first == "XA":
        named = _XID.search(query.sql)
        kind = _XA.get("".join(words[1:2]), "other")
        return Meaning(kind, word=first, xid=named[0] if named else "")
    if first in _WRITES:
        return Meaning("write", word=first)
    names = _Names(query.schema, tokens, folds=folds)
    if first == "TRUNCATE":
        return Meaning("truncate", names.listed(2 if words[1:2] == ["TABLE"] else 1), first)
    if first == "DROP":
        return _drop(words, names)
    if first == "CREATE":
        return _acting(_create(words, names), words, names)
    if first == "RENAME" and words[1:2] in (["TABLE"], ["TABLES"]):
        return Meaning("rename", names.renamed(_past_exists(words, 2)), first)
    if first == "ALTER" and "TABLE" in words:
        return _acting(_alter(words, names, strict=query.strict), words, names)
    return Meaning("other", word=first)


def _acting(meaning: Meaning, words: list[str], names: _Names) -> Meaning:
    """Return what a statement means together with the foreign key that acts, of a table that it makes or alters."""
    acts = any(
        words[at] == "ON"
        and words[at + 1] in ("DELETE", "UPDATE")
        and (words[at + 2] == "CASCADE" or words[at + 2 : at + 4] in _SETTING)
        for at in range(len(words) - 2)
    )
    if not acts or "TABLE" not in words or not set(words[1 : words.index("TABLE")]) <= _MAKING:
        return meaning
    at = words.index("TABLE") + 1
    table, _ = names.one(at + 3 if words[at : at + 3] == _ENSURING else _past_exists(words, at))
    surely = ("FOREIGN", "KEY") in itertools.pairwise(words)
    return replace(meaning, acting=table, surely=surely)


def _past_settings(words: list[str]) -> int:
    """Return where a statement begins that stands behind MariaDB's ``SET STATEMENT variable = value FOR``."""
    if words[:2] != ["SET", "STATEMENT"] or "FOR" not in words:
        return 0
    return words.index("FOR") + 1


def _alter(words: list[str], names: _Names, *, strict: bool) -> Meaning:
    begin = words.index("TABLE")
    ways = set(words[1:begin])
    if not ways <= _WAYS:
        # Of something else, such as an event, in whose body there is a table.
        return Meaning("other", word="ALTER")
    table, at = names.one(_past_exists(words, begin + 1))
    if _takes_parts(words):
        others = (names.one(n + 1)[0] for n in range(at, len(words)) if words[n] == "TABLE")
        return Meaning("parts", (table, *others), "ALTER")
    if _keeps_history(words):
        return Meaning("history", (table,), "ALTER")
    if _lets_history_go(words) or ("IGNORE" in ways and not _REMOVING.isdisjoint(words)):
        return Meaning("ignore", (table,), "ALTER")
    altered = fills = False
    made = _makes_values(words, names)
    dropped: set[str] = set()
    remade: set[str] = set()
    unfit: set[str] = set()
    for place in range(at, len(words) - 1):
        # One action among others that commas are between; else it is a name, or renames a column or an index.
        begins = place == at or words[place - 1].isdigit() or words[place - 1] == "NOWAIT"
        if not begins and names.sign(place - 1) != ",":
            continue
        action, column = words[place], _is_column(words, place + 1)
        altered |= action in _ALTERING or (action == "ADD" and column)
        # A session that is not strict makes other values of those that do not fit.
        fills |= action in _ALTERING and (not strict or made)
        if action == "DROP" and column:
            dropped.add(names.one(_past_column(words, place + 1))[0].name.lower())
        elif action == "MODIFY":
            modified, _ = names.one(_past_column(words, place + 1))
            (remade if made else unfit).add(modified.name.lower())
        elif action == "CONVERT":
            unfit.add("")
        elif action == "CHANGE":
            old, behind = names.one(_past_column(words, place + 1))
            new, _ = names.one(behind)
            fills |= old != new
            (remade if made or old != new else unfit).add(new.name.lower())
        elif words[place : place + 2] == ["RENAME", "COLUMN"]:
            altered = fills = True
            _, behind = names.one(place + 2)
            remade.add(names.one(behind + 1)[0].name.lower())
        elif action == "RENAME" and words[place + 1] not in _PARTS_OF_TABLES:
            to = (
                place + 2
                if words[place + 1] in ("TO", "AS") or names.sign(place + 1) == "="
                else place + 1
            )
            return Meaning("rename", (table, names.one(to)[0]), "ALTER")
    if not altered and not dropped:
        return Meaning("other", word="ALTER")
    kind = "alter" if altered else "drop columns"
    return Meaning(
        kind,
        (table,),
        "ALTER",
        fills=fills,
        dropped=frozenset(dropped),
        remade=frozenset(remade),
        unfit=frozenset() if strict else frozenset(unfit),
    )


def _makes_values(words: list[str], names: _Names) -> bool:
    """Return whether the server makes values for a column that is changed, also in a session that is strict.

    Another expression computes all; zeros become numbers of their own, and nulls the time of the statement.
    """
    numbers = any(
        words[at] == "AUTO_INCREMENT" and names.sign(at + 1) != "=" and not follows.isdigit()
        for at, follows in zip(range(len(words)), [*words[1:], ""], strict=True)
    )
    dated = "TIMESTAMP" in words and ("NOT", "NULL") in itertools.pairwise(words)
    return numbers or dated or not _COMPUTED.isdisjoint(words)


def _is_column(words: list[str], at: int) -> bool:
    """Return whether what is added or dropped is a column."""
    return words[at] not in _NO_COLUMNS and words[at : at + 2] not in _NO_COLUMN


def _past_column(words: list[str], at: int) -> int:
    return _past_exists(words, at + (words[at] == "COLUMN"))


def _create(words: list[str], names: _Names) -> Meaning:
    replaces = words[1:3] == ["OR", "REPLACE"]
    at = 3 if replaces else 1
    temporary = words[at : at + 1] == ["TEMPORARY"]
    at += temporary
    if words[at : at + 1] != ["TABLE"]:
        return Meaning("other", word="CREATE")
    kind = "temporary" if temporary else "replace" if replaces else "create"
    if words[at + 1 : at + 4] == _ENSURING:
        kind, at = "temporary" if temporary else "ensure", at + 3
    if _keeps_history(words):
        kind = "history"
    return Meaning(kind, (names.one(at + 1)[0],), "CREATE")


def _drop(words: list[str], names: _Names) -> Meaning:
    at = 1
    if words[at : at + 1] in (["DATABASE"], ["SCHEMA"]):
        table, _ = names.one(_past_exists(words, at + 1))
        return Meaning("drop database", (TableId(table.name, ""),), "DROP")
    if words[at : at + 1] == ["TEMPORARY"]:
        return Meaning("other", word="DROP")
    if words[at : at + 1] not in (["TABLE"], ["TABLES"]):
        return Meaning("other", word="DROP")
    return Meaning("drop", names.listed(_past_exists(words, at + 1)), "DROP")


def _past_exists(words: list[str], at: int) -> int:
    return at + 2 if words[at : at + 2] == ["IF", "EXISTS"] else at


def _takes_parts(words: list[str]) -> bool:
    pairs = itertools.pairwise(words)
    return any(
        (one in _TAKING and other in _PARTS) or (one, other) == ("CONVERT", "TABLE")
        for one, other in pairs
    )


def _keeps_history(words: list[str]) -> bool:
    return any(
        words[at] in ("ADD", "WITH") and words[at + 1 : at + 3] == ["SYSTEM", "VERSIONING"]
        for at in range(len(words) - 2)
    )


def _lets_history_go(words: list[str]) -> bool:
    return any(words[at : at + 3] == ["DROP", "SYSTEM", "VERSIONING"] for at in range(len(words)))


class _Names:
    """Names of tables in a list of tokens."""

    def __init__(self, schema: str, tokens: list[tuple[str, str]], *, folds: bool) -> None:
        self._schema = schema
        self._tokens = tokens
        self._folds = folds

    def listed(self, at: int) -> tuple[TableId, ...]:
        """Return the names from a token on that commas are between."""
        found = []
        while True:
            table, at = self.one(at)
            found.append(table)
            if self.sign(at) != ",":
                return tuple(table for table in found if table.name)
            at += 1

    def renamed(self, at: int) -> tuple[TableId, ...]:
        """Return old and new name in turn, from a token on, of pairs that commas are between."""
        found: list[TableId] = []
        while True:
            old, at = self.one(at)
            while at < len(self._tokens) and self._word(at) != "TO":
                at += 1
            new, at = self.one(at + 1)
            found += (old, new)
            if self.sign(at) != ",":
                return tuple(found)
            at += 1

    def one(self, at: int) -> tuple[TableId, int]:
        """Return the name at a token, and the token behind it; an empty name where none is."""
        parts: list[str] = []
        while at < len(self._tokens) and self._tokens[at][0] in ("word", "quoted", "double"):
            part = self._tokens[at][1]
            parts.append(part.lower() if self._folds else part)
            at += 1
            if self.sign(at) != ".":
                break
            at += 1
        if not parts:
            return TableId(self._schema, ""), at
        return TableId(parts[-2] if len(parts) > 1 else self._schema, parts[-1]), at

    def sign(self, at: int) -> str:
        """Return the sign at a token, empty where there is none."""
        there = at < len(self._tokens) and self._tokens[at][0] == "sign"
        return self._tokens[at][1] if there else ""

    def _word(self, at: int) -> str:
        kind, text = self._tokens[at]
        return text.upper() if kind == "word" else ""


@functools.cache
def _token(*, escapes: bool, ansi: bool) -> re.Pattern[str]:
    """Return what a token is to a session."""
    text = _ESCAPING if escapes else _PLAIN
    double = _PLAIN if ansi else text
    token = _TOKEN.format(double=double.format('"'), text=text.format("'"))
    return re.compile(token, re.VERBOSE | re.DOTALL)


def _tokens(query: Query) -> Iterator[tuple[str, str]]:
    """Yield words, names and signs; what stands in a comment that servers execute counts."""
    for match in _token(escapes=query.escapes, ansi=query.ansi).finditer(query.sql):
        kind = match.lastgroup
        if kind == "quoted":
            yield kind, match["quoted"].replace("``", "`")
        elif kind == "double":
            yield kind, match["double"].replace('""', '"')
        elif kind in ("word", "sign", "text"):
            yield kind, match[kind]
