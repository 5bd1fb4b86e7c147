"""The plugins that stages name: our sources and targets, with the properties that they take.

Source: docs/requirements.md, C71.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from headrace import __version__
from headrace.replicator.config_file import SECTIONS
from headrace.replicator.section import Section

__all__ = ["ARTIFACT", "Plugin", "Side", "named", "plugins", "side_of", "value_of"]

Side = Literal["source", "target"]

ARTIFACT: Mapping[str, str] = {"name": "headrace", "version": __version__, "scope": "SYSTEM"}
"""What all of our plugins come in."""

_SPELLINGS: dict[str, Side] = {
    "cdcsource": "source",
    "cdcorigin": "source",
    "cdctarget": "target",
    "cdcdestination": "target",
}
_ALIASES = {"postgresql": "postgres", "mariadb": "mysql"}


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin.

    Attributes:
        side: of a replicator.
        name: that stages give.
        model: of its section of our configuration.
    """

    side: Side
    name: str
    model: type[Section]

    @property
    def type(self) -> str:
        """The type that stages give."""
        return "cdcSource" if self.side == "source" else "cdcTarget"

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of its section, but for the kind, which is the plugin's own name."""
        return tuple(name for name in self.model.model_fields if name != "type")

    def field_of(self, name: str) -> str:
        """Return the field that a property means, in either spelling; empty where there is none."""
        plain = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
        return next((field for field in (name, plain) if field in self.fields), "")


def plugins() -> tuple[Plugin, ...]:
    """Return all plugins, sources first."""
    return tuple(
        Plugin(side, name, model) for side, models in _sides() for name, model in models.items()
    )


def _sides() -> tuple[tuple[Side, Mapping[Any, Any]], ...]:
    return (("source", SECTIONS["source"]), ("target", SECTIONS["target"]))


def side_of(type_: str) -> Side | None:
    """Return the side of a stage's type, however it is spelt; None where it is neither."""
    return _SPELLINGS.get(re.sub(r"[^a-z]", "", type_.lower()))


def named(side: Side, name: str) -> Plugin | None:
    """Return the plugin of a name, None where there is none."""
    plain = name.strip().lower()
    plain = _ALIASES.get(plain, plain)
    return next((p for p in plugins() if (p.side, p.name) == (side, plain)), None)


def value_of(plugin: Plugin, field: str, value: Any) -> Any:
    """Return a property's value as its field takes it: lists and sections may be written as text.

    Numbers and truth values stay text; the configuration itself reads them.
    """
    if not isinstance(value, str):
        return value
    kinds = _kinds(plugin.model.model_fields[field].annotation)
    if value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    if tuple in kinds and str not in kinds:
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _kinds(annotation: Any) -> set[Any]:
    """Return what an annotation holds, alone or in a union."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin is Literal:
        return {str}
    if origin in (tuple, dict, None):
        return {origin or annotation}
    return set().union(*(_kinds(inner) for inner in get_args(annotation)))
