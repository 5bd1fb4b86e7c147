"""What OpenLineage asks of the events and facets that headrace sends, in the words of `tests.observe.json_schema`.

Stricter than the specification: a field that it would leave open is a fault here, unless we send it.

Source: OpenLineage 2-0-2 and its facets Schema 1-1-1, ColumnLineage 1-2-0, JobType 2-0-3, ErrorMessage 1-0-1 and
ProcessingEngine 1-1-1.
"""

from __future__ import annotations

from typing import Any

from tests.observe.json_schema import faults

__all__ = ["faults_of"]

_TEXT = {"type": "string", "minLength": 1}
_UUID = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
_TIME = {
    "type": "string",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$",
}
_URI = {"type": "string", "pattern": "^https://[^ ]+$"}


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
    }


def _facet(name: str, /, required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    url = {
        "type": "string",
        "pattern": rf"^https://openlineage\.io/spec/facets/\d+-\d+-\d+/{name}\.json#/\$defs/{name}$",
    }
    return _object({"_producer": _URI, "_schemaURL": url, **required}, **optional)


_TRANSFORMATION = _object(
    {"type": {"enum": ["DIRECT", "INDIRECT"]}},
    subtype={"enum": ["IDENTITY", "TRANSFORMATION", "FILTER"]},
    masking={"type": "boolean"},
)
_INPUT_FIELD = _object(
    {"namespace": _TEXT, "name": _TEXT, "field": _TEXT},
    transformations={"type": "array", "items": _TRANSFORMATION},
)
_SCHEMA = _facet(
    "SchemaDatasetFacet",
    {"fields": {"type": "array", "items": _object({"name": _TEXT}, type=_TEXT)}},
)
_COLUMNS = _facet(
    "ColumnLineageDatasetFacet",
    {
        "fields": {
            "type": "object",
            "properties": {},
            "additionalProperties": _object(
                {"inputFields": {"type": "array", "items": _INPUT_FIELD}}
            ),
        }
    },
    dataset={"type": "array", "items": _INPUT_FIELD},
)


def _dataset(**facets: Any) -> dict[str, Any]:
    return _object({"namespace": _TEXT, "name": _TEXT}, facets=_object({}, **facets))


_EVENT = _object(
    {
        "eventTime": _TIME,
        "producer": _URI,
        "schemaURL": {
            "const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
        },
        "run": _object(
            {"runId": _UUID},
            facets=_object(
                {},
                errorMessage=_facet(
                    "ErrorMessageRunFacet", {"message": _TEXT, "programmingLanguage": _TEXT}
                ),
                processing_engine=_facet(
                    "ProcessingEngineRunFacet", {"version": _TEXT}, name=_TEXT
                ),
            ),
        ),
        "job": _object(
            {"namespace": _TEXT, "name": _TEXT},
            facets=_object(
                {},
                jobType=_facet(
                    "JobTypeJobFacet",
                    {"processingType": _TEXT, "integration": _TEXT},
                    jobType=_TEXT,
                ),
            ),
        ),
    },
    eventType={"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
    inputs={"type": "array", "items": _dataset(schema=_SCHEMA)},
    outputs={"type": "array", "items": _dataset(schema=_SCHEMA, columnLineage=_COLUMNS)},
)


def faults_of(event: dict[str, Any]) -> list[str]:
    """Return what is wrong with an event."""
    return faults(event, _EVENT)
