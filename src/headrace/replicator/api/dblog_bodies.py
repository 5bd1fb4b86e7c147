"""What goes over HTTP below ``api/v1`` of a replicator, in the names of DBLog's reference implementation.

Fields without a counterpart there are ours. Sizes of a flow are bytes of the change log, which is our queue.

Source: the reference implementation's HTTP control plane, root ``/api/v1``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from headrace.replicator.api.bodies import Asked

__all__ = [
    "Accepted",
    "EventShown",
    "EventSummary",
    "Events",
    "ListenerShown",
    "Metrics",
    "PaceBody",
    "PaceShown",
    "RequestBody",
    "RequestList",
    "RequestPaceBody",
    "RequestShown",
    "Runtime",
    "RuntimeHealth",
    "RuntimeStatus",
    "SchemaIssues",
    "Schemas",
    "TableName",
    "TakenBody",
    "TapShown",
]


# -- requests -------------------------------------------------------------------------------------


class RequestTable(Asked):
    """A table."""

    database_name: str = Field("", alias="databaseName", max_length=200)
    schema_name: str = Field("public", alias="schemaName", max_length=200)
    table_name: str = Field(alias="tableName", max_length=200)


class RequestBody(Asked):
    """What is to be read again."""

    scope: str = Field(description="ALL_TABLES, TABLE, PRIMARY_KEYS or PREDICATE.")
    table: RequestTable | None = None
    keys: list[str] | None = Field(
        None,
        alias="primaryKeyLiterals",
        max_length=10_000,
        description="42, 17,1 or {id=17,line=1}.",
    )
    where: str = Field(
        "", max_length=10_000, description="With PREDICATE: a condition in the source's SQL."
    )
    delete_missing: bool = Field(
        False,
        alias="deleteMissing",
        description="With PRIMARY_KEYS: delete from the target those that the source does not hold.",
    )
    priority: int = Field(0, description="The highest goes first.")


class PaceBody(Asked):
    """Settings of `headrace.state.pace.Pace`; what is left out stays, but for pause, which has a command."""

    chunk_rows: int | None = None
    chunk_s: float | None = None
    load: float | None = None
    delay_s: float | None = None
    rows_per_s: float | None = None
    log_rows_per_s: float | None = None
    retain_bytes: int | None = None
    retain_s: float | None = None


class RequestPaceBody(Asked):
    """What one request has of its own; what is left out stays, null gives a setting back to the replicator's pace."""

    chunk_rows: int | None = None
    delay_s: float | None = None
    rows_per_s: float | None = None
    priority: int | None = Field(None, description="The highest goes first; null leaves it.")


class PaceShown(BaseModel):
    """What was set of the pace of dumps and of the log; null where the configuration holds."""

    chunk_rows: int | None
    chunk_s: float | None
    load: float | None
    delay_s: float | None
    rows_per_s: float | None
    log_paused: bool
    log_rows_per_s: float
    retain_bytes: int | None
    retain_s: float | None


class OwnPaceShown(BaseModel):
    """What a request has of its own; null where the replicator's pace holds."""

    chunk_rows: int | None
    delay_s: float | None
    rows_per_s: float | None


class TableName(BaseModel):
    """A table, part by part."""

    databaseName: str | None
    schemaName: str
    tableName: str


class WindowShown(BaseModel):
    """The table that a request is reading."""

    table: str
    chunks: int
    rowsRead: int
    rowsPerSecond: float
    secondsLeft: float | None


class RequestTableShown(BaseModel):
    """How far one table of a request is."""

    table: str
    state: str
    chunks: int
    rowsRead: int
    rowsEmitted: int
    rowsVoided: int
    rowsEstimated: int
    rowsPerSecond: float


class RequestShown(BaseModel):
    """A dump request."""

    requestId: str
    scope: str
    table: TableName | None
    state: str
    primaryKeyLiterals: list[str]
    missingPrimaryKeyLiterals: list[str]
    activeWindow: WindowShown | None
    failureReason: str | None
    createdAt: str
    updatedAt: str
    rowsRead: int
    rowsEstimated: int
    priority: int
    pace: OwnPaceShown
    cause: str = Field(
        description="Why it exists: ASKED by somebody, or what headrace needs it for."
    )
    where: str
    deleteMissing: bool
    tables: list[RequestTableShown] = Field(description="Those begun, in the order of work.")


class Accepted(BaseModel):
    """A request that is durable."""

    accepted: Literal[True]
    request: RequestShown


class RequestList(BaseModel):
    """Requests, newest first."""

    stateStoreConfigured: bool
    requests: list[RequestShown]
    countsByState: dict[str, int]


# -- the runtime ----------------------------------------------------------------------------------


class RuntimeHealth(BaseModel):
    """Whether a replicator's capture does its work."""

    status: Literal["UP", "DOWN"]
    mode: str = Field(description="State of the replicator.")
    adapter: str = Field(description="Kind of its source.")
    sourceId: str
    lastAcknowledgedCheckpoint: str | None = Field(description="SCN, in decimal digits.")


class FlowControl(BaseModel):
    """How the log flows from the source into the change log."""

    mode: str = Field(description="What capture does; stopped where none runs.")
    statusText: str = Field(description="What it waits for, and what that means.")
    queueCapacity: int = Field(description="Bytes that the change log may take.")
    queueDepth: int = Field(description="Bytes that it takes.")
    queueFull: bool
    sourceFetchPaused: bool = Field(description="Whether nothing is taken from the source.")
    totalEnqueued: int = Field(description="Changes that this process of capture brought in.")
    totalDequeued: int = Field(description="Changes that the tables show.")


class SourceRuntime(BaseModel):
    """The source's side."""

    sourceId: str
    lastAcknowledgedCheckpoint: str | None
    pendingTransactions: int = Field(description="Streamed, and seen by no snapshot yet.")
    capturedTableCount: int
    sourceFlowControl: FlowControl


class QueueShown(BaseModel):
    """Whether dumps may be asked for."""

    pendingRequests: int
    submissionAvailable: bool
    submissionMessage: str


class Runtime(BaseModel):
    """A replicator's capture at a glance."""

    mode: str
    adapter: str
    health: str
    sourceRuntime: SourceRuntime
    queue: QueueShown


class RequestsNow(BaseModel):
    """Requests that have not ended."""

    queuedCount: int
    activeCount: int
    pendingCount: int = Field(description="All that have not ended, paused ones too.")
    activeRequest: RequestShown | None
    activeRequestWindow: WindowShown | None


class TableEvents(BaseModel):
    """What the target has taken in of a table."""

    table: str
    counts: dict[str, Any]


class EventsNow(BaseModel):
    """Changes so far."""

    cumulativeEventsObserved: int = Field(description="In the tables, and waiting in the log.")
    recentEventWindowSize: int = Field(description="Bytes of the tap that /events looks at.")
    tables: list[TableEvents]


class RuntimeStatus(BaseModel):
    """A replicator's capture in full."""

    mode: str
    adapter: str
    health: RuntimeHealth
    sourceRuntime: SourceRuntime
    requests: RequestsNow
    events: EventsNow


class ColumnShown(BaseModel):
    """A column of a table version."""

    name: str
    sourceType: str
    neutralType: str = Field(description="The Arrow type that holds every value exactly.")
    primaryKey: bool
    primaryKeyOrdinal: int | None
    nullable: bool
    supported: bool


class SchemaShown(BaseModel):
    """A version of a table."""

    fingerprint: str = Field(description="Schema id, 16 hexadecimal digits.")
    refreshedAt: str | None
    primaryKeyColumns: list[str]
    ignoredColumns: list[str] = Field(description="Columns that the configuration drops.")
    columns: list[ColumnShown]


class TableSchemas(BaseModel):
    """A table, as it is followed and as it was last seen."""

    tableDisplayName: str
    databaseName: str | None
    schemaName: str
    tableName: str
    contractSchema: SchemaShown | None = Field(description="The version that the log follows.")
    observedSchema: SchemaShown = Field(description="The newest version.")
    schemaStatus: Literal["OK", "SCHEMA_UNCERTAIN", "FULL_DUMP_REQUIRED"]
    fullDumpRequired: bool
    fullDumpReason: str | None
    schemaUncertain: bool
    schemaUncertainReason: str | None


class Schemas(BaseModel):
    """The tables' versions."""

    stateStoreConfigured: bool
    count: int
    schemas: list[TableSchemas]


class DumpSignal(BaseModel):
    """A table that has to be read anew."""

    sourceId: str
    table: str
    reason: str
    detectedAt: str | None


class UncertainSignal(BaseModel):
    """A table whose shape stands in the way."""

    sourceId: str
    table: str
    reason: str
    firstDetectedAt: str | None
    lastDetectedAt: str | None
    occurrenceCount: int


class SchemaIssues(BaseModel):
    """What is wrong with tables' shapes."""

    fullDumpRequiredSignals: list[DumpSignal]
    schemaUncertaintySignals: list[UncertainSignal]


# -- counters and events --------------------------------------------------------------------------


class SourceCapture(BaseModel):
    """What capture has done since it started."""

    changes: int
    slowQueries: int
    slowestQuery: str
    slowestQuerySeconds: float
    restarts: int


class Chunking(BaseModel):
    """What dumps have read, all requests together."""

    chunksCompleted: int
    rowsRead: int
    rowsEmitted: int
    rowsVoided: int


class RequestCoordinator(BaseModel):
    """Requests by where they stand."""

    submitted: int
    byState: dict[str, int]


class RuntimeMeasurement(BaseModel):
    """Counters of one replicator."""

    sourceCapture: SourceCapture
    chunking: Chunking
    requestCoordinator: RequestCoordinator


class EventCapture(BaseModel):
    """The tap."""

    enabled: bool
    dropped: int
    listeners: int


class Metrics(BaseModel):
    """Counters, as JSON."""

    runtimeMeasurement: RuntimeMeasurement
    eventCapture: EventCapture


class StageCount(BaseModel):
    """Events of one table at one stage."""

    table: str
    stageLabel: Literal["SOURCE_LOG", "CHANGE_LOG"]
    inserts: int
    updates: int
    deletes: int
    total: int


class EventSummary(BaseModel):
    """Totals of what the tap told of late."""

    since: str | None = Field(description="When the oldest event that was counted was told.")
    totalEvents: int
    tables: list[StageCount]


class EventShown(BaseModel):
    """One row change."""

    stageLabel: Literal["SOURCE_LOG", "CHANGE_LOG"]
    recordedAt: str
    table: str
    operationType: str
    captureOrigin: str
    primaryKey: str = Field(description="As in CSV; a hash where the tap shows hashes.")
    sourcePosition: str
    dumpId: str | None


class Events(BaseModel):
    """Row changes, newest first."""

    events: list[EventShown]


# -- the tap --------------------------------------------------------------------------------------


class TakenBody(Asked):
    """A line of a tap that teaches."""

    run_id: str = Field(alias="runId", max_length=100, pattern=r"^\S+$")
    seq: int = Field(ge=0)


class ListenerShown(BaseModel):
    """Somebody who listens."""

    who: str
    sinceMillis: int
    sent: int
    dropped: int = Field(description="Lines that were left out because it was too slow.")


class TapShown(BaseModel):
    """A replicator's tap."""

    enabled: bool
    mode: Literal["record", "teach"]
    dropped: int = Field(description="Events that the tap itself left out, for everybody.")
    listeners: list[ListenerShown]
