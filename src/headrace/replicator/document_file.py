"""What a YAML or JSON file holds, before anybody judges it: names, each once, and values that are there.

A name that stands twice would hide what came first, a mask say; both forms leave open which of both counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from headrace.errors import ConfigError

__all__ = ["MOST_LEVELS", "is_too_deep", "parse"]

MOST_LEVELS = 50
"""Sections inside one another; what goes deeper is no configuration, and could not be walked through."""

_MOST_VALUES = 1_000_000
"""Values of one document; a replicator of ten thousand tables, each with settings of its own, has a tenth."""
_MERGE = "tag:yaml.org,2002:merge"
_SHOWN_LETTERS = 80


class _Repeated(Exception):
    """A name stands twice in a section; the text says which, and where that is known."""


class _Loader(yaml.SafeLoader):
    """PyYAML's, which takes neither a name twice nor a number or date that cannot be."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here and not where values are made: what is merged into a section is not in it yet.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            name = str(self.construct_object(key))
            if name in seen:
                line = key.start_mark.line + 1
                raise _Repeated(f"{name[:_SHOWN_LETTERS]} stands twice, again at line {line}")
            seen.add(name)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # Such as of 2026-02-30; what Python says has the value in it.
            raise yaml.constructor.ConstructorError(problem_mark=node.start_mark) from None


def parse(path: Path) -> dict[str, Any]:
    """Return what a file holds, references unresolved.

    Raises:
        ConfigError: it cannot be read, or is no mapping in YAML or JSON.
    """
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        # Spark, above all, gives no other names to its files.
        raise ConfigError(
            f"{path}: its name, or that of a folder above it, is no text in UTF-8.",
            next_step="rename it, or move the file elsewhere.",
        ) from None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8 text'}).",
            next_step="name an existing YAML or JSON file; the README shows the smallest one. A control plane's "
            "replicator goes by its name where the command says FILE|NAME; for all others: headrace api.",
        ) from error
    form = "JSON" if path.suffix == ".json" else "YAML"
    try:
        document = _loaded(text, form)
    except _Repeated as repeated:
        raise ConfigError(
            f"{path}: {repeated}.", next_step="leave one of both, or put both together."
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        # The parsers' own messages quote the line, which may hold a secret.
        raise ConfigError(
            f"{path}: not valid {form}{_place(error)}.", next_step="correct the syntax there."
        ) from None
    except RecursionError:
        raise _too_deep(path) from None
    if not isinstance(document, dict):
        raise ConfigError(
            f"{path}: holds no mapping of names to values.",
            next_step="start from the smallest form: name, source and target; see the README.",
        )
    if is_too_deep(document):
        raise _too_deep(path)
    if _weight(document, {}) > _MOST_VALUES:
        raise ConfigError(
            f"{path}: has more than {_MOST_VALUES:,} values once its aliases are written out.",
            next_step="write less of it, or without aliases that name each other.",
        )
    return document


def is_too_deep(document: Any) -> bool:
    """Whether a document has more than `MOST_LEVELS`; one that holds itself has."""
    level, levels = [document], 0
    while level := [one for one in level if isinstance(one, dict | list | tuple)]:
        levels += 1
        if levels > MOST_LEVELS:
            return True
        # By identity: what aliases name many times is looked at once a level.
        level = list({id(inner): inner for one in level for inner in _inner(one)}.values())
    return False


def _weight(value: Any, known: dict[int, int]) -> int:
    """Return how many values there are in one that is not too deep, aliases written out."""
    if not isinstance(value, dict | list | tuple):
        return 1
    if id(value) not in known:
        known[id(value)] = 1 + sum(_weight(inner, known) for inner in _inner(value))
    return known[id(value)]


def _inner(value: Any) -> Iterator[Any]:
    yield from value.values() if isinstance(value, dict) else value


def _loaded(text: str, form: str) -> Any:
    if form == "JSON":
        return json.loads(text, object_pairs_hook=_once)
    return yaml.load(text, _Loader)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Repeated(f"{name[:_SHOWN_LETTERS]} stands twice in one section")
        found[name] = value
    return found


def _too_deep(path: Path) -> ConfigError:
    return ConfigError(
        f"{path}: holds itself, or more than {MOST_LEVELS} sections inside one another.",
        next_step="take out the alias that names what it stands in, or the inner ones.",
    )


def _place(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f" at line {error.lineno}, column {error.colno}"
    mark = getattr(error, "problem_mark", None)
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
