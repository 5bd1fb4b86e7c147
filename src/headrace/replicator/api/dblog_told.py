"""A replicator's requests and runtime as values of an answer, in the names of `dblog_bodies`; no I/O."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from headrace.observe.status import ProcessState, ProcessStatus
from headrace.replicator.api.dblog_bodies import (
    EventsNow,
    FlowControl,
    OwnPaceShown,
    QueueShown,
    RequestShown,
    RequestsNow,
    RequestTableShown,
    RuntimeHealth,
    SourceRuntime,
    TableEvents,
    TableName,
    WindowShown,
)
from headrace.replicator.control.lifecycle import State
from headrace.replicator.control.records import Deployed
from headrace.replicator.picture import Picture
from headrace.replicator.requests import Shown
from headrace.state.records import OPEN, RequestState

__all__ = [
    "RECENT_BYTES",
    "adapter_of",
    "events_now",
    "health_of",
    "queue_of",
    "request_shown",
    "requests_now",
    "source_runtime",
    "time_of",
]

RECENT_BYTES = 2 << 20
"""Bytes at the end of a tap's files that the pages of events look at."""

_MEANS = {
    "streaming": "changes are taken as they come.",
    "log paused": "people paused the log's delivery; the source keeps its log.",
    "waiting for source": "the source is not reached, and asked again.",
    "waiting for room": "the change log is full: the tables are slower than the source.",
}


def time_of(seconds: float) -> str:
    """Return seconds since 1970 as ISO 8601, UTC."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()


def adapter_of(row: Deployed) -> str:
    """Return the kind of a replicator's source."""
    source = row.config.get("source")
    return str(source.get("type", "")) if isinstance(source, dict) else "postgres"


def request_shown(shown: Shown) -> RequestShown:
    """Return a dump request."""
    request, table = shown.request, shown.request.table
    return RequestShown(
        requestId=request.request_id,
        scope=request.scope.value,
        table=TableName(databaseName=None, schemaName=table.schema, tableName=table.name)
        if table
        else None,
        state=request.state.value,
        primaryKeyLiterals=[",".join(key) for key in request.keys],
        missingPrimaryKeyLiterals=[",".join(key) for key in request.missing],
        activeWindow=_window(shown),
        failureReason=request.reason or None,
        createdAt=time_of(request.created_s),
        updatedAt=time_of(request.updated_s),
        rowsRead=shown.rows_read,
        rowsEstimated=shown.rows_estimated,
        priority=request.priority,
        pace=OwnPaceShown(**asdict(request.pace)),
        cause=request.cause.value,
        where=request.predicate,
        deleteMissing=request.delete_missing,
        tables=[
            RequestTableShown(
                table=str(one.table),
                state=one.state,
                chunks=one.chunks,
                rowsRead=one.rows_read,
                rowsEmitted=one.rows_emitted,
                rowsVoided=one.rows_voided,
                rowsEstimated=one.rows_estimated,
                rowsPerSecond=one.rows_per_s,
            )
            for one in shown.progress
        ],
    )


def _window(shown: Shown) -> WindowShown | None:
    if shown.request.state is not RequestState.ACTIVE:
        return None
    reads = next((p for p in shown.progress if p.state == "copying"), None)
    if reads is None:
        return None
    return WindowShown(
        table=str(reads.table),
        chunks=reads.chunks,
        rowsRead=reads.rows_read,
        rowsPerSecond=reads.rows_per_s,
        secondsLeft=reads.seconds_left,
    )


def health_of(row: Deployed, picture: Picture | None, *, runs: bool) -> RuntimeHealth:
    """Return whether a capture does its work.

    Args:
        row: the replicator.
        picture: of it, None where nobody could look.
        runs: whether there is a process.
    """
    capture = _capture(picture)
    works = runs and capture is not None and capture.state is ProcessState.RUNNING
    return RuntimeHealth(
        status="UP" if works else "DOWN",
        mode=row.state.value,
        adapter=adapter_of(row),
        sourceId=row.full_name,
        lastAcknowledgedCheckpoint=str(picture.covered_scn) if picture else None,
    )


def source_runtime(row: Deployed, picture: Picture | None, *, runs: bool) -> SourceRuntime:
    """Return how the source's log flows; the arguments are those of `health_of`."""
    capture = _capture(picture)
    detail = capture.detail if capture and runs else {}
    doing = str(detail.get("doing", "stopped"))
    paused = bool(picture and picture.log_paused)
    text = _MEANS.get(doing, "no process captures.")
    return SourceRuntime(
        sourceId=row.full_name,
        lastAcknowledgedCheckpoint=str(picture.covered_scn) if picture else None,
        pendingTransactions=int(detail.get("remembered", 0)),
        capturedTableCount=len(picture.tables) if picture else 0,
        sourceFlowControl=FlowControl(
            mode=doing,
            statusText=" ".join(filter(None, (text, str(detail.get("waits_for", ""))))),
            queueCapacity=picture.log_budget_bytes if picture else 0,
            queueDepth=picture.log_bytes if picture else 0,
            queueFull=doing == "waiting for room",
            sourceFetchPaused=paused or doing != "streaming",
            totalEnqueued=int(detail.get("changes", 0)),
            totalDequeued=picture.frontier_changes if picture else 0,
        ),
    )


def queue_of(row: Deployed, shown: Sequence[Shown]) -> QueueShown:
    """Return whether dumps may be asked for."""
    if adapter_of(row) == "relay":
        message = "It reads from a relay, which is asked where the source's capture runs."
    elif row.state is State.DELETING:
        message = "It is being deleted."
    elif row.state in (State.RUNNING, State.PAUSED):
        message = "Taken up within a second."
    else:
        message = "Taken up when it is started."
    return QueueShown(
        pendingRequests=sum(one.request.state in OPEN for one in shown),
        submissionAvailable=adapter_of(row) != "relay" and row.state is not State.DELETING,
        submissionMessage=message,
    )


def requests_now(shown: Sequence[Shown]) -> RequestsNow:
    """Return the requests that have not ended."""
    states = Counter(one.request.state for one in shown)
    active = next((one for one in shown if one.request.state is RequestState.ACTIVE), None)
    return RequestsNow(
        queuedCount=states[RequestState.QUEUED],
        activeCount=states[RequestState.ACTIVE],
        pendingCount=sum(states[state] for state in OPEN),
        activeRequest=request_shown(active) if active else None,
        activeRequestWindow=_window(active) if active else None,
    )


def events_now(picture: Picture | None) -> EventsNow:
    """Return what the tables have taken in."""
    tables = picture.tables if picture else ()
    return EventsNow(
        cumulativeEventsObserved=picture.frontier_changes + picture.lag_changes if picture else 0,
        recentEventWindowSize=RECENT_BYTES,
        tables=[TableEvents(table=one.name, counts=one.counts.to_json()) for one in tables],
    )


def _capture(picture: Picture | None) -> ProcessStatus | None:
    return picture.roles.get("capture") if picture else None
