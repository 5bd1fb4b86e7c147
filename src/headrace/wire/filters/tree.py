"""What a condition says, as a tree: values and statements about them.

A node knows the character at which it stands in the text, from 1, so that whoever finds it wrong later can name the
place. Equal texts give equal trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias

__all__ = [
    "And",
    "Arithmetic",
    "Comparison",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Name",
    "Negative",
    "Node",
    "Not",
    "Or",
    "Value",
]

Value: TypeAlias = int | Decimal | str | bool | date | datetime | None


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that is written out; a `datetime` with an offset is an instant, one without is local."""

    value: Value
    at: int


@dataclass(frozen=True, slots=True)
class Name:
    """The value of a column."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Negative:
    """``- operand``."""

    operand: Node
    at: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left op right`` with ``+ - *``."""

    op: str
    left: Node
    right: Node
    at: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left op right`` with ``= <> < <= > >=``."""

    op: str
    left: Node
    right: Node
    at: int


@dataclass(frozen=True, slots=True)
class In:
    """``operand in (items)``."""

    operand: Node
    items: tuple[Literal, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Like:
    r"""``operand like 'pattern'``; in the pattern ``%``, ``_`` and the escape ``\``."""

    operand: Node
    pattern: str
    at: int


@dataclass(frozen=True, slots=True)
class IsNull:
    """``operand is null``."""

    operand: Node
    at: int


@dataclass(frozen=True, slots=True)
class Not:
    """``not operand``."""

    operand: Node
    at: int


@dataclass(frozen=True, slots=True)
class And:
    """``part and part …``."""

    parts: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Or:
    """``part or part …``."""

    parts: tuple[Node, ...]
    at: int


Node: TypeAlias = (
    Literal | Name | Negative | Arithmetic | Comparison | In | Like | IsNull | Not | And | Or
)
