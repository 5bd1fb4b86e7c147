"""Sources and targets described as data, so that a form can be drawn for each.

Out of the configuration's own models: names, kinds, bounds, defaults and the sentences of their docstrings. A secret
is marked as one, and so are the properties of the design that stand for one URL of ours.

Source: docs/requirements.md, C71 and C110.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from headrace.replicator.seed.plugins import ARTIFACT, Plugin, plugins

__all__ = ["plugin_list"]

_CONNECTION: tuple[tuple[str, str, bool, bool, dict[str, Any]], ...] = (
    ("host", "name or address of the server.", True, False, {"type": "string"}),
    ("port", "where it listens.", False, False, {"type": "integer", "default": 5432}),
    ("database", "its name.", True, False, {"type": "string"}),
    ("user", "the role.", False, False, {"type": "string"}),
    ("password", "of the role; write ``${secure(name)}``.", False, True, {"type": "string"}),
)
"""Properties that stand for ``url``: name, description, whether they are required and secret, and their schema."""


def plugin_list() -> list[dict[str, Any]]:
    """Return all sources and targets: name, type, artifact, description, and properties each with a JSON schema."""
    return [
        {
            "name": plugin.name,
            "type": plugin.type,
            "artifact": dict(ARTIFACT),
            "description": _summary(plugin.model),
            "properties": _properties(plugin),
        }
        for plugin in plugins()
    ]


def _properties(plugin: Plugin) -> list[dict[str, Any]]:
    schema = plugin.model.model_json_schema()
    told = _told(plugin.model)
    found = []
    for name in plugin.fields:
        field = plugin.model.model_fields[name]
        if name == "url":
            found += [_connection(*one) for one in _CONNECTION]
        found.append(
            {
                "name": name,
                "label": _label(name),
                "description": told.get(name, ""),
                # A URL is one way to name the server, its parts are the other.
                "required": field.is_required() and name not in ("url", "tables"),
                "secret": _is_secret(field),
                "insteadOf": [part[0] for part in _CONNECTION] if name == "url" else [],
                "schema": _inlined(schema["properties"][name], schema.get("$defs", {})),
            }
        )
    return found


def _connection(
    name: str, description: str, required: bool, secret: bool, schema: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "label": _label(name),
        "description": description,
        "required": required,
        "secret": secret,
        "insteadOf": [],
        "schema": schema,
    }


def _inlined(value: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema that refers to nothing outside itself."""
    if isinstance(value, list):
        return [_inlined(inner, definitions) for inner in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        name = str(value["$ref"]).rpartition("/")[2]
        return _inlined(definitions[name], definitions)
    return {
        key: _inlined(inner, definitions)
        for key, inner in value.items()
        if key != "title" or not isinstance(inner, str)
    }


def _is_secret(field: FieldInfo) -> bool:
    return "SecretStr" in str(field.annotation) or field.annotation is SecretStr


def _summary(model: type[BaseModel]) -> str:
    return (inspect.getdoc(model) or "").partition("\n")[0]


def _told(model: type[BaseModel]) -> dict[str, str]:
    """Return what the docstrings of a model, and of those it comes from, say of its fields."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        text = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
        name = ""
        for line in text.splitlines():
            if match := re.fullmatch(r" {4}(\w+): (.+)", line):
                name = match[1]
                found[name] = match[2]
            elif name and line.startswith(" " * 8):
                found[name] += f" {line.strip()}"
            else:
                name = ""
    return found


def _label(name: str) -> str:
    words = name.removesuffix("_s").replace("_", " ")
    unit = " (seconds)" if name.endswith("_s") else ""
    return f"{words[:1].upper()}{words[1:]}{unit}"
