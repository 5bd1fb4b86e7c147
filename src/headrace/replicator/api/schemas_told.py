"""Table versions of a replicator, and what stands in the way of them, as values of an answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from headrace.lake.settings import SettingsByTable, settings_for
from headrace.model.schema import TableSchema
from headrace.registry.file import FileRegistry
from headrace.replicator.api.dblog_bodies import (
    ColumnShown,
    DumpSignal,
    SchemaIssues,
    SchemaShown,
    TableSchemas,
    UncertainSignal,
)
from headrace.replicator.api.dblog_told import time_of
from headrace.replicator.asked import table_settings
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.replicator.picture import Picture
from headrace.replicator.requests import Shown
from headrace.state.records import OPEN, Cause
from headrace.state.store import StateStore

__all__ = ["schema_issues", "table_schemas"]

_WHY = {
    Cause.FILLED: "The source filled a column without a word in its log.",
    Cause.RETYPED: "A column took a type that the target's values do not fit.",
    Cause.LEFT_OUT: "The table was left out for a while, and its changes passed by.",
    Cause.GAP: "The source's log lacks changes.",
}
"""What people did not ask for, and no first copy."""


def table_schemas(
    config: Config, shown: Sequence[Shown], picture: Picture | None
) -> list[TableSchemas]:
    """Return each captured table as it is followed, and as it was last seen."""
    paths = StatePaths.of(config)
    newest = {schema.table: schema for schema in FileRegistry(paths.registry).all()}
    if not newest:
        return []
    with contextlib.closing(StateStore(paths.database)) as state:
        captured = state.captured() or list(newest)
        ids = {table: int(state.get(f"schema {table}") or 0) for table in captured}
    followed = FileRegistry(paths.registry)
    settings = table_settings(config)
    dumps = {name: why for name, why, _ in _to_be_read(shown, picture)}
    unsure = dict(_uncertain(picture))
    told = []
    for table in sorted(captured, key=str):
        if table not in newest:
            continue
        contract = followed.get(ids[table]) if ids[table] else None
        name = str(table)
        told.append(
            TableSchemas(
                tableDisplayName=name,
                databaseName=None,
                schemaName=table.schema,
                tableName=table.name,
                contractSchema=_version(contract, paths, settings) if contract else None,
                observedSchema=_version(newest[table], paths, settings),
                schemaStatus="SCHEMA_UNCERTAIN"
                if name in unsure
                else "FULL_DUMP_REQUIRED"
                if name in dumps
                else "OK",
                fullDumpRequired=name in dumps,
                fullDumpReason=dumps.get(name),
                schemaUncertain=name in unsure,
                schemaUncertainReason=unsure.get(name),
            )
        )
    return told


def schema_issues(source: str, shown: Sequence[Shown], picture: Picture | None) -> SchemaIssues:
    """Return the tables that have to be read anew, and those whose shape stands in the way."""
    apply = picture.roles.get("apply") if picture else None
    at = time_of(apply.updated_us / 1e6) if apply else None
    return SchemaIssues(
        fullDumpRequiredSignals=[
            DumpSignal(sourceId=source, table=name, reason=reason, detectedAt=since)
            for name, reason, since in _to_be_read(shown, picture)
        ],
        schemaUncertaintySignals=[
            UncertainSignal(
                sourceId=source,
                table=name,
                reason=reason,
                # What fails is tried again with each batch; the last time is what is known.
                firstDetectedAt=None,
                lastDetectedAt=at,
                occurrenceCount=1,
            )
            for name, reason in _uncertain(picture)
        ],
    )


def _to_be_read(
    shown: Sequence[Shown], picture: Picture | None
) -> Iterator[tuple[str, str, str | None]]:
    """Yield tables with why, and since when."""
    for one in shown:
        request = one.request
        if request.state in OPEN and request.table and request.cause in _WHY:
            yield str(request.table), _WHY[request.cause], time_of(request.created_s)
    for table in picture.tables if picture else ():
        if table.phase == "incomplete":
            yield table.name, table.error, None


def _uncertain(picture: Picture | None) -> Iterator[tuple[str, str]]:
    for table in picture.tables if picture else ():
        if table.phase == "failing":
            yield table.name, table.error


def _version(schema: TableSchema, paths: StatePaths, settings: SettingsByTable) -> SchemaShown:
    file = paths.registry / f"{schema.schema_id:016x}.json"
    with contextlib.suppress(OSError):
        return _told(schema, settings, time_of(file.stat().st_mtime))
    return _told(schema, settings, None)


def _told(schema: TableSchema, settings: SettingsByTable, at: str | None) -> SchemaShown:
    places = {name: place for place, name in enumerate(schema.key, 1)}
    return SchemaShown(
        fingerprint=f"{schema.schema_id:016x}",
        refreshedAt=at,
        primaryKeyColumns=list(schema.key),
        ignoredColumns=list(settings_for(schema.table, settings).drop),
        columns=[
            ColumnShown(
                name=column.name,
                sourceType=column.source_type,
                neutralType=str(column.type),
                primaryKey=column.name in places,
                primaryKeyOrdinal=places.get(column.name),
                nullable=column.nullable,
                # What cannot come out is no column of a version; assessment names it.
                supported=True,
            )
            for column in schema.columns
        ],
    )
