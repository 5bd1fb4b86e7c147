"""The composition root: the only module that knows which adapter stands behind which port.

In: a configuration. Out: a capture, an apply run, a preflight or a comparison, put together from the
packages. Adapters are imported where they are used, so that no process loads what it does not
need (the supervisor neither Spark nor PyArrow's compute kernels).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from headrace.replicator.config import Config
from headrace.replicator.databases import database_of, open_database
from headrace.replicator.paths import StatePaths
from headrace.replicator.worker import Report

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.changelog.config import ChangeLogSettings
    from headrace.errors import HeadraceError
    from headrace.lake.pieces import Sizes
    from headrace.lake.sql.session import Warehouse
    from headrace.model.schema import TableId, TableSchema
    from headrace.relay.capture import Capture
    from headrace.relay.status import CaptureStatus
    from headrace.replicator.adopt import Adopted
    from headrace.replicator.assess.looks import Looks
    from headrace.replicator.assess.problems import Problem
    from headrace.replicator.config import ChangeLogConfig, MaintenanceConfig
    from headrace.replicator.maintain import TableMaintained
    from headrace.replicator.relay_config import RelaySourceConfig
    from headrace.replicator.replicas import Replicas
    from headrace.replicator.schema_diff import TableDiff
    from headrace.replicator.verify_report import VerifyReport
    from headrace.sources.base import Finding
    from headrace.spark.maintenance import MaintenanceSettings

__all__ = [
    "adopt",
    "apply",
    "capture",
    "drop_target",
    "follow",
    "goal",
    "log_settings",
    "log_watched",
    "looks",
    "maintain",
    "preflight",
    "recovers",
    "release_source",
    "repaired",
    "schema_diff",
    "verify",
]

_PATIENCE_S = 5.0
"""How long relays are asked where somebody waits for what they say."""


def preflight(config: Config) -> list[Finding]:
    """Return everything that keeps a run from starting; an object store gets one small object, which goes again."""
    from headrace.replicator.assess.folders import state_folder_problems, target_folder_problems
    from headrace.replicator.assess.problems import to_finding

    asked = looks(config)
    source = asked.source().preflight() if asked.source else asked.relays()
    folders = (*target_folder_problems(config), *state_folder_problems(config))
    return [*source, *asked.store(), *map(to_finding, folders)]


def looks(config: Config) -> Looks:
    """Return whom an assessment asks; nothing is opened yet."""
    from headrace.replicator.assess.looks import Looks
    from headrace.replicator.relay_config import RelaySourceConfig

    given = config.source
    relays = given if isinstance(given, RelaySourceConfig) else None
    return Looks(
        source=None if relays else lambda: open_database(config),
        relays=lambda: _relay_findings(config, relays) if relays else [],
        store=lambda: _store_findings(config),
        warehouse=lambda: _warehouse(config),
    )


def _relay_findings(config: Config, source: RelaySourceConfig) -> list[Finding]:
    """Return why the relays cannot be read from, if so."""
    from headrace.errors import HeadraceError
    from headrace.sources.base import Finding

    try:
        _reach(config, source)
    except HeadraceError as error:
        return [Finding("no-relay", error.message, error.next_step)]
    return []


def _reach(config: Config, source: RelaySourceConfig) -> int:
    """Return the SCN that the relays of a source cover."""
    from headrace.client import Settings
    from headrace.client.ranges import Ranges
    from headrace.replicator.following import http_of

    settings = Settings(http=http_of(source, "source"), patience_s=_PATIENCE_S)
    with contextlib.closing(Ranges(source.urls, config.source_name, settings)) as ranges:
        return int(ranges.reach()["covered_scn"])


def _store_findings(config: Config) -> list[Finding]:
    """Return why an object store cannot hold the tables, if so."""
    from headrace.errors import StoreRefused, StoreUnavailable, StoreUnfit
    from headrace.sources.base import Finding
    from headrace.store import check_store

    names = {
        StoreRefused: "store-refused",
        StoreUnavailable: "store-unavailable",
        StoreUnfit: "store-unfit",
    }
    try:
        check_store(config.lake)
    except (*names,) as error:
        return [Finding(names[type(error)], error.message, error.next_step)]
    return []


def goal(config: Config) -> tuple[int, frozenset[str]]:
    """Return the source's position now, and the names of the captured tables.

    Where a relay is read nobody here knows these: a table is one when its first changes come.
    """
    from headrace.replicator.relay_config import RelaySourceConfig

    if isinstance(config.source, RelaySourceConfig):
        return _reach(config, config.source), frozenset()
    source = open_database(config)
    names = frozenset(str(schema.table) for schema in source.tables())
    return source.end_scn(), names


def verify(config: Config, progress: Callable[[str], None] | None = None) -> VerifyReport:
    """Compare every captured table with its replica.

    Args:
        config: of the replicator.
        progress: called with one line about what is being done.

    Raises:
        ConfigError: there is none.
    """
    from headrace.errors import ConfigError
    from headrace.replicator.roles import is_run
    from headrace.replicator.verify import verify as compare
    from headrace.state.incarnation import Incarnation
    from headrace.state.store import StateStore

    source, paths = open_database(config), StatePaths.of(config)
    tables = sorted(str(schema.table) for schema in source.tables())
    if not tables:
        raise ConfigError(
            f"{config.name}: source.tables matches no table, so there is nothing to compare.",
            next_step="correct the patterns, or the rights of the role: headrace tables FILE --every lists the tables.",
        )
    with contextlib.closing(StateStore(paths.database)) as state:
        life = Incarnation.read(state)

    return compare(
        source,
        tables,
        paths.changelog,
        _replicas(config),
        progress=progress,
        life=life,
        fed=lambda: is_run(paths),
    )


def schema_diff(config: Config) -> list[TableDiff]:
    """Return how the captured tables differ from their targets; changes nothing."""
    from headrace.lake.settings import settings_for
    from headrace.replicator.asked import capabilities, schema_prefix, table_settings
    from headrace.replicator.assess.expressions import expected_schema
    from headrace.replicator.assess.names import name_problems
    from headrace.replicator.schema_diff import schema_diff as compare

    given, target, prefix = table_settings(config), capabilities(config), schema_prefix(config)

    def names(schema: TableSchema) -> Iterator[Problem]:
        settings = settings_for(schema.table, given)
        return name_problems(expected_schema(schema, settings), settings.mode, target, prefix)

    return compare(open_database(config).tables(), _replicas(config), names)


@contextlib.contextmanager
def capture(
    config: Config,
    paths: StatePaths,
    stop: threading.Event,
    report: Report,
    renewed: Callable[[], bool] = lambda: False,
) -> Iterator[Capture]:
    """Open what a capture stands on, and close it afterwards.

    Args:
        config: of the replicator.
        paths: of its state.
        stop: ends the capture.
        report: takes how it goes.
        renewed: whether another configuration of the source holds by now.
    """
    from headrace.changelog.jobs import jobs, register_job
    from headrace.lake.settings import settings_for
    from headrace.registry.file import FileRegistry
    from headrace.relay.capture import Capture
    from headrace.relay.recovery import begin_again
    from headrace.relay.settings import CaptureSettings
    from headrace.replicator import resync
    from headrace.replicator.asked import table_settings
    from headrace.replicator.capture_log import CaptureLog
    from headrace.replicator.held import held_scn, refuse_held
    from headrace.replicator.repair import comparable
    from headrace.replicator.resync import ResyncState
    from headrace.replicator.tap import open_tap
    from headrace.state.store import StateStore
    from headrace.watermark.settings import DumpSettings

    # The log is opened first: whoever still writes it is shut out before the source is touched.
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(
            contextlib.closing(CaptureLog(paths.changelog, log_settings(config.changelog)))
        )
        store = StateStore(paths.database, config.state.wait_s)
        state = stack.enter_context(contextlib.closing(store))
        if config.name not in jobs(paths.changelog):
            # Before the first block: nothing may be dropped that the target does not have.
            register_job(paths.changelog, config.name, 0)
        tap = stack.enter_context(open_tap(config.tap, paths.tap, stop))
        source, given = open_database(config), table_settings(config)
        registry = FileRegistry(paths.registry)
        given_source = database_of(config)

        def adopted(table: TableId) -> bool:
            return settings_for(table, given).adopted

        ordered = resync.read(state)
        begins_again = ordered is not None and ordered.state is ResyncState.ORDERED
        fresh = state.get("incarnation") is None
        # A log that is there led to the tables, whatever became of the state beside it.
        begins = fresh and not log.covered_scn
        held = held_scn(config.lake, config.name, _warehouse(config)) if begins else 0
        if not begins_again:
            refuse_held(config.name, held)
        source.prepare(fresh=begins_again or fresh)
        if ordered is not None and begins_again:
            # What empties a table is applied in a version that the log knows.
            shapes = {schema.table: registry.put(schema) for schema in source.tables()}
            kept = comparable(config.lake, config.name, state, shapes)
            spoken_for = state.spoken_for()
            awaiting = {t for t in shapes if adopted(t) and t not in spoken_for}
            begin_again(source, log, state, list(shapes), kept, awaiting, above=held)
            state.write([replace(ordered, state=ResyncState.REPAIRING).put])
        yield Capture(
            source=source,
            log=log,
            registry=registry,
            state=state,
            settings=CaptureSettings(
                dump=DumpSettings(**config.dump.model_dump()),
                spool_folder=StatePaths.of(config).root / "spool",
                adopted=adopted,
                slow_query_s=given_source.slow_query_s,
                large_value_bytes=given_source.large_value,
                renewed=renewed,
            ),
            tables=source.tables(),
            on_status=lambda status: report(
                {**_capture_detail(status), "tap_dropped": tap.dropped}
            ),
            tap=tap,
        )


def follow(
    config: Config, source: RelaySourceConfig, stop: threading.Event, report: Report
) -> None:
    """Copy the changes from relays until asked to stop."""
    from headrace.replicator.following import follow as copy

    copy(config, source, stop, lambda status: report(asdict(status)))


def log_watched(config: Config, report: Report) -> contextlib.AbstractContextManager[None]:
    """Report how much log the source keeps for us, for as long as the block runs."""
    from headrace.replicator.log_watch import log_watched as watched

    return watched(open_database(config).log_watch(), report)


def recovers(config: Config, error: HeadraceError) -> bool:
    """Order a resync if the configuration says so; return whether capture is to start again."""
    from headrace.replicator import resync
    from headrace.state.store import StateStore

    with contextlib.closing(StateStore(StatePaths.of(config).database)) as state:
        under_way = resync.read(state)
    ordered = under_way is not None and under_way.state is resync.ResyncState.ORDERED
    # An order that could not be carried out needs a person: a named slot, for one, is not ours to make.
    if database_of(config).on_lost_slot != "recover" or ordered:
        return False
    resync.order(config, reason=error.message)
    return True


def order_resync(config: Config, *, force: bool = False) -> None:
    """Keep a person's word that a lost position may be given up.

    Errors are those of `resync.order_if_needed` and `held.held_scn`.

    Args:
        config: of the replicator.
        force: order it where capture can go on, too.
    """
    from headrace.replicator.held import held_scn
    from headrace.replicator.resync import order, order_if_needed

    held = held_scn(config.lake, config.name, _warehouse(config)) > 0
    (order if force else order_if_needed)(config, held=held)


def repaired(config: Config, paths: StatePaths) -> contextlib.AbstractContextManager[None]:
    """Bring the tables back while the block runs, if a resync is under way."""
    from headrace.replicator.repair import repaired as bring_back

    return bring_back(paths, open_database(config), _replicas(config))


def apply(config: Config, paths: StatePaths, stop: threading.Event, report: Report) -> None:
    """Fold the change log into the target until asked to stop."""
    from headrace.store import check_store

    # Spark takes seconds to start, and would say the same in more words.
    check_store(config.lake)
    from headrace.replicator import rewind
    from headrace.replicator.asked import table_settings
    from headrace.replicator.config import ParquetTargetConfig, TargetConfig
    from headrace.replicator.copies import ask_for_copy
    from headrace.replicator.dead_letters import replayed
    from headrace.replicator.relay_config import RelaySourceConfig
    from headrace.spark.at_work import Patience
    from headrace.spark.job import ApplySettings, run_apply

    rewind.finish(config)
    given, source = config.target, config.source
    settings = ApplySettings(
        pipeline=config.name,
        changelog=paths.changelog,
        lake=config.lake,
        warehouse=_warehouse(config),
        vectors=not isinstance(given, TargetConfig) or given.vectors,
        merge=isinstance(given, TargetConfig) and given.merge,
        parquet=isinstance(given, ParquetTargetConfig),
        spark_dir=paths.spark,
        master=config.spark.master,
        driver_memory=config.spark.driver_memory,
        spark_conf=dict(config.spark.conf),
        # Capture takes no others from a database; a relay's log is copied with all that it has.
        tables=source.tables if isinstance(source, RelaySourceConfig) else (),
        max_rows_per_batch=config.apply.max_rows,
        trigger_s=config.apply.trigger_s,
        freshness=paths.freshness,
        within_s=config.objective.within_s if config.objective else None,
        settings=table_settings(config),
        maintenance=_maintenance(config),
        patience=Patience(
            config.retry.for_s, config.retry.longest_s, alone=config.retry.ends == "table"
        ),
        dead_letters=paths.dead_letters,
    )

    def ask(table: TableId, before: str) -> str:
        database_of(config)
        return ask_for_copy(paths.database, table, before)

    def came(request: str) -> bool | None:
        return replayed(paths.database, request)

    run_apply(settings, stop, lambda status: report(status.to_json()), ask, came)


def maintain(config: Config, table: str | None) -> list[TableMaintained]:
    """Bring the files of Delta tables into order; return what was done to each.

    Args:
        config: of the replicator, which may run.
        table: only this one, ``schema.name``; None for all.

    Raises:
        ConfigError: the target has no files that are ours to maintain, or the name is none.
        TargetError: a table is not there, not ours, or does not read.
    """
    from headrace.errors import ConfigError
    from headrace.model.schema import TableId
    from headrace.replicator.asked import table_settings
    from headrace.replicator.config import TargetConfig
    from headrace.replicator.maintain import Maintainer

    given = config.target
    if not isinstance(given, TargetConfig) or given.merge:
        raise ConfigError(
            "maintain: the target has no files that headrace writes anew.",
            next_step="a warehouse looks after its own, files of changes stay as they are; for tables written by MERGE "
            "use Delta's OPTIMIZE.",
        )
    if table is not None and "." not in table:
        raise ConfigError(
            f"maintain: {table} is no name of a table.", next_step="write schema.table."
        )
    registry = StatePaths.of(config).registry
    maintainer = Maintainer(
        config.lake, config.name, registry, table_settings(config), _sizes(given.maintenance)
    )
    chosen = maintainer.tables() if table is None else [TableId.parse(table)]
    return [maintainer.maintain(one) for one in chosen]


def adopt(config: Config, table: str, files: Path, at: str) -> Adopted:
    """Fill a table from a dump that was made elsewhere; errors as of `headrace.replicator.adopt.adopt`.

    Args:
        config: of the replicator, which may run.
        table: ``schema.name``.
        files: folder of the dump.
        at: the snapshot's position as the source writes it (an LSN, a file and a place), or an SCN.
    """
    from headrace.errors import ConfigError
    from headrace.model.schema import TableId
    from headrace.replicator.adopt import adopt as take_in

    name, database = TableId.parse(table), open_database(config)

    def parse(text: str, offset: int) -> int:
        return database.scn_of(text) + offset

    def catalog() -> TableSchema:
        found = [schema for schema in database.tables() if schema.table == name]
        if not found:
            raise ConfigError(
                f"adopt: {table} is no table that source.tables selects.",
                next_step="write schema.table as the source has it, or correct source.tables.",
            )
        return found[0]

    return take_in(config, name, files, at, parse, catalog)


def release_source(config: Config) -> None:
    """Remove slots, publication and watermarks that are the replicator's own; nothing where it reads from a relay."""
    from headrace.relay.slots import let_go_of_others, noted_slots
    from headrace.replicator.config import DatabaseConfig
    from headrace.state.store import StateStore

    if not isinstance(config.source, DatabaseConfig):
        return
    source, database = open_database(config), StatePaths.of(config).database
    source.drop()
    if not database.exists():
        return
    with contextlib.closing(StateStore(database)) as state:
        if noted_slots(state):
            let_go_of_others(source, state, source.incarnation())


def drop_target(config: Config) -> None:
    """Remove the replicator's tables from its target."""
    from headrace.replicator.discard import discard_target

    discard_target(config.lake, config.name, _warehouse(config))


def _sizes(given: MaintenanceConfig) -> Sizes:
    from headrace.lake.pieces import Sizes

    return Sizes(given.target_file, given.small_file, given.deleted)


def _maintenance(config: Config) -> MaintenanceSettings | None:
    """Return how apply keeps files in order, None when it does not."""
    from headrace.replicator.config import TargetConfig
    from headrace.spark.maintenance import MaintenanceSettings

    given = config.target
    if not isinstance(given, TargetConfig) or not given.maintenance.enabled:
        return None
    return MaintenanceSettings(_sizes(given.maintenance), given.maintenance.load)


def _warehouse(config: Config) -> Warehouse | None:
    """Return where the target tables are, None when they are files."""
    from headrace.errors import ConfigError
    from headrace.replicator.config import (
        DuckdbTargetConfig,
        MysqlTargetConfig,
        PostgresTargetConfig,
    )

    given = config.target
    if isinstance(given, DuckdbTargetConfig):
        try:
            from headrace.lake.sql.duckdb_file import DuckdbWarehouse
        except ModuleNotFoundError as error:
            raise ConfigError(
                "target.type: duckdb needs a package that is not installed.",
                next_step="install headrace with its extra: pip install 'headrace[duckdb]'.",
            ) from error
        return DuckdbWarehouse(given.path, given.memory)
    if isinstance(given, PostgresTargetConfig):
        from headrace.lake.sql.postgres import PostgresWarehouse

        return PostgresWarehouse(given.url.get_secret_value(), given.schema_prefix)
    if isinstance(given, MysqlTargetConfig):
        from headrace.lake.sql.mysql import MysqlWarehouse

        url = given.url.get_secret_value()
        return MysqlWarehouse(url, given.schema_prefix, given.extremes)
    return None


def _replicas(config: Config) -> Replicas:
    """Return how the target's tables are read."""
    from headrace.replicator.asked import table_settings
    from headrace.replicator.config import ParquetTargetConfig
    from headrace.replicator.replicas import DeltaReplicas, ParquetReplicas

    if isinstance(config.target, ParquetTargetConfig):
        return ParquetReplicas(config.target.path, config.name, table_settings(config))
    warehouse = _warehouse(config)
    if warehouse is None:
        return DeltaReplicas(config.lake, config.name, table_settings(config))
    from headrace.replicator.warehouse_replicas import WarehouseReplicas

    return WarehouseReplicas(warehouse, config.lake, config.name, table_settings(config))


def log_settings(given: ChangeLogConfig) -> ChangeLogSettings:
    """Return the settings of a change log."""
    from headrace.changelog.config import ChangeLogSettings

    return ChangeLogSettings(
        segment_bytes=given.segment,
        budget_bytes=given.budget,
        retain_bytes=given.retain,
        retain_s=given.retain_s,
    )


def _capture_detail(status: CaptureStatus) -> dict[str, Any]:
    return {
        "doing": status.state,
        "waits_for": status.detail,
        "complete_scn": status.complete_scn,
        "covered_scn": status.covered_scn,
        "commit_us": status.commit_us,
        "changes": status.changes,
        "remembered": status.remembered,
        "chunk_rows": status.chunk_rows,
        "log_rows_per_s": status.log_rows_per_s,
        "slow_queries": dict(status.slow.counts),
        "slowest_query_s": round(status.slow.slowest_s, 3),
        "slowest_query": status.slow.slowest,
        "large_values": status.large.count,
        "largest_value_bytes": status.large.largest_bytes,
        "largest_value": status.large.largest,
    }
