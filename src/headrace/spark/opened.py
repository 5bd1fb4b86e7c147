"""A change log that ``format("headrace")`` reads, opened where it is used: in the driver and in each task."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

from headrace.changelog.reader import ChangeLogReader
from headrace.changelog.refs import BlockRef
from headrace.changelog.tail import Tail
from headrace.client import HttpSettings, Settings
from headrace.client.ranges import Ranges
from headrace.client.trust import believing
from headrace.errors import ConfigError
from headrace.model.block import Block
from headrace.model.schema import TableId, TableSchema
from headrace.registry.file import FileRegistry
from headrace.spark.log import Log, Registry
from headrace.spark.options import RelayAddress, SourceOptions
from headrace.spark.relayed import RelayLog, RelayRegistry
from headrace.spark.rows import change_batches
from headrace.spark.slices import Slice, cut, newest_version, versions_of
from headrace.wire.filters import BoundFilter, Filter

__all__ = ["OpenedLog"]

_BUFFER_BYTES = 32 * 2**20
"""Received by a task and not yet on its way to Spark."""
_WAIT_MS = 1000


class OpenedLog:
    """The log and its table versions.

    Attributes:
        log: all of it; refs and the versions of tables are told by it.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        filter_ = options.filter
        self._ranges: Ranges | None = None
        self.log: Log[Any]
        self._rows: Log[Any]
        self._registry: Registry
        if isinstance(options.place, RelayAddress):
            self._ranges = _ranges(options.place)
            self._registry = RelayRegistry(self._ranges)
            whole = Filter(tables=(str(options.table),))
            self.log = RelayLog(self._ranges, whole)
            self._rows = self.log if filter_ is None else RelayLog(self._ranges, filter_)
        else:
            reader = ChangeLogReader(options.place)
            self._registry = FileRegistry(options.place / "schemas")
            self.log = self._rows = reader
            if filter_ is not None:
                self._rows = _Filtered(reader, filter_.bound(self._registry.get))
        self._narrowed: Registry = self._registry
        if filter_ is not None:
            self._narrowed = _Narrowed(filter_.bound(self._registry.get))

    def end(self) -> int:
        """Return where a batch read ends."""
        return self._end(self.log.tail())

    def version(self) -> TableSchema:
        """Return the table version that rows are read in.

        Raises:
            ConfigError: the range says nothing of the table.
        """
        options = self._options
        if options.schema_id:
            return self._narrowed.get(options.schema_id)
        tail = self.log.tail()
        # A stream that goes on from its checkpoint may have begun before what the log still holds.
        begin, end = max(options.from_scn, tail.oldest_scn), self._end(tail)
        refs = list(self.log.refs(begin, end)) if begin < end else []
        found = newest_version(self.log, self._registry, options.table, refs, begin, end)
        if found is None:
            raise ConfigError(
                f"The change log {self._name} has no change of {options.table} in this range.",
                next_step="name a table that is captured, or widen from_scn and to_scn.",
            )
        return self._narrowed.get(found.schema_id)

    def slices(self, after_scn: int, upto_scn: int) -> list[Slice[Any]]:
        """Return the slices of a range."""
        refs = list(self.log.refs(after_scn, upto_scn))
        return cut(refs, after_scn, upto_scn, self._options.slices)

    def batches(
        self, part: Slice[Any], table: TableId, schema: TableSchema
    ) -> Iterator[pa.RecordBatch]:
        """Yield a table's changes in one slice, in the columns of ``schema``."""
        ids = versions_of(part.refs, self._registry, table)
        # Names stand for themselves here: each version says what its columns are called.
        held = {i: {name: name for name in self._narrowed.get(i).names} for i in ids}
        return change_batches(self._rows, self._narrowed, schema, held, part)

    def close(self) -> None:
        """Let go of connections."""
        if self._ranges is not None:
            self._ranges.close()

    def _end(self, tail: Tail) -> int:
        wanted = self._options.to_scn
        return tail.covered_scn if wanted is None else min(wanted, tail.covered_scn)

    @property
    def _name(self) -> str:
        place = self._options.place
        return place.source if isinstance(place, RelayAddress) else place.name


def _ranges(place: RelayAddress) -> Ranges:
    settings = Settings(
        buffer_bytes=_BUFFER_BYTES,
        pull_wait_ms=_WAIT_MS,
        patience_s=place.patience_s,
        http=HttpSettings(
            token=place.token, tls=believing(place.authority) if place.authority else None
        ),
    )
    return Ranges(place.urls, place.source, settings)


class _Filtered:
    """A folder's log of which a filter leaves a part, as a relay does."""

    def __init__(self, reader: ChangeLogReader, bound: BoundFilter) -> None:
        self._reader = reader
        self._bound = bound

    def tail(self) -> Tail:
        return self._reader.tail()

    def refs(self, after_scn: int, upto_scn: int) -> Iterator[BlockRef]:
        return self._reader.refs(after_scn, upto_scn)

    def read(self, refs: Collection[BlockRef], schema_ids: Collection[int]) -> Iterator[Block]:
        return map(self._bound.apply, self._reader.read(refs, schema_ids))


class _Narrowed:
    """Table versions with the columns that a filter leaves."""

    def __init__(self, bound: BoundFilter) -> None:
        self._bound = bound

    def get(self, schema_id: int) -> TableSchema:
        return self._bound.schema(schema_id)
