"""``format("headrace")``: the change log as a Spark source, batch and streaming.

Options::

    path        folder of the change log
    relay       in its place: URLs of relays that serve it, with commas between; when one fails the next is asked
    source      with relay: the source's name there
    token       with relay: sent to it; never logged or shown
    ca          with relay: PEM file of the authority that signed its certificate; read where the driver runs
    patience_s  with relay: how long one that does not answer or go on is waited for, and others are asked; 60
    table       "schema.name"
    filter      JSON object with columns, partition or where, as a relay's filters have them
    from_scn    exclusive begin of a batch read, and of a new stream; 0 is the beginning of time
    to_scn      inclusive end of a batch read; what the log covers by default
    schema_id   version of the table to read in; the newest in the range by default
    slices      most tasks of a read
    max_rows, max_bytes   most of a micro-batch, before the filter; a larger transaction is a micro-batch of its own

Offsets are ``{"scn": n}``; each stands between two transactions. Rows are typed by the registry and go to
Spark as Arrow. Of a folder and of a relay over it the rows are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.model.change import change_schema
from headrace.model.schema import TableSchema
from headrace.spark.columns import spark_ddl
from headrace.spark.opened import OpenedLog
from headrace.spark.options import SourceOptions
from headrace.spark.slices import Limits, Slice, batch_end

__all__ = ["HeadraceSource", "register_source"]


def register_source(spark: SparkSession) -> None:
    """Make ``format("headrace")`` known to a session; sessions do not inherit it."""
    spark.dataSource.register(HeadraceSource)


class HeadraceSource(DataSource):
    """The change log of one source database."""

    _version: TableSchema | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "headrace"

    def schema(self) -> str:
        """Return the columns of the rows that the options ask for, as DDL."""
        log = OpenedLog(SourceOptions.parse(self.options))
        try:
            # Readers keep to what is said here, whatever the log says later.
            self._version = log.version()
        finally:
            log.close()
        return spark_ddl(change_schema(self._version))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """Return the reader of a bounded range."""
        return _BatchReader(SourceOptions.parse(self.options), self._version)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002 - likewise
        """Return the reader of an unbounded range."""
        return _StreamReader(SourceOptions.parse(self.options), self._version)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch as Spark wants it: every field nullable, without metadata."""
    return pa.RecordBatch.from_arrays(
        batch.columns, schema=pa.schema([pa.field(f.name, f.type) for f in batch.schema])
    )


class _Partition(InputPartition):
    """A slice on its way to a task."""

    def __init__(self, value: Slice[Any], version: TableSchema) -> None:
        super().__init__(value)
        self.version = version


class _Reader:
    """What both readers do: slices into partitions in the driver, partitions into rows in tasks."""

    def __init__(self, options: SourceOptions, version: TableSchema | None) -> None:
        self._options = options
        self._version = version

    def _partitions(self, log: OpenedLog, after_scn: int, upto_scn: int) -> list[InputPartition]:
        if self._version is None:
            # Somebody gave the columns to Spark, which then does not ask for them.
            self._version = log.version()
        return [_Partition(part, self._version) for part in log.slices(after_scn, upto_scn)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one slice."""
        assert isinstance(partition, _Partition)
        log = OpenedLog(self._options)
        try:
            for batch in log.batches(partition.value, self._options.table, partition.version):
                yield _plain(batch)
        finally:
            log.close()


class _BatchReader(_Reader, DataSourceReader):
    """Reads one range."""

    def partitions(self) -> list[InputPartition]:
        """Return one partition per slice."""
        log = OpenedLog(self._options)
        try:
            begin = self._options.from_scn
            return self._partitions(log, begin, max(log.end(), begin))
        finally:
            log.close()


class _StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides where micro-batches end. Lives in one Python process for as long as its stream."""

    def __init__(self, options: SourceOptions, version: TableSchema | None) -> None:
        super().__init__(options, version)
        self._log: OpenedLog | None = None
        self._last_end: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave open files and connections behind: tasks open their own."""
        return {**self.__dict__, "_log": None}

    def _open(self) -> OpenedLog:
        if self._log is None:
            self._log = OpenedLog(self._options)
        return self._log

    def initialOffset(self) -> dict[str, int]:
        """Return where a new stream begins."""
        return {"scn": self._options.from_scn}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the row limit; the byte limit is kept beside it."""
        return ReadMaxRows(self._options.limits.rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the newest position; the stream ends there."""
        self._last_end = self._open().end()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return where the next micro-batch ends, ``start`` when there is none."""
        begin = start["scn"]
        log = self._open()
        end = log.end() if self._last_end is None else self._last_end
        if end <= begin:
            return start
        allowed = self._limits(limit)
        return {"scn": end if allowed is None else batch_end(log.log, begin, end, allowed)}

    def _limits(self, limit: ReadLimit) -> Limits | None:
        """Return what Spark's limit leaves of ours; None when it wants all."""
        if isinstance(limit, ReadAllAvailable):
            return None
        if isinstance(limit, ReadMaxRows):
            return Limits(limit.max_rows, self._options.limits.bytes)
        return self._options.limits

    def reportLatestOffset(self) -> dict[str, int]:
        """Return the newest position of the log, for Spark's progress reports."""
        return {"scn": self._open().end()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return one partition per slice of a micro-batch."""
        return self._partitions(self._open(), start["scn"], end["scn"])

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: retention follows the positions of registered jobs, not those of streams."""

    def stop(self) -> None:
        """Release the log."""
        if self._log is not None:
            self._log.close()
        self._log = None
