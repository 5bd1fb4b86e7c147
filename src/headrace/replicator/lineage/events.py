"""Lineage in OpenLineage's words: events of runs, with facets for columns.

In: what is known of a replicator's tables. Out: plain values to be sent as JSON. Pure.

Source: OpenLineage 2-0-2, RunEvent; facets Schema 1-1-1, ColumnLineage 1-2-0, JobType 2-0-3, ErrorMessage 1-0-1 and
ProcessingEngine 1-1-1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from headrace import __version__
from headrace.errors import HeadraceError
from headrace.model.schema import render_type
from headrace.observe.status import describe_error
from headrace.replicator.config import Config
from headrace.replicator.lineage.columns import ColumnLineage, How, TableLineage
from headrace.replicator.lineage.datasets import Dataset, source_dataset, target_dataset

__all__ = ["EventType", "RunOf", "event"]

_PRODUCER = f"https://pypi.org/project/headrace/{__version__}"
_SPEC = "https://openlineage.io/spec"
_HOW: dict[How, dict[str, Any]] = {
    How.IDENTITY: {"type": "DIRECT", "subtype": "IDENTITY", "masking": False},
    How.COMPUTED: {"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": False},
    How.MASKED: {"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": True},
}
_FILTER = {"type": "INDIRECT", "subtype": "FILTER", "masking": False}


class EventType(Enum):
    """What became of a run."""

    START = "START"
    """It began."""
    RUNNING = "RUNNING"
    """It goes on, and a table has other columns than before."""
    COMPLETE = "COMPLETE"
    """It ended because it was asked to."""
    FAIL = "FAIL"
    """It ended with an error."""
    ABORT = "ABORT"
    """It ended without a word, and its successor says so."""


@dataclass(frozen=True, slots=True)
class RunOf:
    """One run of a replicator.

    Attributes:
        namespace: of the job, which is the replicator.
        name: of the replicator.
        run_id: UUID.
    """

    namespace: str
    name: str
    run_id: str


def event(
    kind: EventType,
    run: RunOf,
    config: Config,
    tables: Iterable[TableLineage],
    *,
    at_s: float,
    error: BaseException | None = None,
) -> dict[str, Any]:
    """Return one event.

    Args:
        kind: what happened.
        run: whose.
        config: of the replicator; no secret of it is told.
        tables: all that are known, not only those that changed.
        at_s: seconds since 1970 UTC.
        error: that ended the run; one that nobody foresaw is told by its type alone.
    """
    known = list(tables)
    facets: dict[str, Any] = {
        "processing_engine": _facet(
            "1-1-1/ProcessingEngineRunFacet", {"name": "headrace", "version": __version__}
        )
    }
    if error is not None:
        facets["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", _told(error))
    return {
        "eventType": kind.value,
        "eventTime": datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds"),
        "producer": _PRODUCER,
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": run.run_id, "facets": facets},
        "job": {
            "namespace": run.namespace,
            "name": run.name,
            "facets": {
                "jobType": _facet(
                    "2-0-3/JobTypeJobFacet",
                    {
                        "processingType": "STREAMING",
                        "integration": "HEADRACE",
                        "jobType": "REPLICATOR",
                    },
                )
            },
        },
        "inputs": [_input(config, table) for table in known],
        "outputs": [_output(config, table) for table in known],
    }


def _input(config: Config, table: TableLineage) -> dict[str, Any]:
    fields = [
        {"name": column.name, "type": column.source_type or render_type(column.type)}
        for column in table.schema.columns
    ]
    return _dataset(source_dataset(config, table.table), {"schema": _schema(fields)})


def _output(config: Config, table: TableLineage) -> dict[str, Any]:
    source = source_dataset(config, table.table)
    fields = [
        {"name": column.column, **({"type": column.type} if column.type else {})}
        for column in table.columns
    ]
    lineage: dict[str, Any] = {
        "fields": {
            column.column: {"inputFields": list(_inputs(source, column))}
            for column in table.columns
            if column.inputs
        }
    }
    if table.filters:
        lineage["dataset"] = [_from(source, name, _FILTER) for name in table.filters]
    return _dataset(
        target_dataset(config, table.table),
        {
            "schema": _schema(fields),
            "columnLineage": _facet("1-2-0/ColumnLineageDatasetFacet", lineage),
        },
    )


def _inputs(source: Dataset, column: ColumnLineage) -> Iterable[dict[str, Any]]:
    return (_from(source, name, _HOW[column.how]) for name in column.inputs)


def _from(source: Dataset, column: str, how: dict[str, Any]) -> dict[str, Any]:
    return {
        "namespace": source.namespace,
        "name": source.name,
        "field": column,
        "transformations": [dict(how)],
    }


def _dataset(dataset: Dataset, facets: dict[str, Any]) -> dict[str, Any]:
    return {"namespace": dataset.namespace, "name": dataset.name, "facets": facets}


def _schema(fields: list[dict[str, str]]) -> dict[str, Any]:
    return _facet("1-1-1/SchemaDatasetFacet", {"fields": fields})


def _facet(which: str, held: dict[str, Any]) -> dict[str, Any]:
    name = which.partition("/")[2]
    url = f"{_SPEC}/facets/{which}.json#/$defs/{name}"
    return {"_producer": _PRODUCER, "_schemaURL": url, **held}


def _told(error: BaseException) -> dict[str, str]:
    said = describe_error(error)
    text = (
        f"{said['name']}: {said['message']}" if isinstance(error, HeadraceError) else said["name"]
    )
    return {"message": text, "programmingLanguage": "python"}
