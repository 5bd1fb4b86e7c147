"""A table that was filled elsewhere becomes one of the replicator's: ``headrace adopt``.

In: files of a dump and the position that they belong to. Out: the target table at that position, and a request that
tells capture to say in the log that the table is complete. May run beside the replicator, which leaves the table alone
until then; after a crash at any step the same command goes on.

The order must not change: the table is durable before the request is, because a completion that the log holds makes
apply look for the table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import (
    ConfigError,
    ScnNotFound,
    StateError,
    TargetConflict,
    TargetUnwritable,
)
from headrace.lake.adopted import adopted_scn, put_adopted, write_adopted
from headrace.lake.delta_log import DeltaTable
from headrace.lake.dump_files import DumpFiles
from headrace.lake.frontier import FrontierStore
from headrace.lake.ledger import app_id, table_path
from headrace.lake.settings import settings_for
from headrace.model.block import SystemKind
from headrace.model.schema import TableId, TableSchema
from headrace.model.succession import NO_NUMBERS
from headrace.observe.failpoints import failpoint
from headrace.registry.file import FileRegistry
from headrace.replicator.asked import table_settings
from headrace.replicator.config import Config, TargetConfig
from headrace.replicator.lock import held
from headrace.replicator.paths import StatePaths
from headrace.state.incarnation import Incarnation
from headrace.state.records import OPEN, Cause, RequestState, Scope
from headrace.state.store import StateStore

__all__ = ["Adopted", "ParsePosition", "adopt"]

ParsePosition = Callable[[str, int], int]
"""Returns the SCN of a position in the source's own terms, given what is added to its numbers.

Raises:
    ValueError: the text is none.
"""

_LOG_WAIT_S = 30.0
"""How long the log may take to reach a position: an idle source is moved on by its heartbeat."""
_FIRST = 100
"""Priority of the request: it reads nothing, and the log is kept until it was carried out."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was done.

    Attributes:
        table: ``schema.name``.
        scn: the table holds everything up to here.
        rows: of the dump, None when an earlier call had written it.
        passed_over: columns of the dump that the table has not.
        request: that makes the table complete in the log.
    """

    table: str
    scn: int
    rows: int | None
    passed_over: tuple[str, ...]
    request: str


def adopt(
    config: Config,
    table: TableId,
    files: Path,
    at: str,
    parse: ParsePosition,
    catalog: Callable[[], TableSchema],
    wait_s: float = _LOG_WAIT_S,
) -> Adopted:
    """Make a dump that was made elsewhere the first rows of a target table.

    Args:
        config: of the replicator, which may run, and must have begun to capture the table.
        table: whose rows they are.
        files: folder of the dump.
        at: the dump's position: an SCN, or as ``parse`` has it.
        parse: understands the source's own positions.
        catalog: returns the table's version at the source now; asked where the log has not spoken of the table.
        wait_s: how long the log may take to reach the position.

    Raises:
        ConfigError: the table is not one whose first copy is adopted, or ``at`` is no position.
        StateError: capture has not begun with the table.
        ScnNotFound: the log does not hold every change of the table behind the position, or is not there yet.
        DumpUnfit: the files are not the rows of the table.
        TargetConflict: there is a target table already.
        TargetUnwritable: its folder refused.
        LeaseLost: another call of this is at work.
    """
    settings = settings_for(table, table_settings(config))
    target, paths = config.target, StatePaths.of(config)
    if not settings.adopted or not isinstance(target, TargetConfig):
        raise ConfigError(
            f"adopt: the first copy of {table} is made by headrace.",
            next_step=f'write tables: {{"{table}": {{first_copy: adopted}}}} before the table is captured.',
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(held(paths.lock("adopt"), "headrace adopt"))
        state = stack.enter_context(contextlib.closing(_opened(paths, config.name)))
        life = Incarnation.read(state)
        since = state.since(table)
        if life is None or since is None:
            raise _not_captured(table)
        scn = _scn_of(at, parse, life.offset)
        there = DeltaTable(table_path(config.lake, table)).latest()
        dump = None
        if there is None:
            reader, registry = ChangeLogReader(paths.changelog), FileRegistry(paths.registry)
            _check_log(config, reader, table, scn, max(since, life.since_scn), wait_s)
            schema = _version_at(reader, registry, state, table, scn) or catalog()
            dump = DumpFiles.open(files, schema)
            _fill(config, target, dump, scn, settings.partition_by, registry)
        elif adopted_scn(there) != scn:
            raise _there_is_one(table)
        request = _request(state, table)
        failpoint("adopt.after_request")
        rows, passed_over = (dump.rows, dump.passed_over) if dump else (None, ())
        return Adopted(str(table), scn, rows, passed_over, request)


def _fill(
    config: Config,
    target: TargetConfig,
    dump: DumpFiles,
    scn: int,
    partition_by: tuple[str, ...],
    registry: FileRegistry,
) -> None:
    """Make a dump's rows and their position the table's first version."""
    table = dump.schema.table
    folder, spool = table_path(config.lake, table), StatePaths.of(config).root / "spool"
    try:
        actions = write_adopted(
            *(folder, dump, app_id(config.name, table), scn, spool),
            vectors=target.vectors,
            partition_by=partition_by,
        )
        failpoint("adopt.files_written")
        # Apply looks the version up that the table names.
        registry.put(dump.schema)
        put_adopted(folder, actions)
    except OSError as error:
        raise TargetUnwritable(
            f"The target table of {table} cannot be written ({type(error).__name__}).",
            next_step="make room, or give headrace the right to write there; then call it again.",
        ) from error
    failpoint("adopt.after_commit")


def _opened(paths: StatePaths, name: str) -> StateStore:
    if not paths.database.exists():
        raise StateError(
            f"adopt: replicator {name} has captured nothing yet.",
            next_step="start it: headrace run FILE; make the dump while it runs, so that nothing behind it is missing.",
        )
    return StateStore(paths.database)


def _not_captured(table: TableId) -> StateError:
    return StateError(
        f"adopt: capture has not begun with {table} as a table that is filled elsewhere.",
        next_step="start the replicator with the table in source.tables, and make the dump while it runs.",
    )


def _there_is_one(table: TableId) -> TargetConflict:
    return TargetConflict(
        f"There is a target table of {table} already, which does not begin with this dump.",
        next_step="move it away first if the dump is to take its place.",
    )


def _scn_of(at: str, parse: ParsePosition, offset: int) -> int:
    try:
        scn = int(at) if at.isdecimal() else parse(at, offset)
    except ValueError:
        scn = 0
    if not 0 < scn < 2**63:
        raise ConfigError(
            "adopt: --at is no position.",
            next_step="write the snapshot's position, such as 16/B374D848 (an LSN) or binlog.000042:1234, or an SCN.",
        )
    return scn


def _check_log(
    config: Config,
    reader: ChangeLogReader,
    table: TableId,
    scn: int,
    since: int,
    wait_s: float,
) -> None:
    """Refuse a position behind which a change of the table may be missing, or that is not in the log yet."""
    reader.wait(scn, wait_s)
    tail = reader.tail()
    manifest = FrontierStore(config.lake, config.name).latest()
    entry = manifest.tables.get(str(table)) if manifest else None
    # Where the table waits; up to there the log has said nothing of it.
    waits_at = entry.applied_scn if entry else manifest.scn if manifest else 0
    if scn < since or scn > tail.covered_scn or max(scn, waits_at) < tail.oldest_scn:
        raise ScnNotFound(scn, max(since, tail.oldest_scn), tail.covered_scn)


def _version_at(
    reader: ChangeLogReader, registry: FileRegistry, state: StateStore, table: TableId, scn: int
) -> TableSchema | None:
    """Return the version that a table had at a position, None when the log has never spoken of it.

    Of a table of which it speaks later only, the first that it names: a change of its shape in between is refused with
    the dump's columns. Where the log says nothing any more, the last that it named has held since.
    """
    begin = reader.tail().oldest_scn
    told = [
        event
        for block in reader.read([ref for ref in reader.refs(begin) if ref.has_system], ())
        for event in block.system
        if event.kind is SystemKind.SCHEMA and event.table == table
    ]
    if not told:
        last = int(state.get(f"schema {table}") or 0)
        return registry.get(last) if last else None
    before = [event for event in told if event.scn <= scn]
    event = before[-1] if before else told[0]
    schema = registry.get(int(event.payload["schema_id"]))
    return replace(schema, numbers=event.payload.get("numbers", NO_NUMBERS))


def _request(state: StateStore, table: TableId) -> str:
    """Return the request that makes the table complete, unless one that will, or did, is there already."""
    comes = (*OPEN, RequestState.COMPLETED)
    for request in reversed(state.requests()):
        if (request.table, request.cause) == (table, Cause.ADOPTED) and request.state in comes:
            return request.request_id
    return state.submit(Scope.TABLE, table, priority=_FIRST, cause=Cause.ADOPTED)
