"""References in the design's JSON, and what they are called in ours.

``${secure(name)}`` stands for ``${env:NAME}``: letters become capitals, every other character than a letter or a digit
of ASCII an underscore, and a name that would begin with a digit gets one ahead of it. Inside a URL the value is
escaped: ``${urlenv:NAME}``. Other macros stay as they are, and are named as unresolved when the configuration is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

__all__ = [
    "collisions",
    "in_url",
    "is_reference",
    "ours",
    "secure_names",
    "theirs",
    "theirs_of_url",
    "variable_of",
]

_SECURE = re.compile(r"\$\{\s*secure\(\s*([^)]*?)\s*\)\s*\}")
_OURS = re.compile(r"\$\{(?:env|urlenv):([A-Za-z_][A-Za-z0-9_]*)\}")
_REFERENCE = re.compile(r"\$\{[^}]*\}")


def variable_of(name: str) -> str:
    """Return the environment variable that holds a secret."""
    variable = re.sub(r"[^A-Z0-9]", "_", name.upper())
    return f"_{variable}" if variable[:1].isdigit() else variable


def ours(value: Any) -> Any:
    """Return a value with all secrets below it under our names; everything else as it was."""
    if isinstance(value, dict):
        return {key: ours(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [ours(inner) for inner in value]
    if isinstance(value, str):
        return _SECURE.sub(lambda m: f"${{env:{variable_of(m[1])}}}", value)
    return value


def theirs(value: Any) -> Any:
    """Return a value with all of our references below it in the design's words; `ours` brings them back."""
    if isinstance(value, dict):
        return {key: theirs(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [theirs(inner) for inner in value]
    if isinstance(value, str):
        return _OURS.sub(lambda m: f"${{secure({m[1]})}}", value)
    return value


def in_url(text: str) -> str:
    """Return a text as a part of a URL: references so that their values are escaped, everything else escaped here."""
    parts, place = [], 0
    named = re.sub(r"\$\{env:", "${urlenv:", str(ours(text)))
    for match in _REFERENCE.finditer(named):
        parts += [quote(named[place : match.start()], safe=""), match[0]]
        place = match.end()
    return "".join([*parts, quote(named[place:], safe="")])


def theirs_of_url(text: str) -> str:
    """Return what `in_url` was given."""
    parts, place = [], 0
    for match in _REFERENCE.finditer(text):
        parts += [unquote(text[place : match.start()]), str(theirs(match[0]))]
        place = match.end()
    return "".join([*parts, unquote(text[place:])])


def is_reference(text: str) -> bool:
    """Return whether a text is a reference and nothing else."""
    return bool(_REFERENCE.fullmatch(text.strip()))


def secure_names(value: Any) -> Iterator[str]:
    """Yield the names of all secrets below a value."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from secure_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from secure_names(inner)
    elif isinstance(value, str):
        yield from (match[1] for match in _SECURE.finditer(value))


def collisions(value: Any) -> dict[str, list[str]]:
    """Return the variables that would hold several secrets, with the names of these."""
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys(secure_names(value)):
        names.setdefault(variable_of(name), []).append(name)
    return {variable: held for variable, held in names.items() if len(held) > 1}
