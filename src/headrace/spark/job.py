"""The apply job: cuts the change log into batches and has `headrace.spark.apply` carry them out, one after the other.

Spark does the work of a batch. When one is due, and where it ends, is said here, with `headrace.spark.clock`. What was
applied is the tables' own word: nothing else is remembered from one start to the next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import ApplyInterrupted, HeadraceError
from headrace.lake.settings import SettingsByTable
from headrace.lake.sql.session import Warehouse
from headrace.observe.spans import span
from headrace.spark.again import Ask
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.aside import Replayed
from headrace.spark.at_work import Patience
from headrace.spark.clock import BatchClock
from headrace.spark.failures import known
from headrace.spark.maintenance import MaintenanceSettings
from headrace.spark.pulse import pulse_of, pulse_of_start
from headrace.spark.session import (
    SessionSettings,
    assure_alive,
    build_session,
    is_remote,
    is_remote_master,
)
from headrace.spark.slices import Limits
from headrace.spark.status import ApplyStatus
from headrace.spark.targets.base import Target
from headrace.spark.targets.delta import DeltaTarget
from headrace.spark.targets.merge import MergeTarget
from headrace.spark.targets.parquet import ParquetTarget
from headrace.spark.warm import Warm
from headrace.store import Location

__all__ = ["ApplySettings", "run_apply"]

_TURN_S = 0.05
"""How often the log is asked for news: a small part of the time that the smallest batch takes."""


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """One apply job.

    Attributes:
        pipeline: name under which positions are committed.
        changelog: folder of the change log; need not exist yet.
        lake: folder of the frontier manifests, and of the tables unless a warehouse has them.
        warehouse: where the tables are instead, None for the folder.
        vectors: whether new tables may use deletion vectors.
        merge: whether Spark's MERGE writes the tables, and not commits of our own.
        parquet: whether they are plain files of changes, and no tables of Delta.
        spark_dir: Spark's own files; may be deleted whenever the job does not run.
        master: any Spark master, or the URL of a server of Spark Connect.
        driver_memory: heap of the driver.
        spark_conf: further Spark settings.
        tables: patterns ``schema.name``; empty means every table in the log.
        max_rows_per_batch: change rows of one batch, which ends at a transaction's end.
        max_bytes_per_batch: likewise.
        trigger_s: least time between two batches while the job keeps up.
        stop_at_scn: the job ends when the frontier has reached it; None means never.
        parallel_tables: tables worked on at the same time.
        freshness: file for freshness samples, None for none.
        within_s: from commit to visible, to be counted as in time; None where nobody asked.
        settings: what was asked for single tables.
        maintenance: of files between batches, None for none.
        patience: with tables that fail.
        dead_letters: folder of what is put aside, None where nothing is.
        silent_s: for how long Spark's process may leave a question open, or be there for none while it starts, before
            it is taken for frozen. The longest pauses for its memory take a minute or two.
    """

    pipeline: str
    changelog: Path
    lake: Location
    spark_dir: Path
    master: str = "local[2]"
    driver_memory: str = "2g"
    spark_conf: dict[str, str] = field(default_factory=dict)
    warehouse: Warehouse | None = None
    vectors: bool = True
    merge: bool = False
    parquet: bool = False
    tables: tuple[str, ...] = ()
    max_rows_per_batch: int = 2_000_000
    max_bytes_per_batch: int = 1024 * 2**20
    trigger_s: float = 1.0
    stop_at_scn: int | None = None
    parallel_tables: int = 2
    freshness: Path | None = None
    within_s: float | None = None
    settings: SettingsByTable = ()
    maintenance: MaintenanceSettings | None = field(default_factory=MaintenanceSettings)
    patience: Patience = field(default_factory=Patience)
    dead_letters: Path | None = None
    silent_s: float = 300.0

    def options(self) -> ApplyOptions:
        """Return the part that concerns applying, not streaming."""
        return ApplyOptions(
            pipeline=self.pipeline,
            changelog=self.changelog,
            lake=self.lake,
            tables=self.tables,
            max_rows=self.max_rows_per_batch,
            parallel_tables=self.parallel_tables,
            freshness=self.freshness,
            within_s=self.within_s,
            settings=self.settings,
            maintenance=self.maintenance,
            patience=self.patience,
            dead_letters=self.dead_letters,
        )


def run_apply(
    settings: ApplySettings,
    stop: threading.Event,
    on_status: Callable[[ApplyStatus], None] = lambda _status: None,
    ask: Ask | None = None,
    replayed: Replayed | None = None,
    *,
    spark: SparkSession | None = None,
) -> None:
    """Apply the change log until ``stop`` is set or the frontier has reached the wanted SCN.

    Args:
        settings: of the job.
        stop: asks the job to end; a batch at work is finished first.
        on_status: told after every batch and now and then beside it, from the job's threads.
        ask: asks for dumps of tables that are copied again.
        replayed: asked about replays of dead letters.
        spark: a session to use and leave open; by default the job has its own.

    Raises:
        HeadraceError: the job cannot go on; what was committed stays and the next start goes on from there.
    """
    session = spark or _started(settings)
    try:
        _await_log(settings.changelog, stop)
        if not stop.is_set():
            applier = Applier(
                settings.options(), _target(settings, session), on_status, ask, replayed
            )
            with (
                closing(applier),
                pulse_of(session, applier.tell, settings.silent_s),
            ):
                _Job(settings, session, applier, stop).run()
    except HeadraceError:
        raise
    except Exception as error:
        # Tasks hand errors of ours over as text.
        if (ours := known(error)) is not None:
            raise ours from error
        if not isinstance(error, Py4JError | ConnectionError | PySparkException):
            raise
        raise ApplyInterrupted(
            f"The apply job of {settings.pipeline} ended: {type(error).__name__}.",
            next_step="nothing is lost, it is started again; HEADRACE_DEBUG=1 puts the whole error into the log.",
        ) from error
    finally:
        if spark is None:
            # A Spark that has died cannot be stopped; how it died is the error that counts.
            with suppress(Py4JError, ConnectionError, PySparkException):
                session.stop()


def _started(settings: ApplySettings) -> SparkSession:
    """Return the job's own session.

    Raises:
        ApplyInterrupted: Spark's process stands still, or a server of Spark Connect gives no session.
        ConfigError: as of `build_session`.
    """
    given = _session_settings(settings)
    if is_remote_master(given.master):
        return build_session(given)
    with pulse_of_start(settings.silent_s):
        return build_session(given)


def _session_settings(settings: ApplySettings) -> SessionSettings:
    return SessionSettings(
        app_name=f"headrace-{settings.pipeline}",
        master=settings.master,
        driver_memory=settings.driver_memory,
        scratch=settings.spark_dir,
        extra=settings.spark_conf,
    )


def _target(settings: ApplySettings, session: SparkSession) -> Target:
    lake, name, parallel = settings.lake, settings.pipeline, settings.parallel_tables
    if settings.warehouse is not None:
        return _in_warehouse(settings.warehouse, session, name, parallel)
    if settings.parquet:
        assert isinstance(lake, Path)
        return ParquetTarget(session, lake, name, parallel=parallel)
    if settings.merge:
        return MergeTarget(session, lake, name, parallel=parallel)
    given, vectors = settings.settings, settings.vectors
    return DeltaTarget(session, lake, name, vectors=vectors, parallel=parallel, settings=given)


def _in_warehouse(warehouse: Warehouse, session: SparkSession, name: str, parallel: int) -> Target:
    # Drivers of databases are loaded where they are used: DuckDB's is an extra.
    if warehouse.dialect.name == "duckdb":
        from headrace.lake.sql.duckdb_file import DuckdbWarehouse
        from headrace.spark.targets.duckdb import DuckdbTarget

        assert isinstance(warehouse, DuckdbWarehouse)
        return DuckdbTarget(session, warehouse, name)
    if warehouse.dialect.name == "mysql":
        from headrace.lake.sql.mysql import MysqlWarehouse
        from headrace.spark.targets.mysql import MysqlTarget

        assert isinstance(warehouse, MysqlWarehouse)
        return MysqlTarget(session, warehouse, name, parallel=parallel)
    from headrace.lake.sql.postgres import PostgresWarehouse
    from headrace.spark.targets.postgres import PostgresTarget

    assert isinstance(warehouse, PostgresWarehouse)
    return PostgresTarget(session, warehouse, name, parallel=parallel)


def _await_log(folder: Path, stop: threading.Event) -> None:
    """Return when the log has begun: before that there is no position to begin at."""
    reader = ChangeLogReader(folder)
    while not reader.tail().covered_scn and not stop.wait(_TURN_S):
        pass


class _Job:
    """Batches one after the other, and what is done in the pauses between them."""

    def __init__(
        self,
        settings: ApplySettings,
        spark: SparkSession,
        applier: Applier,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._applier = applier
        self._stop = stop
        self._warm = Warm(spark)
        self._applied_scn = 0

    def run(self) -> None:
        """Work until there is no more reason to.

        Raises:
            HeadraceError: the job cannot go on.
        """
        settings, start = self._settings, self._applier.begin()
        self._applied_scn = start.from_scn
        limits = Limits(settings.max_rows_per_batch, settings.max_bytes_per_batch)
        log = ChangeLogReader(settings.changelog)
        clock = BatchClock(log, limits, settings.trigger_s, start.first_end)
        while not self._over():
            end = clock.due(self._applied_scn)
            if end is not None:
                self._carry_out(end)
            else:
                self._use_pause()
                self._stop.wait(_TURN_S)
        if not self._stop.is_set() and self._applier.failing:
            raise self._applier.failing[0]

    def _carry_out(self, end: int) -> None:
        """Apply what lies up to an SCN."""
        with span("apply.batch", from_scn=self._applied_scn, scn=end):
            self._applier.process(self._applied_scn, end)
        self._applied_scn = end
        self._warm.used()

    def _use_pause(self) -> None:
        """Try failed tables again, bring files into order and keep workers, while no batch is at work."""
        self._applier.retry(self._applied_scn)
        self._applier.maintain()
        self._warm.keep()

    def _over(self) -> bool:
        goal = self._settings.stop_at_scn
        if self._stop.is_set() or (goal is not None and self._applier.status.frontier_scn >= goal):
            return True
        # Tables that fail are tried again and again, which is of no use where their Spark is gone.
        assure_alive(self._spark)
        if is_remote(self._spark):
            self._assure_known()
        return False

    def _assure_known(self) -> None:
        """Give a session up in which a table was interrupted: its server may have been started anew without it.

        Raises:
            ApplyInterrupted: there is such a table.
        """
        for error in self._applier.failing:
            if isinstance(error, ApplyInterrupted):
                raise error
