"""What happens on the reading side of a window: low mark, select, high mark, in this order.

Runs in the one thread that owns the chunk reader and the watermark writer; returns values, touches no state.

Source: DBLog, Algorithm 1 steps 2 to 4.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# pyarrow loads it with the first array that is made of one of numpy's: amid a window the log would wait for that.
import numpy.ma  # noqa: F401
import pyarrow as pa

from headrace.changelog.refusals import write_refusals
from headrace.errors import ConfigError
from headrace.model.change import table_arrow_schema
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import Visibility
from headrace.observe.failpoints import failpoint
from headrace.observe.spans import traced
from headrace.sources.base import (
    Bound,
    CatalogEntry,
    CatalogLook,
    CatalogReader,
    Chunk,
    ChunkReader,
    WatermarkWriter,
)
from headrace.watermark.slow import SlowQueries
from headrace.watermark.telling import SILENT, Telling

__all__ = ["KeysStart", "Reads", "Spool", "TableStart"]

SPOOL = ".spool"
"""Ending of the files in which tables without a key wait."""


@dataclass(frozen=True, slots=True)
class TableStart:
    """What is fixed when a table's dump begins; ``key_order`` as in `headrace.sources.base.Bound`."""

    schema: TableSchema
    until: tuple[str, ...] | None
    rows_estimated: int
    key_order: str


@dataclass(frozen=True, slots=True)
class KeysStart:
    """What is fixed when requested keys begin to be read.

    Attributes:
        keys: as the source writes them; none when they were refused.
        key_order: of the table's key now, as in `headrace.sources.base.CanonicalKeys`.
        keyless: whether the table has no key.
        refused: why the source does not take them for keys of the table, empty when it does.
    """

    keys: tuple[tuple[str, ...], ...]
    key_order: str
    keyless: bool = False
    refused: str = ""


@dataclass(slots=True)
class Spool:
    """A whole table under one snapshot, on disk until its window closes."""

    schema: TableSchema
    visibility: Visibility
    path: Path
    rows: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; the file is mapped, not loaded."""
        with pa.memory_map(str(self.path)) as source, pa.ipc.open_stream(source) as stream:
            yield from stream

    def discard(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


class Reads:
    """The reading side; every method is called from one thread.

    Args:
        chunks: bounded selects.
        marks: writes watermarks into the source's log.
        run_id: of this process, carried by every mark.
        spool_folder: where whole tables wait.
        telling: is told of marks and selects.
        clock: monotonic seconds.
        slow: watches every query.

    Attributes:
        selected: when the last select began and ended; read it when no call is under way.
    """

    def __init__(
        self,
        chunks: ChunkReader,
        marks: WatermarkWriter,
        run_id: str,
        spool_folder: Path,
        telling: Telling = SILENT,
        clock: Callable[[], float] = time.monotonic,
        slow: SlowQueries | None = None,
    ) -> None:
        self._slow = slow or SlowQueries()
        self._telling = telling
        self._clock = clock
        self.selected = (0.0, 0.0)
        self._chunks = chunks
        self._marks = marks
        self._run_id = run_id
        self._folder = spool_folder
        # A process that died left its tables behind; their windows are void.
        for leftover in spool_folder.glob(f"*{SPOOL}"):
            leftover.unlink(missing_ok=True)

    @property
    def looks(self) -> bool:
        """Whether the source's set of tables may change."""
        return isinstance(self._chunks, CatalogReader)

    def look(
        self,
        known: Mapping[str, CatalogEntry],
        settled: Collection[TableId],
        admitted: Collection[str],
    ) -> CatalogLook:
        """Return what the source's catalog says now."""
        assert isinstance(self._chunks, CatalogReader)
        with self._slow.watched("catalog", "all tables"):
            return self._chunks.look(known, settled, admitted)

    def start(self, table: TableId, predicate: str | None = None) -> TableStart:
        """Return the table's shape, its largest key now, and the catalog's estimate of its rows.

        Nobody knows how many rows a predicate holds for: the estimate is 0 then.

        Raises:
            ConfigError: a predicate for a table without a key, which is only ever read whole.
            SourceError: the source refuses the predicate.
        """
        with self._slow.watched("catalog", table):
            schema = self._chunks.describe(table)
        if predicate and not schema.key:
            raise ConfigError(
                f"{table} has no key, so no part of it can be read alone.",
                next_step="ask for the whole table.",
            )
        with self._slow.watched("bounds", table):
            bound = self._chunks.upper_bound(table, predicate) if schema.key else Bound(None)
        estimated = 0 if predicate else self._chunks.estimate_rows(table)
        return TableStart(schema, bound.key, estimated, bound.key_order)

    def start_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> KeysStart:
        """Return requested keys as the source writes them, or why it refuses them."""
        try:
            with self._slow.watched("keys", table):
                found = self._chunks.canonical_keys(table, keys)
        except ConfigError as error:
            # They may have been keys when they were given.
            now = self.start(table)
            return KeysStart((), now.key_order, not now.schema.key, str(error))
        return KeysStart(found.keys, found.key_order)

    @traced("capture.chunk")
    def chunk(
        self,
        token: str,
        table: TableId,
        after: Sequence[str] | None,
        until: Sequence[str],
        limit: int,
        predicate: str | None = None,
    ) -> Chunk:
        """Read one chunk between its marks."""
        self._mark(MarkKind.LOW, token)
        failpoint("window.after_low")
        begun = self._clock()
        with self._slow.watched("chunk", table):
            chunk = self._chunks.read(table, after, until, limit, predicate)
        self.selected = (begun, self._clock())
        self._tell(token, chunk)
        failpoint("window.after_select")
        self._mark(MarkKind.HIGH, token)
        failpoint("window.after_high")
        return chunk

    def keys(self, token: str, table: TableId, keys: Sequence[Sequence[str]]) -> Chunk:
        """Read the rows of some keys between marks."""
        self._mark(MarkKind.LOW, token)
        begun = self._clock()
        with self._slow.watched("keys", table):
            chunk = self._chunks.read_keys(table, keys)
        self.selected = (begun, self._clock())
        self._tell(token, chunk)
        self._mark(MarkKind.HIGH, token)
        return chunk

    def table(self, token: str, table: TableId) -> Spool:
        """Read a whole table under one snapshot between marks, to disk.

        Raises:
            DiskFull: there is no room for it.
            ChangeLogError: the folder refuses it for another reason.
        """
        with write_refusals(f"The folder {self._folder}, where {table} waits for its window,"):
            return self._spooled(token, table)

    def _spooled(self, token: str, table: TableId) -> Spool:
        self._mark(MarkKind.LOW, token)
        failpoint("window.after_low")
        with self._slow.watched("table", table):
            spool = self._written(table)
        try:
            failpoint("window.after_select")
            self._telling.selected(token, spool.schema, spool.rows)
            self._mark(MarkKind.HIGH, token)
        except BaseException:
            spool.discard()
            raise
        failpoint("window.after_high")
        return spool

    def _written(self, table: TableId) -> Spool:
        dump = self._chunks.read_table(table)
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=SPOOL, delete=False) as file:
            spool = Spool(dump.schema, dump.visibility, Path(file.name), 0)
            try:
                with pa.ipc.new_stream(file, table_arrow_schema(dump.schema)) as stream:
                    for batch in dump.batches:
                        stream.write_batch(batch)
                        spool.rows += batch.num_rows
            except BaseException:
                spool.discard()
                raise
        return spool

    def end(self, token: str) -> None:
        """Write the mark that ends a table's dump."""
        self._mark(MarkKind.END, token)

    def snapshot(self) -> Visibility:
        """Return what a read would see now."""
        return self._chunks.snapshot()

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return keys as the source renders them."""
        return self._chunks.render_keys(schema, rows)

    def key_rows(self, schema: TableSchema, keys: Sequence[Sequence[str]]) -> pa.RecordBatch:
        """Return a row for each rendered key, all other columns null."""
        return self._chunks.key_rows(schema, keys)

    def close(self) -> None:
        """Release both connections."""
        self._chunks.close()
        self._marks.close()

    def _mark(self, kind: MarkKind, token: str) -> None:
        mark = Mark(kind, token, self._run_id)
        self._marks.write(mark)
        self._telling.wrote(mark)

    def _tell(self, token: str, chunk: Chunk) -> None:
        rows = chunk.rows
        self._telling.selected(
            token, chunk.schema, rows.num_rows, rows, chunk.last_key, cut=chunk.cut
        )
