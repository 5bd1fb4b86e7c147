"""The API's own document: its operations, and whether an answer is what it says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from headrace.replicator.api.app import api
from headrace.replicator.control.plane import ControlPlane

_SILENT = {"title", "description", "default", "examples", "format", "maxLength", "pattern"}
"""Words that are for people, or that bodies alone are checked for."""
_TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list,
    "object": dict, "null": type(None),
}  # fmt: skip


@cache
def document() -> dict[str, Any]:
    """Return ``/openapi.json``; no page looks at its control plane before it is asked."""
    return api(cast(ControlPlane, None)).openapi()


@dataclass(frozen=True)
class Operation:
    """One operation of the document."""

    name: str
    method: str
    path: str
    takes_body: bool
    refusals: tuple[int, ...]


@cache
def operations() -> dict[str, Operation]:
    """Return every operation by its name."""
    found = {}
    for path, methods in document()["paths"].items():
        for method, said in methods.items():
            statuses = sorted(int(status) for status in said["responses"])
            found[said["operationId"]] = Operation(
                said["operationId"],
                method.upper(),
                path,
                "requestBody" in said,
                tuple(status for status in statuses if status >= 400),
            )
    return found


def said(operation: Operation, status: int) -> dict[str, Any]:
    """Return the forms of an answer, by their media types."""
    answers = document()["paths"][operation.path][operation.method.lower()]["responses"]
    found: dict[str, Any] = answers[str(status)].get("content", {})
    return found


def faults(operation: Operation, status: int, answer: Any) -> list[str]:
    """Return in what an answer differs from the document; an undocumented status is a fault."""
    said = document()["paths"][operation.path][operation.method.lower()]["responses"]
    if str(status) not in said:
        return [f"status {status} is not documented"]
    content = said[str(status)].get("content", {})
    if not content:
        return [] if answer is None else ["an answer where none is documented"]
    return list(_faults(answer, content["application/json"]["schema"], "answer"))


def _faults(value: Any, schema: dict[str, Any], place: str) -> list[str]:
    if "$ref" in schema:
        named = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return _faults(value, named, place)
    if "anyOf" in schema:
        tried = [_faults(value, one, place) for one in schema["anyOf"]]
        return [] if [] in tried else [f"{place}: {value!r} fits none of {len(tried)}: {tried}"]
    known = {
        "type", "properties", "required", "items", "additionalProperties", "enum", "const",
    }  # fmt: skip
    found = [f"{place}: unknown word {word}" for word in schema.keys() - known - _SILENT]
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (kind != "boolean" and value is True)):
        return [*found, f"{place}: {value!r} is no {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: {value!r} is none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{place}: {value!r} is not {schema['const']}")
    if kind == "array":
        for number, item in enumerate(value):
            found += _faults(item, schema["items"], f"{place}[{number}]")
    if kind == "object":
        properties = schema.get("properties", {})
        found += [f"{place}: misses {name}" for name in properties.keys() - value.keys()]
        others = schema.get("additionalProperties", False)
        for name, item in value.items():
            if name in properties:
                found += _faults(item, properties[name], f"{place}.{name}")
            elif isinstance(others, dict):
                found += _faults(item, others, f"{place}.{name}")
            elif others is not True:
                found.append(f"{place}: {name} stands in no schema")
    return found
