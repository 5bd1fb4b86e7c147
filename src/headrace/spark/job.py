"""The apply job: a Structured Streaming query over the change log whose batches `headrace.spark.apply` carries out.

The query is the clock: it says when a batch is due and where it ends; over Spark Connect, `headrace.spark.polled` is.
What was applied is the tables' own word, so the query's checkpoint is thrown away at each start, and one that is older,
newer or gone changes nothing.
"""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import ApplyInterrupted
from headrace.lake.settings import SettingsByTable
from headrace.lake.sql.session import Warehouse
from headrace.observe.spans import span
from headrace.spark.again import Ask
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.aside import Replayed
from headrace.spark.at_work import Patience
from headrace.spark.failures import known
from headrace.spark.maintenance import MaintenanceSettings
from headrace.spark.polled import PolledQuery
from headrace.spark.session import SessionSettings, build_session, is_remote
from headrace.spark.source import register_source
from headrace.spark.status import ApplyStatus
from headrace.spark.targets.base import Target
from headrace.spark.targets.delta import DeltaTarget
from headrace.spark.targets.merge import MergeTarget
from headrace.spark.targets.parquet import ParquetTarget
from headrace.spark.warm import Warm
from headrace.store import Location

__all__ = ["ApplySettings", "run_apply"]

_LOG = logging.getLogger(__name__)
_TURN_S = 0.1
_ATTEMPTS = 6
"""Starts of the query without one batch between them after which the process is better started anew.

Spark gives a Python process ten seconds to come up, which a busy machine may need for other things.
"""
_STOP_LIMIT_S = 15.0


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
        on_status: told after every batch, from the job's threads.
        ask: asks for dumps of tables that are copied again.
        replayed: asked about replays of dead letters.
        spark: a session to use and leave open; by default the job has its own.

    Raises:
        HeadraceError: the job cannot go on; what was committed stays and the next start goes on from there.
    """
    session = spark or build_session(
        SessionSettings(
            app_name=f"headrace-{settings.pipeline}",
            master=settings.master,
            driver_memory=settings.driver_memory,
            scratch=settings.spark_dir,
            extra=settings.spark_conf,
        )
    )
    try:
        _await_log(settings.changelog, stop)
        if not stop.is_set():
            with closing(
                Applier(settings.options(), _target(settings, session), on_status, ask, replayed)
            ) as applier:
                _Clock(settings, session, applier, stop).run()
    except (Py4JError, ConnectionError) as error:
        raise _interrupted(settings, error) from error
    finally:
        if spark is None:
            # A Spark that has died cannot be stopped; how it died is the error that counts.
            with suppress(Py4JError, ConnectionError):
                session.stop()


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


def _interrupted(settings: ApplySettings, error: BaseException | None) -> ApplyInterrupted:
    return ApplyInterrupted(
        f"The apply job of {settings.pipeline} ended: {type(error).__name__}.",
        next_step="nothing is lost, it is started again; HEADRACE_DEBUG=1 puts the whole error into the log.",
    )


def _await_log(folder: Path, stop: threading.Event) -> None:
    """Return when the log has begun: before that there is no position to begin at."""
    reader = ChangeLogReader(folder)
    while not reader.tail().covered_scn and not stop.wait(_TURN_S):
        pass


class _Clock:
    """One streaming query and the thread that watches it."""

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
        self._busy = threading.Lock()
        self._ending = False
        self._error: Exception | None = None
        self._applied_scn = 0

    def run(self) -> None:
        """Work until there is no more reason to.

        Raises:
            HeadraceError: the job cannot go on.
        """
        start = self._applier.begin()
        self._applied_scn = start.from_scn
        attempts = 0
        while True:
            begun_at = self._applied_scn
            ended = self._watch(self._query(start.first_end))
            if ended is None:
                break
            attempts = 1 if self._applied_scn > begun_at else attempts + 1
            if (ours := known(ended)) is not None:
                raise ours from ended
            if attempts >= _ATTEMPTS:
                raise _interrupted(self._settings, ended) from ended
            _LOG.warning("the clock of %s stopped and is started again", self._settings.pipeline)
        reached = self._settings.stop_at_scn is not None and not self._stop.is_set()
        if reached and self._applier.failing:
            raise self._applier.failing[0]

    def _watch(self, query: StreamingQuery | PolledQuery) -> Exception | None:
        """Return when the query is over: None when it was ended on purpose, else what ended it."""
        try:
            while not self._over(query):
                self._use_pause()
                self._stop.wait(_TURN_S)
        finally:
            self._end(query)
        if self._error is not None:
            raise known(self._error) or self._error
        return query.exception()

    def _query(self, first_end: int) -> StreamingQuery | PolledQuery:
        settings = self._settings
        self._ending = False
        options = {
            "path": str(settings.changelog),
            "from_scn": str(self._applied_scn),
            "first_end": str(first_end),
            "max_rows": str(settings.max_rows_per_batch),
            "max_bytes": str(settings.max_bytes_per_batch),
            "trigger_s": str(settings.trigger_s),
        }
        if is_remote(self._spark):
            return PolledQuery(options, self._carry_out)
        register_source(self._spark)
        envelopes = self._spark.readStream.format("headrace").options(**options).load()
        return (
            envelopes.writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", str(self._fresh_checkpoint()))
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _fresh_checkpoint(self) -> Path:
        folder = self._settings.spark_dir / "checkpoints"
        shutil.rmtree(folder, ignore_errors=True)
        return folder.absolute() / uuid.uuid4().hex

    def _batch(self, envelopes: DataFrame, _batch_id: int) -> None:
        """Carry out one batch. Its number means nothing: after a restart the same number is another batch."""
        # A handful of positions; the rows themselves are read in tasks, by each table's own job.
        self._carry_out(max(row.to_scn for row in envelopes.select("to_scn").collect()))

    def _carry_out(self, end: int) -> None:
        """Apply what lies up to an SCN, unless there is a reason to end."""
        with self._busy:
            if self._ending or self._error is not None:
                return
            try:
                with span("apply.batch", from_scn=self._applied_scn, scn=end):
                    self._applier.process(self._applied_scn, end)
                self._applied_scn = end
                self._warm.used()
            except Exception as error:  # noqa: BLE001 - handed to the watching thread
                self._error = error

    def _use_pause(self) -> None:
        """Try failed tables again, bring files into order and keep workers, while no batch is at work."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            if self._error is None:
                self._applier.retry(self._applied_scn)
                self._applier.maintain()
                self._warm.keep()
        except Exception as error:  # noqa: BLE001 - raised by `_raise`
            self._error = error
        finally:
            self._busy.release()

    def _over(self, query: StreamingQuery | PolledQuery) -> bool:
        if self._stop.is_set() or self._error is not None or not query.isActive:
            return True
        goal = self._settings.stop_at_scn
        return goal is not None and self._applier.status.frontier_scn >= goal

    def _end(self, query: StreamingQuery | PolledQuery) -> None:
        """Let the batch at work finish, then stop the query between two batches."""
        self._ending = True
        if self._busy.acquire(timeout=_STOP_LIMIT_S):
            self._busy.release()
        query.stop()
