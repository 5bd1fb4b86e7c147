"""One Spark session, set up for small, frequent batches into Delta tables.

In: a master and a few sizes. Out: a session with the Delta jars, which `headrace.spark.jars` finds; a server of Spark
Connect has its own. Every other module of this package takes a session and starts none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from headrace.errors import ApplyInterrupted, ConfigError
from headrace.spark.archive import archive_options
from headrace.spark.jars import delta_jars

__all__ = ["SessionSettings", "assure_alive", "build_session", "is_remote", "is_remote_master"]

_LOCAL_JVM = (
    # The collector's own threads would only compete with the tasks on the few cores of one host.
    "-XX:+UseSerialGC "
    # Small batches run much code a few times: compiling it for the last bit of speed costs more than it brings.
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_REMOTE = "sc://"
_WORKER_SITE = Path(__file__).with_name("worker_site")
_LOGGING = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What may differ between sessions.

    Attributes:
        app_name: shown in Spark's own pages.
        master: any Spark master URL, or that of a server of Spark Connect (``sc://…``).
        driver_memory: heap of the driver, which is also the executor when the master is local; a driver that runs
            already, as under spark-submit or in a server, has its own.
        shuffle_partitions: tasks after a shuffle; small, because batches are.
        scratch: folder for shuffle files and the warehouse, None for Spark's default.
        extra: settings that win over all others.
    """

    app_name: str = "headrace"
    master: str = "local[2]"
    driver_memory: str = "2g"
    shuffle_partitions: int = 2
    scratch: Path | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


def build_session(
    settings: SessionSettings | None = None, jvm_options: str | None = None
) -> SparkSession:
    """Return the process's session, started when there is none.

    Args:
        settings: what may differ between sessions.
        jvm_options: instead of those that use the class archive.

    Raises:
        ApplyInterrupted: a server of Spark Connect does not answer, or refuses a setting.
        ConfigError: what a client of it needs is not installed, or Java does not start.
    """
    settings = settings or SessionSettings()
    if is_remote_master(settings.master):
        return _connected(settings)
    # Workers take `python3` from PATH unless told; they need the driver's packages.
    if settings.master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        # On other machines it may lie elsewhere, which only a person knows.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(settings.master).appName(settings.app_name)
    options = archive_options() if jvm_options is None else jvm_options
    for name, value in (_defaults(settings, options) | dict(settings.extra)).items():
        builder = builder.config(name, value)
    begins = SparkContext._active_spark_context is None
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigError(
            f"Spark cannot be started: {error.getCondition() or type(error).__name__}.",
            next_step="install a Java runtime of version 17 or 21, or set JAVA_HOME to one; what it printed stands "
            "above in this log.",
        ) from error
    if begins:
        _find_no_sources(session)
    return session


def _find_no_sources(session: SparkSession) -> None:
    """Spare a JVM of ours the search for installed data sources.

    Spark starts a Python process for it before the first source is registered, which takes a second. Ours are
    registered by name, and nobody else's is used. What a search would have found has no setting, only this variable.
    """
    java: Any = session._jvm
    manager = getattr(java.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
    nothing = getattr(getattr(java.scala.collection.immutable, "Map$"), "MODULE$").empty()
    found = java.scala.Option.apply(nothing)
    getattr(getattr(manager, "MODULE$"), "dataSourceBuilders_$eq")(found)


def is_remote_master(master: str) -> bool:
    """Return whether a master is a server of Spark Connect."""
    return master.startswith(_REMOTE)


def is_remote(session: SparkSession) -> bool:
    """Return whether a session is a client of a server of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def assure_alive(session: SparkSession) -> None:
    """Look whether a session's Spark still works; a server of Spark Connect says so at the next batch.

    Raises:
        ApplyInterrupted: it was stopped.
        Py4JError, ConnectionError: its process is gone.
    """
    if is_remote(session):
        return
    java: Any = session._jsparkSession
    if java.sparkContext().isStopped():
        raise ApplyInterrupted(
            "Spark was stopped.", next_step="nothing is lost, it is started again."
        )


def _connected(settings: SessionSettings) -> SparkSession:
    """Return a session of a server, with what a client may set."""
    try:
        # Another process of ours may work there: a session of our own, not the one that is there.
        builder = SparkSession.builder.remote(settings.master)
        for name, value in (_of_session(settings) | dict(settings.extra)).items():
            builder = builder.config(name, value)
        return builder.create()
    except ImportError as error:
        raise ConfigError(
            "spark.master: a client of Spark Connect needs packages that are not installed.",
            next_step="install headrace with the extra connect: pip install 'headrace[connect]'.",
        ) from error
    except PySparkException as error:
        raise ApplyInterrupted(
            f"The server of Spark Connect gave no session: {type(error).__name__}.",
            next_step="start it, or correct spark.master and spark.conf; it is tried again.",
        ) from error


def _of_session(settings: SessionSettings) -> dict[str, str]:
    """Return the settings of ours that a session has for itself, whoever started Spark."""
    return {
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # A Delta snapshot is 50 tasks by default: most of the time of a small commit.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.schema.autoMerge.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # A broadcast goes through the driver: good for a small batch, not for a large one.
        "spark.sql.autoBroadcastJoinThreshold": "512k",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.ansi.enabled": "true",
    }


def _defaults(settings: SessionSettings, jvm_options: str) -> dict[str, str]:
    """Return the settings that every session of ours has."""
    jvm = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {jvm_options}"
    jars = [str(path) for path in delta_jars()]
    if settings.master.startswith("local["):
        jvm = f"{jvm} {_LOCAL_JVM}"
        # On the class path from the start, where the class archive reaches them.
        classes = {
            "spark.driver.extraClassPath": os.pathsep.join(jars),
            # Workers are on this machine, and take their packages from where ours come from.
            "spark.executorEnv.PYTHONPATH": str(_WORKER_SITE),
        }
    else:
        classes = {"spark.jars": ",".join(jars)}
    found = {
        **classes,
        **_of_session(settings),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": jvm,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.default.parallelism": str(settings.shuffle_partitions),
        # Kept rows of a table that is written once a second would fill the driver's listeners.
        "spark.sql.ui.retainedExecutions": "5",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.python.worker.reuse": "true",
    }
    if settings.master.startswith("local"):
        found["spark.driver.host"] = "127.0.0.1"
    if settings.scratch is not None:
        found["spark.local.dir"] = str(settings.scratch / "local")
        found["spark.sql.warehouse.dir"] = str(settings.scratch / "warehouse")
    return found
