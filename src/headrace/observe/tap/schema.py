"""The JSON Schemas of the lines, made from the classes of `headrace.observe.tap.events`."""

from __future__ import annotations

import types
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from headrace.observe.tap.events import KINDS, OUT_OF_BAND, VERSION, Event, Key

__all__ = ["FOLDER", "UNION", "schema_files", "schema_of"]

FOLDER = Path(__file__).parent / "schemas"
"""Where the schemas lie."""
UNION = "tap-event.schema.json"
"""The schema of any line."""

_DRAFT = "http://json-schema.org/draft-07/schema#"


def schema_files() -> dict[str, dict[str, Any]]:
    """Return every schema by its path below `FOLDER`."""
    files = {f"events/{kind}.schema.json": schema_of(event) for kind, event in KINDS.items()}
    union = {
        "$schema": _DRAFT,
        "title": "TapEvent",
        "description": "Any line of the tap. A reader skips kinds that it does not know.",
        "oneOf": [{"$ref": path} for path in files],
    }
    return {UNION: union, **files}


def schema_of(event: type[Event]) -> dict[str, Any]:
    """Return the schema of one kind; open, since optional fields may come without a new version."""
    aside = event in OUT_OF_BAND
    properties: dict[str, Any] = {
        "v": {"description": "Version of the contract.", "const": VERSION},
        "seq": {"description": "No number: out of band.", "type": "null"}
        if aside
        else {
            "description": "Number of the event in its run, dense: a gap means that some are missing.",
            "type": "integer",
            "minimum": 0,
        },
        "ts": {
            "description": "When it was told, UTC with microseconds.",
            "type": "string",
            "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$",
        },
        "run_id": {
            "description": "Run of the capture; another one means: begin a new picture.",
            "type": "string",
            "minLength": 1,
        },
        "source_id": {"description": "Name of the replicator.", "type": "string", "minLength": 1},
        "kind": {"const": event.kind},
    }
    required = list(properties)
    hints = get_type_hints(event, include_extras=True)
    for item in fields(event):
        name = item.name.rstrip("_")
        properties[name], optional = _property(hints[item.name])
        if not optional or item.default is MISSING:
            required.append(name)
    return {
        "$schema": _DRAFT,
        "title": event.__name__,
        "description": (event.__doc__ or "").strip(),
        "type": "object",
        "properties": properties,
        "required": required,
    }


def _property(hint: Any) -> tuple[dict[str, Any], bool]:
    """Return the schema of a field, and whether it may be left out."""
    description = ""
    if get_origin(hint) is Annotated:
        hint, description = get_args(hint)
    optional = get_origin(hint) in (Union, types.UnionType)
    if optional:
        hint = next(part for part in get_args(hint) if part is not type(None))
    found = _type(hint)
    return ({"description": description, **found} if description else found), optional


def _type(hint: Any) -> dict[str, Any]:
    if hint == Key or hint is str:
        return {"type": "string"}
    if hint is bool:
        return {"type": "boolean"}
    if hint is int:
        return {"type": "integer", "minimum": 0}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if get_origin(hint) is list:
        return {"type": "array", "items": _type(get_args(hint)[0])}
    raise TypeError(f"a field of a type that no schema is known for: {hint}")
