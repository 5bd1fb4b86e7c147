"""The composition root: the only module that knows which adapter stands behind which port.

In: a configuration. Out: a capture, an apply run, a preflight or a comparison, put together from the
packages. Adapters are imported where they are used, so that no process loads what it does not
need (the supervisor neither Spark nor PyArrow's compute kernels).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.replicator.worker import Report

if TYPE_CHECKING:
    from headrace.relay.capture import Capture, CaptureStatus
    from headrace.replicator.verify_report import VerifyReport
    from headrace.sources.base import Finding
    from headrace.sources.postgres import PostgresSource

__all__ = ["apply", "capture", "goal", "preflight", "verify"]


def preflight(config: Config) -> list[Finding]:
    """Return everything that stands in the way at the source; changes nothing."""
    return _source(config).preflight()


def goal(config: Config) -> tuple[int, frozenset[str]]:
    """Return the source's position now, and the names of the captured tables."""
    from headrace.sources.postgres.connection import connect
    from headrace.sources.postgres.lsn import parse_lsn

    source = _source(config)
    names = frozenset(str(schema.table) for schema in source.tables())
    with connect(source.settings) as session:
        scn = parse_lsn(session.value("SELECT pg_current_wal_insert_lsn()"))
    return scn, names


def verify(config: Config) -> VerifyReport:
    """Compare every captured table with its replica."""
    from headrace.replicator.verify import verify as compare

    source = _source(config)
    return compare(
        source.settings,
        sorted(str(schema.table) for schema in source.tables()),
        StatePaths.of(config).changelog,
        config.lake,
        config.name,
    )


@contextlib.contextmanager
def capture(config: Config, paths: StatePaths, report: Report) -> Iterator[Capture]:
    """Open what a capture stands on, and close it afterwards."""
    from headrace.changelog.jobs import jobs, register_job
    from headrace.registry.file import FileRegistry
    from headrace.relay.capture import Capture, CaptureSettings
    from headrace.replicator.capture_log import CaptureLog
    from headrace.state.store import StateStore
    from headrace.watermark.settings import DumpSettings

    # The log is opened first: whoever still writes it is shut out before the source is touched.
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(
            contextlib.closing(CaptureLog(paths.changelog, _log_settings(config)))
        )
        state = stack.enter_context(contextlib.closing(StateStore(paths.database)))
        if config.name not in jobs(paths.changelog):
            # Before the first block: nothing may be dropped that the target does not have.
            register_job(paths.changelog, config.name, 0)
        source = _source(config)
        source.prepare(fresh=state.get("incarnation") is None)
        yield Capture(
            source=source,
            log=log,
            registry=FileRegistry(paths.registry),
            state=state,
            settings=CaptureSettings(
                dump=DumpSettings(chunk_rows=config.dump.chunk_rows, delay_s=config.dump.delay_s),
                spool_folder=StatePaths.of(config).root / "spool",
            ),
            tables=source.tables(),
            on_status=lambda status: report(_capture_detail(status)),
        )


def apply(config: Config, paths: StatePaths, stop: threading.Event, report: Report) -> None:
    """Fold the change log into the target until asked to stop."""
    from headrace.spark.job import ApplySettings, run_apply

    settings = ApplySettings(
        pipeline=config.name,
        changelog=paths.changelog,
        lake=config.lake,
        spark_dir=paths.spark,
        master=config.spark.master,
        driver_memory=config.spark.driver_memory,
        spark_conf=dict(config.spark.conf),
        max_rows_per_batch=config.apply.max_rows,
        trigger_s=config.apply.trigger_s,
        freshness=paths.freshness,
    )
    run_apply(settings, stop, lambda status: report(status.to_json()))


def _source(config: Config) -> PostgresSource:
    from headrace.model.schema import TableId
    from headrace.sources.postgres import PostgresSource
    from headrace.sources.postgres.settings import ColumnChoice

    given = config.source
    source = PostgresSource(
        given.url.get_secret_value(),
        given.tables,
        given.exclude,
        given.slot,
        given.publication,
        given.watermark,
        config.name,
        [
            ColumnChoice(TableId.parse(name), frozenset(one.include), frozenset(one.exclude))
            for name, one in given.columns.items()
        ],
        given.ddl,
    )
    source.settings = replace(
        source.settings,
        heartbeat_s=given.heartbeat_s,
        spool_folder=StatePaths.of(config).root / "spool",
    )
    return source


def _log_settings(config: Config) -> Any:
    from headrace.changelog.config import ChangeLogSettings

    given = config.changelog
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
        "rows": status.rows,
        "remembered": status.remembered,
    }
