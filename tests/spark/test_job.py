"""The apply job as a whole."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession

import headrace
from headrace.errors import ApplyInterrupted, CorruptSegment, HeadraceError, TargetError
from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore
from headrace.observe.failpoints import arm, disarm
from headrace.spark.failures import translate
from headrace.spark.job import ApplySettings, run_apply
from headrace.spark.read import frontier_at, read
from headrace.spark.status import ApplyStatus
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import Log

pytestmark = pytest.mark.spark

TABLE = table_of(3)
LIMIT_S = 500.0


class Job:
    """Runs the job until the frontier has reached what the log holds."""

    def __init__(self, spark: SparkSession, log: Log, folder: Path) -> None:
        self.spark = spark
        self.log = log
        self.lake = folder / "lake"
        self.spark_dir = folder / "spark"
        self.freshness = folder / "status" / "freshness.jsonl"
        self.seen: list[dict[str, object]] = []

    def settings(self, stop_at_scn: int | None) -> ApplySettings:
        return ApplySettings(
            pipeline="test",
            changelog=self.log.folder,
            lake=self.lake,
            spark_dir=self.spark_dir,
            trigger_s=0.0,
            max_rows_per_batch=4,
            stop_at_scn=stop_at_scn,
            freshness=self.freshness,
        )

    def run(self, stop_at_scn: int | None = None) -> None:
        goal = self.log.scn if stop_at_scn is None else stop_at_scn
        stop = threading.Event()
        timer = threading.Timer(LIMIT_S, stop.set)
        timer.start()
        try:
            run_apply(self.settings(goal), stop, self.take, spark=self.spark)
        finally:
            timer.cancel()
        assert not stop.is_set(), "the job did not reach its goal in time"

    def take(self, status: ApplyStatus) -> None:
        self.seen.append(status.to_json())

    def rows(self) -> Counter[tuple[object, ...]]:
        rows = DeltaTable(self.lake / "public" / "t").snapshot().to_table().to_pylist()
        return Counter(tuple(row.values()) for row in rows)


@req("C12", "C13", "C43", "C44")
def test_the_ledger_rules_from_start_to_start(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    job = Job(spark, log, tmp_path)
    log.write(TABLE, "+I(1,a,b) +I(2,c,d) | =U(1,x,?) | -U(2) +U(3,y,?)")
    log.complete(TABLE)
    job.run()
    log.write(TABLE, "=U(3,?,z) | +I(4,e,f)")
    job.run()
    expected = Counter({(1, "x", "b"): 1, (3, "y", "z"): 1, (4, "e", "f"): 1})
    assert job.rows() == expected
    version = DeltaTable(job.lake / "public" / "t").latest_version()
    # Another start has nothing to go by but what the tables say, and finds that nothing is left to do.
    job.run()
    assert DeltaTable(job.lake / "public" / "t").latest_version() == version
    assert job.rows() == expected
    check_reports(job)
    check_reads(spark, job)


def check_reports(job: Job) -> None:
    """The status and the freshness file say what happened."""
    last = job.seen[-1]
    assert last["frontier_scn"] == job.log.scn
    tables = last["tables"]
    assert isinstance(tables, dict)
    assert tables["public.t"]["state"] == "live"
    lines = [json.loads(line) for line in job.freshness.read_text().splitlines()]
    assert lines
    assert all(delay >= 0 for line in lines for _, delay in line["samples"])


def check_reads(spark: SparkSession, job: Job) -> None:
    """A frontier in the past shows the table of that time."""
    scns = FrontierStore(job.lake, "test").scns()
    old = read(spark, job.lake, "test", "public.t", at=40)
    assert frontier_at(job.lake, "test", 40).scn in scns
    assert {tuple(row) for row in old.collect()} == {(1, "x", "b"), (3, "y", "d")}
    new = read(spark, job.lake, "test", "public.t")
    assert {tuple(row) for row in new.collect()} == set(job.rows())
    with pytest.raises(TargetError, match=r"public\.nobody"):
        read(spark, job.lake, "test", "public.nobody")
    check_reads_by_file(spark, job)


def check_reads_by_file(spark: SparkSession, job: Job) -> None:
    """The pipeline's file is all that a reader needs; a time is as good as an SCN."""
    file = job.lake.parent / "test.yaml"
    source = {"type": "postgres", "url": "postgresql://nobody@nowhere/none", "tables": ["public.*"]}
    target = {"type": "delta", "path": str(job.lake)}
    file.write_text(json.dumps({"name": "test", "source": source, "target": target}))
    then = headrace.frontier(file, 40)
    moment = dt.datetime.fromtimestamp(then.commit_us / 1e6, dt.UTC)
    assert headrace.frontier(file, moment).commit_us <= then.commit_us
    assert headrace.frontier(file, moment + dt.timedelta(hours=1)) == headrace.frontier(file)
    with pytest.raises(TargetError, match="no frontier at or before 1999"):
        headrace.frontier(file, dt.datetime(1999, 1, 1))  # noqa: DTZ001 - a time without a zone is UTC
    rows = headrace.read(spark, file, "public.t", then)
    assert {tuple(row) for row in rows.collect()} == {(1, "x", "b"), (3, "y", "d")}
    for path in (job.lake / "public" / "t").glob("*.parquet"):
        path.unlink()
    with pytest.raises(TargetError, match=r"of public\.t has lost [1-9]\d* of its files") as caught:
        headrace.read(spark, file, "public.t", then)
    assert "VACUUM" in caught.value.next_step


@req("C88")
def test_a_stop_ends_the_flush_that_waits_and_lets_the_one_at_work_finish(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    """What waited for its time is left for the next start, however far away that time is."""
    job, stop = Job(spark, log, tmp_path), threading.Event()
    first = log.write(TABLE, "+I(1,a,b)")
    arm("apply.before_commit", stop.set)
    settings = replace(job.settings(None), trigger_s=3_600.0)
    run_apply(settings, stop, job.take, spark=spark)
    disarm()
    assert FrontierStore(job.lake, "test").scns() == (first,)
    assert job.rows() == Counter({(1, "a", "b"): 1})
    stop.clear()
    second = log.write(TABLE, "+I(2,c,d)")
    ended_at: list[float] = []

    def stop_behind(status: ApplyStatus) -> None:
        if status.frontier_scn == second and not ended_at:
            # This one is due in an hour.
            log.write(TABLE, "+I(3,e,f)")
            ended_at.append(time.monotonic())
            stop.set()

    run_apply(settings, stop, stop_behind, spark=spark)
    assert time.monotonic() - ended_at[0] < 60.0
    assert job.rows() == Counter({(1, "a", "b"): 1, (2, "c", "d"): 1})
    job.run()
    assert job.rows().total() == 3


def test_workers_are_kept_while_there_is_nothing_to_do(
    spark: SparkSession, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(TABLE, "+I(1,a,b)")
    stop, kept = threading.Event(), threading.Event()

    class Kept:
        def __init__(self, session: SparkSession) -> None:
            assert session is spark

        def used(self) -> None:
            pass

        def keep(self) -> None:
            kept.set()
            stop.set()

    monkeypatch.setattr("headrace.spark.job.Warm", Kept)
    timer = threading.Timer(60.0, stop.set)
    timer.start()
    try:
        run_apply(Job(spark, log, tmp_path).settings(None), stop, spark=spark)
    finally:
        timer.cancel()
    assert kept.is_set()


def test_a_spark_that_dies_while_nothing_comes_ends_the_job_by_name(
    log: Log, tmp_path: Path
) -> None:
    """Else nobody would hear of it before the next batch, whose tables would fail and be tried for ever."""
    log.write(TABLE, "+I(1,a,b)")
    program = [sys.executable, "-m", "tests.spark.orphaned_job", str(log.folder.parent)]
    found = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert found.stdout.startswith("TIMED: The apply job of test ended: ")


def test_an_error_of_ours_that_spark_hands_over_as_text_ends_the_job_by_its_name(
    spark: SparkSession, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def thrown(*_: object) -> None:
        raise Py4JError("Job aborted: headrace.errors.CorruptSegment: x is damaged. Next step: y.")

    monkeypatch.setattr("headrace.spark.job.Applier.process", thrown)
    log.write(TABLE, "+I(1,a,b)")
    with pytest.raises(CorruptSegment, match="x is damaged"):
        Job(spark, log, tmp_path).run()


class Elsewhere:
    """A session of a server of Spark Connect that is gone."""

    def range(self, *_: object) -> None:
        raise SparkConnectGrpcException("StatusCode.UNAVAILABLE")


Elsewhere.__module__ = "pyspark.sql.connect.session"


def elsewhere(log: Log, folder: Path) -> None:
    """Run a job whose Spark is elsewhere, and gone."""
    gone: Any = Elsewhere()
    settings = ApplySettings("test", log.folder, folder / "lake", folder / "spark")
    stop = threading.Event()
    timer = threading.Timer(60.0, stop.set)
    timer.start()
    try:
        run_apply(settings, stop, spark=gone)
    finally:
        timer.cancel()


def test_a_server_that_goes_away_while_nothing_comes_ends_the_job_by_name(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.spark.warm.KEEP_S", 0.0)
    monkeypatch.setattr("headrace.spark.job.Applier.process", lambda *_: None)
    log.write(TABLE, "+I(1,a,b)")
    with pytest.raises(ApplyInterrupted, match="SparkConnectGrpcException"):
        elsewhere(log, tmp_path)


def test_a_table_of_a_server_that_was_started_anew_ends_the_job(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our session went with the old server; others of its tables may have nothing to do for hours."""
    said = PySparkException("[NO_ACTIVE_SESSION] No active Spark session found.")
    failing = [translate(said, TABLE.table, None)]
    monkeypatch.setattr("headrace.spark.job.Applier.failing", failing)
    log.write(TABLE, "+I(1,a,b)")
    with pytest.raises(ApplyInterrupted, match="NO_ACTIVE_SESSION"):
        elsewhere(log, tmp_path)


def test_a_damaged_log_ends_the_job_by_name(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    job = Job(spark, log, tmp_path)
    log.write(TABLE, "+I(1,a,b)")
    log.complete(TABLE)
    job.run()
    log.write(TABLE, "+I(2,c,d)")
    log.writer.close()
    (segment,) = log.folder.glob("*.seg")
    raw = bytearray(segment.read_bytes())
    raw[-64 * 8] ^= 0xFF
    segment.write_bytes(raw)
    with pytest.raises(HeadraceError) as caught:
        job.run()
    assert isinstance(caught.value, CorruptSegment)
    assert "damaged" in caught.value.message
