"""What every section of a configuration file is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

from pydantic import BaseModel, ConfigDict, SecretStr, field_validator, model_validator

__all__ = ["Section"]


_MOST = 2**53
_LEAST = 1e-6


class Section(BaseModel):
    """A part of the file: unknown keys are refused, values never change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        known = cls.model_fields
        return {
            name: _truth_as_text(value, known[name].annotation) if name in known else value
            for name, value in given.items()
        }

    @field_validator("*")
    @classmethod
    def _can_be_used(cls, value: object) -> object:
        if isinstance(value, Path):
            _refuse_what_is_no_path(value)
        elif isinstance(value, int | float):
            _refuse_what_nobody_means(value)
        elif isinstance(value, str | SecretStr):
            _refuse_what_is_no_text(value if isinstance(value, str) else value.get_secret_value())
        return value


def _truth_as_text(value: object, annotation: object) -> object:
    """Return true and false as words where a number belongs, which are refused there; as they are, they are 1 and 0."""
    if isinstance(value, dict) and get_origin(annotation) is dict:
        kind = get_args(annotation)[1]
        return {name: _truth_as_text(inner, kind) for name, inner in value.items()}
    if not isinstance(value, bool):
        return value
    kinds = set(_kinds(annotation))
    return str(value).lower() if bool not in kinds and kinds & {int, float} else value


def _kinds(annotation: object) -> Iterator[object]:
    yield annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)


def _refuse_what_nobody_means(number: float) -> None:
    """Refuse numbers with which sums, clocks and the system's calls come to an end."""
    if not (number == 0 or _LEAST <= abs(number) <= _MOST):
        raise ValueError(f"0, or a number between {_LEAST:f} and {_MOST:,}")


def _refuse_what_is_no_text(text: str) -> None:
    """Refuse what is cut off at a zero byte, or not sent at all, wherever it is used."""
    try:
        if b"\0" not in text.encode():
            return
    except UnicodeEncodeError:
        pass
    raise ValueError("text without zero bytes, in characters that UTF-8 has")


def _refuse_what_is_no_path(path: Path) -> None:
    try:
        path.expanduser()
        if b"\0" not in str(path).encode():
            return
    except UnicodeEncodeError:
        pass
    except RuntimeError:
        raise ValueError("a path that begins with no user, or with one of this machine") from None
    raise ValueError("a path without zero bytes, in characters that UTF-8 has")
