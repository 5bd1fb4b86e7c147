"""Java's class archive for our sessions: Spark starts in half the time and with half the work.

A JVM spends most of a small job's time on reading and checking some 20,000 classes. An archive of what one
job loaded spares the next that work. It belongs to one JDK and one set of jars at their places, so it lies inside the
Python environment; a session without one, or with one that does not fit, merely starts more slowly.

``python -m headrace.spark.archive`` makes it, which the set-up does once; ``--print`` only says where it lies.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

__all__ = ["archive_options", "archive_path", "main"]


def archive_path() -> Path:
    """Return where the archive lies, made or not."""
    return Path(sys.prefix) / "share" / "headrace" / "spark-classes.jsa"


def archive_options() -> str:
    """Return the JVM options that use the archive, none when there is none."""
    path = archive_path()
    if not path.exists():
        return ""
    # Silent when it does not fit: then everything is loaded as ever.
    return f"-XX:SharedArchiveFile={path} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _typical_job(folder: Path, archive: Path) -> None:
    """Do once what apply does, in a JVM that writes its classes down when it ends."""
    from headrace.spark.session import SessionSettings, build_session

    session = build_session(
        SessionSettings(app_name="headrace-archive", driver_memory="1g", scratch=folder),
        # Everything runs once: compiled for speed it would not be faster.
        f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off -XX:TieredStopAtLevel=1",
    )
    rows = session.range(0, 100, 1, 1).mapInArrow(_same, "id BIGINT")
    rows.repartition(1).mapInArrow(_same, "id BIGINT").collect()
    session.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the archive, or say where it lies; a failure costs nothing but speed."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace.spark.archive", description="Java's class archive"
    )
    parser.add_argument("--print", action="store_true", help="print the path and no more")
    archive = archive_path()
    if parser.parse_args(arguments).print:
        print(archive)
        return 0
    archive.parent.mkdir(parents=True, exist_ok=True)
    draft = archive.with_suffix(".tmp")
    draft.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="headrace-archive-") as folder:
        _typical_job(Path(folder), draft)
        _end_jvm()
    if not draft.exists():
        return 1
    os.replace(draft, archive)
    return 0


def _end_jvm() -> None:
    """Let the JVM of this process end in good order and wait: it writes the archive on its way out."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
