"""From the text of a condition to its tree.

``docs/relay_protocol.md`` describes the language. It has columns, literals and a fixed set of operators and nothing
else: no calls, no attributes, no names but those of columns. Length and depth are bounded, so no text costs much.

    condition  := all (or all)*
    all        := negated (and negated)*
    negated    := not negated | test
    test       := sum [compare sum | is [not] null | [not] (in (literal, …) | between sum and sum | like text)]
    sum        := product ((+ | -) product)*
    product    := signed (* signed)*
    signed     := - signed | literal | column | ( condition )
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import NamedTuple, NoReturn

from headrace.wire.filters.faults import bad_filter
from headrace.wire.filters.tree import (
    And,
    Arithmetic,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Negative,
    Node,
    Not,
    Or,
)

__all__ = ["MOST_CHARACTERS", "MOST_DEPTH", "parse_condition"]

MOST_CHARACTERS = 4_096
MOST_DEPTH = 32
"""Parentheses and operators above one another; ``and`` and ``or`` of any number of parts count once."""

_MOST_DIGITS = 38
_WORDS = {"true": True, "false": False, "null": None}
_KEYWORDS = {*_WORDS, "and", "or", "not", "in", "between", "is", "like", "date", "timestamp"}
_COMPARE = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>\d+(?:\.\d+)?)
  | (?P<text>'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")+")
  | (?P<word>[^\W\d]\w*)
  | (?P<sign><>|!=|<=|>=|[=<>+*(),-])
    """,
    re.VERBOSE | re.ASCII,
)


class _Token(NamedTuple):
    """``kind``: number, text, column, keyword, sign or end; ``text``: as it counts; ``at``: its character, from 1."""

    kind: str
    text: str
    at: int


def parse_condition(text: str, place: str) -> Node:
    """Return the tree of a condition.

    Args:
        text: the condition.
        place: the part of the filter that it is, for the error.

    Raises:
        BadFilter: the text is no condition; names the character.
    """
    if len(text) > MOST_CHARACTERS:
        raise bad_filter(place, f"{len(text):,} characters, more than {MOST_CHARACTERS:,}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise bad_filter(f"{place}, character {error.start + 1}", "this is no Unicode") from error
    tree = _Parser(_tokens(text, place), place).parse()
    _refuse_deep(tree, place)
    return tree


def _refuse_deep(tree: Node, place: str) -> None:
    """Refuse a tree that is higher than `MOST_DEPTH`: a long sum is deep without any parentheses."""
    level: list[Node] = [tree]
    for _ in range(MOST_DEPTH):
        level = [below for node in level for below in _operands(node)]
    if level:
        what = f"more than {MOST_DEPTH} operators above one another"
        raise bad_filter(f"{place}, character {level[0].at}", what)


def _operands(node: Node) -> tuple[Node, ...]:
    if isinstance(node, And | Or):
        return node.parts
    if isinstance(node, Arithmetic | Comparison):
        return (node.left, node.right)
    if isinstance(node, Literal | Name):
        return ()
    return (node.operand,)


def _tokens(text: str, place: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise bad_filter(f"{place}, character {at + 1}", _unread(text[at]))
        kind, found = str(match.lastgroup), match.group()
        if kind != "space":
            tokens.append(_token(kind, found, at + 1))
        at = match.end()
    return [*tokens, _Token("end", "", len(text) + 1)]


def _unread(character: str) -> str:
    if character in "'\"":
        return "a quote is not closed"
    return "no token of a condition begins here"


def _token(kind: str, found: str, at: int) -> _Token:
    if kind == "word":
        lowered = found.lower()
        return (
            _Token("keyword", lowered, at) if lowered in _KEYWORDS else _Token("column", found, at)
        )
    if kind == "quoted":
        return _Token("column", found[1:-1].replace('""', '"'), at)
    if kind == "text":
        return _Token("text", found[1:-1].replace("''", "'"), at)
    return _Token(kind, found, at)


@dataclass(slots=True)
class _Parser:
    """Reads the tokens once, from left to right; ``depth`` counts the rules that are open."""

    tokens: list[_Token]
    place: str
    next: int = 0
    depth: int = 0

    def parse(self) -> Node:
        tree = self._condition()
        if self._token.kind != "end":
            self._refuse("the condition ends before this")
        return tree

    # -- rules, in the order of the grammar ---------------------------------------------------------

    def _condition(self) -> Node:
        self._deeper()
        at, parts = self._token.at, [self._all()]
        while self._taken("keyword", "or"):
            parts.append(self._all())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else Or(tuple(parts), at)

    def _all(self) -> Node:
        at, parts = self._token.at, [self._negated()]
        while self._taken("keyword", "and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else And(tuple(parts), at)

    def _negated(self) -> Node:
        at = self._token.at
        if not self._taken("keyword", "not"):
            return self._test()
        self._deeper()
        operand = self._negated()
        self.depth -= 1
        return Not(operand, at)

    def _test(self) -> Node:
        left, at = self._sum(), self._token.at
        if self._token.kind == "sign" and self._token.text in _COMPARE:
            op = _COMPARE[self._advance().text]
            return Comparison(op, left, self._sum(), at)
        if self._taken("keyword", "is"):
            negated = self._taken("keyword", "not")
            self._expect("keyword", "null")
            return _maybe_not(negated, IsNull(left, at))
        negated = self._taken("keyword", "not")
        if self._taken("keyword", "in"):
            return _maybe_not(negated, In(left, self._items(), at))
        if self._taken("keyword", "between"):
            low = self._sum()
            self._expect("keyword", "and")
            ends = (Comparison(">=", left, low, at), Comparison("<=", left, self._sum(), at))
            return _maybe_not(negated, And(ends, at))
        if self._taken("keyword", "like"):
            return _maybe_not(negated, Like(left, self._pattern(), at))
        if negated:
            self._refuse("in, between or like is expected behind not")
        return left

    def _items(self) -> tuple[Literal, ...]:
        self._expect("sign", "(")
        items = [self._item()]
        while self._taken("sign", ","):
            items.append(self._item())
        self._expect("sign", ")")
        return tuple(items)

    def _item(self) -> Literal:
        at = self._token.at
        item = self._signed()
        if not isinstance(item, Literal):
            self._refuse("in takes literals only", at)
        return item

    def _pattern(self) -> str:
        if self._token.kind != "text":
            self._refuse("like takes a text literal")
        token = self._advance()
        if len(re.findall(r"\\*\Z", token.text)[0]) % 2:
            self._refuse("the pattern ends with its escape", token.at)
        return token.text

    def _sum(self) -> Node:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> Node:
        return self._chain(("*",), self._signed)

    def _chain(self, ops: tuple[str, ...], operand: Callable[[], Node]) -> Node:
        left = operand()
        while self._token.kind == "sign" and self._token.text in ops:
            token = self._advance()
            left = Arithmetic(token.text, left, operand(), token.at)
        return left

    def _signed(self) -> Node:
        token = self._advance()
        if token[:2] == ("sign", "-"):
            self._deeper()
            operand = self._signed()
            self.depth -= 1
            value = operand.value if isinstance(operand, Literal) else None
            if isinstance(value, int | Decimal) and not isinstance(value, bool):
                return Literal(-value, token.at)
            return Negative(operand, token.at)
        if token[:2] == ("sign", "("):
            inner = self._condition()
            self._expect("sign", ")")
            return inner
        if token.kind == "column":
            return Name(token.text, token.at)
        return self._literal(token)

    def _literal(self, token: _Token) -> Literal:
        if token.kind == "number":
            return Literal(self._number(token), token.at)
        if token.kind == "text":
            return Literal(token.text, token.at)
        if token.kind == "keyword" and token.text in _WORDS:
            return Literal(_WORDS[token.text], token.at)
        if token.kind == "keyword" and token.text in ("date", "timestamp"):
            return self._time(token)
        self._refuse("a column, a literal or ( is expected", token.at)

    def _number(self, token: _Token) -> int | Decimal:
        if len(token.text) > _MOST_DIGITS:
            self._refuse(f"a number of more than {_MOST_DIGITS} digits", token.at)
        return Decimal(token.text) if "." in token.text else int(token.text)

    def _time(self, keyword: _Token) -> Literal:
        if self._token.kind != "text":
            self._refuse(f"a text is expected behind {keyword.text}")
        token = self._advance()
        try:
            if keyword.text == "date":
                return Literal(date.fromisoformat(token.text), keyword.at)
            moment = datetime.fromisoformat(token.text)
            return Literal(moment.astimezone(UTC) if moment.tzinfo else moment, keyword.at)
        except (ValueError, OverflowError):
            self._refuse(f"no {keyword.text} in ISO 8601", token.at)

    # -- tokens --------------------------------------------------------------------------------------

    @property
    def _token(self) -> _Token:
        return self.tokens[self.next]

    def _advance(self) -> _Token:
        """Return the token at hand and go on; nothing goes on behind the end."""
        token = self._token
        if token.kind == "end":
            self._refuse("the condition ends too early")
        self.next += 1
        return token

    def _taken(self, kind: str, text: str) -> bool:
        """Go on and return true when the token at hand is this one."""
        found = self._token[:2] == (kind, text)
        self.next += found
        return found

    def _expect(self, kind: str, text: str) -> None:
        if not self._taken(kind, text):
            self._refuse(f"{text} is expected")

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            self._refuse(f"more than {MOST_DEPTH} parentheses and signs inside one another")

    def _refuse(self, what: str, at: int = 0) -> NoReturn:
        raise bad_filter(f"{self.place}, character {at or self._token.at}", what)


def _maybe_not(negated: bool, node: Node) -> Node:
    return Not(node, node.at) if negated else node
