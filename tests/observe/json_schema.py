"""Checks values against JSON Schemas, those of the tap first of all: the few words of draft 7 that they use alone."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from headrace.observe.tap.schema import FOLDER, UNION

_WORDS = {
    "$schema", "title", "description", "type", "properties", "required", "const", "enum", "pattern",
    "minimum", "minLength", "items", "oneOf", "$ref", "additionalProperties",
}  # fmt: skip
_TYPES: dict[str, Any] = {
    "string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "null": type(None),
}  # fmt: skip


@cache
def stored(path: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((FOLDER / path).read_text(encoding="utf-8"))
    return value


def faults(value: Any, schema: dict[str, Any], place: str = "") -> list[str]:
    """Return what is wrong with a value; a word of the schema that is not known here is a fault too."""
    found = [f"{place}: unknown word {word}" for word in schema.keys() - _WORDS]
    if "$ref" in schema:
        return faults(value, stored(schema["$ref"]), place)
    if "oneOf" in schema:
        fits = [s for s in schema["oneOf"] if not faults(value, s, place)]
        return [] if len(fits) == 1 else [f"{place}: fits {len(fits)} of oneOf"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{place}: is not {schema['const']}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: {value!r} is none of {schema['enum']}")
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (kind == "integer" and value is True)):
        return [*found, f"{place}: {value!r} is no {kind}"]
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{place}: {value!r} does not match")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{place}: {value!r} is too small")
    if len(value) < schema["minLength"] if "minLength" in schema else False:
        found.append(f"{place}: too short")
    if kind == "array":
        for number, item in enumerate(value):
            found += faults(item, schema.get("items", {}), f"{place}[{number}]")
    if kind == "object":
        required = schema.get("required", ())
        found += [f"{place}: misses {name}" for name in required if name not in value]
        for name, item in value.items():
            if name in schema["properties"]:
                found += faults(item, schema["properties"][name], f"{place}.{name}")
            elif schema.get("additionalProperties"):
                found += faults(item, schema["additionalProperties"], f"{place}.{name}")
            elif schema.get("additionalProperties") != {}:
                # The schemas are open for readers; what we write ourselves stands in them.
                found.append(f"{place}: {name} stands in no schema")
    return found


def faults_of_line(text: str) -> list[str]:
    """Return what is wrong with one line of a tap: against the schema of its kind, and its order."""
    value = json.loads(text)
    path = f"events/{value.get('kind')}.schema.json"
    if not (FOLDER / path).exists():
        return [f"no schema for kind {value.get('kind')}"]
    found = faults(value, stored(path))
    if list(value)[:6] != ["v", "seq", "ts", "run_id", "source_id", "kind"]:
        found.append("the envelope is not in order")
    if any(item is None for name, item in value.items() if name != "seq"):
        found.append("an optional field is null instead of left out")
    return found


def assert_valid(lines: list[str]) -> None:
    """Check every line, and that the numbers are dense."""
    assert lines
    for text in lines:
        assert faults_of_line(text) == [], text
    values = [json.loads(text) for text in lines]
    # Against the union of all kinds too, which takes long: one of each is enough.
    for value in {value["kind"]: value for value in values}.values():
        assert faults(value, stored(UNION)) == [], value
    numbers: dict[str, list[int]] = {}
    for value in values:
        if value["seq"] is not None:
            numbers.setdefault(value["run_id"], []).append(value["seq"])
    for run in numbers.values():
        assert run == list(range(run[0], run[0] + len(run)))


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
