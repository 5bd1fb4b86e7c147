"""``format("headrace")``: the change log as a Spark source, batch and streaming.

Options::

    path        folder of the change log
    table       "schema.name"; without it the rows are slices of the log, not changes (the clock of the apply job)
    from_scn    exclusive begin of a batch read, and of a new stream; 0 is the beginning of time
    to_scn      inclusive end of a batch read; what the log covers by default
    schema_id   version of the table to read in; the newest in the range by default
    slices      most tasks of a read
    max_rows, max_bytes   most of a micro-batch; a larger transaction is a micro-batch of its own
    first_end   SCN that the first micro-batches after a start do not cross
    trigger_s   least time between two micro-batches while the stream keeps up

Offsets are ``{"scn": n}``; each stands between two transactions. Rows are typed by the registry and go to
Spark as Arrow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
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

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import ConfigError
from headrace.model.change import change_schema
from headrace.model.schema import TableId, TableSchema
from headrace.registry.file import FileRegistry
from headrace.spark.columns import spark_ddl
from headrace.spark.rows import change_batches
from headrace.spark.slices import Limits, Slice, batch_end, cut, newest_version, versions_of

__all__ = ["HeadraceSource", "register_source"]

_ENVELOPE = pa.schema(
    [
        pa.field("from_scn", pa.int64()),
        pa.field("to_scn", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
    ]
)
_MAX_ROWS = 400_000
_MAX_BYTES = 256 * 2**20


def register_source(spark: SparkSession) -> None:
    """Make ``format("headrace")`` known to a session; sessions do not inherit it."""
    spark.dataSource.register(HeadraceSource)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options, parsed once."""

    path: Path
    table: TableId | None
    from_scn: int
    to_scn: int | None
    schema_id: int
    slices: int
    limits: Limits
    first_end: int
    trigger_s: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> _Options:
        """Read what Spark hands over; names come in lower case.

        Raises:
            ConfigError: an option is missing or is no number.
        """
        if "path" not in options:
            raise ConfigError(
                'format("headrace") has no option path.',
                next_step="name the folder of a change log: .option('path', '<state>/changelog').",
            )
        try:
            return cls(
                Path(options["path"]),
                TableId.parse(options["table"]) if options.get("table") else None,
                int(options.get("from_scn", 0)),
                int(options["to_scn"]) if "to_scn" in options else None,
                int(options.get("schema_id", 0)),
                max(int(options.get("slices", 1)), 1),
                Limits(
                    int(options.get("max_rows", _MAX_ROWS)),
                    int(options.get("max_bytes", _MAX_BYTES)),
                ),
                int(options.get("first_end", 0)),
                float(options.get("trigger_s", 0)),
            )
        except ValueError as error:
            raise ConfigError(
                f'format("headrace") has an option that is no number ({error}).',
                next_step="correct the option.",
            ) from error


class HeadraceSource(DataSource):
    """The change log of one source database."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "headrace"

    def schema(self) -> str:
        """Return the columns of the rows that the options ask for, as DDL."""
        options = _Options.parse(self.options)
        if options.table is None:
            return spark_ddl(_ENVELOPE)
        schema = _Log(options).version()
        return spark_ddl(change_schema(schema))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """Return the reader of a bounded range."""
        return _BatchReader(_Options.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002 - likewise
        """Return the reader of an unbounded range."""
        return _StreamReader(_Options.parse(self.options))


class _Log:
    """The log and the registry beside it, opened where they are used."""

    def __init__(self, options: _Options) -> None:
        self.options = options
        self.reader = ChangeLogReader(options.path)
        self.registry = FileRegistry(options.path / "schemas")

    def end(self) -> int:
        """Return where a batch read ends."""
        covered = self.reader.tail().covered_scn
        wanted = self.options.to_scn
        return covered if wanted is None else min(wanted, covered)

    def version(self) -> TableSchema:
        """Return the table version that rows are read in.

        Raises:
            ConfigError: the range says nothing of the table.
        """
        options = self.options
        if options.schema_id:
            return self.registry.get(options.schema_id)
        assert options.table is not None
        begin, end = options.from_scn, self.end()
        refs = self.reader.refs(begin, end)
        found = newest_version(self.reader, self.registry, options.table, refs, begin, end)
        if found is None:
            raise ConfigError(
                f"The change log {options.path.name} has no change of {options.table} in this range.",
                next_step="name a table that is captured, or widen from_scn and to_scn.",
            )
        return found

    def slices(self, after_scn: int, upto_scn: int) -> list[Slice]:
        """Return the slices of a range."""
        refs = self.reader.refs(after_scn, upto_scn)
        return cut(refs, after_scn, upto_scn, self.options.slices)

    def batches(self, part: Slice) -> Iterator[pa.RecordBatch]:
        """Yield what one slice gives."""
        if self.options.table is None:
            yield _envelope(part)
            return
        schema = self.version()
        ids = versions_of(part.refs, self.registry, self.options.table)
        # Names stand for themselves here: each version says what its columns are called.
        held = {i: {name: name for name in self.registry.get(i).names} for i in ids}
        for batch in change_batches(self.reader, self.registry, schema, held, part):
            yield _plain(batch)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch as Spark wants it: every field nullable, without metadata."""
    return pa.RecordBatch.from_arrays(
        batch.columns, schema=pa.schema([pa.field(f.name, f.type) for f in batch.schema])
    )


def _envelope(part: Slice) -> pa.RecordBatch:
    values = (part.after_scn, part.upto_scn, part.rows, part.bytes)
    return pa.record_batch([pa.array([value], pa.int64()) for value in values], schema=_ENVELOPE)


class _Partition(InputPartition):
    """A slice on its way to a task."""

    def __init__(self, value: Slice) -> None:
        super().__init__(value)


class _BatchReader(DataSourceReader):
    """Reads one range."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one partition per slice."""
        log = _Log(self._options)
        begin = self._options.from_scn
        end = max(log.end(), begin)
        return [_Partition(part) for part in log.slices(begin, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one slice."""
        return _Log(self._options).batches(partition.value)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides where micro-batches end. Lives in one Python process for as long as its stream."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._log: _Log | None = None
        self._last_end: int | None = None
        self._next_at = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Leave open files behind: tasks open their own."""
        return {**self.__dict__, "_log": None}

    def _open(self) -> _Log:
        if self._log is None:
            self._log = _Log(self._options)
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
        """Return where the next micro-batch ends, ``start`` when it is not yet time for one."""
        begin = start["scn"]
        log = self._open()
        end = log.end() if self._last_end is None else self._last_end
        options = self._options
        if begin < options.first_end:
            end = min(end, options.first_end)
        if end <= begin:
            return start
        allowed = self._limits(limit)
        if allowed is not None:
            end = min(end, batch_end(log.reader, begin, end, allowed))
        behind = end < log.end()
        now = time.monotonic()
        if not behind and self._last_end is None and now < self._next_at:
            return start
        self._next_at = now + options.trigger_s
        return {"scn": end}

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
        return [_Partition(part) for part in self._open().slices(start["scn"], end["scn"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one slice."""
        return _Log(self._options).batches(partition.value)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: retention follows the positions of registered jobs, not those of streams."""

    def stop(self) -> None:
        """Release the log."""
        self._log = None
