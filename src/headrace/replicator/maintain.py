"""Maintenance of target tables at once, on a person's word, without Spark.

It needs no lock: its commits change no row and give way to whoever touched the same files, so it may run beside a
running replicator, whose batches then work over the newer version. One piece of work is in memory at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.errors import TargetConflict
from headrace.lake.checkpoint import is_due, write_checkpoint
from headrace.lake.delta_log import DeltaTable
from headrace.lake.errors import VersionNotFound
from headrace.lake.evolution import SCHEMA_PROPERTY
from headrace.lake.frontier import FrontierStore
from headrace.lake.ledger import identity, table_path
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import plan_rewrite, put_rewrite, sorted_by
from headrace.lake.settings import SettingsByTable, settings_for
from headrace.lake.snapshot import Snapshot
from headrace.lake.tidy import tidy
from headrace.model.schema import TableId
from headrace.observe.failpoints import failpoint
from headrace.registry.file import FileRegistry
from headrace.store import Location

__all__ = ["Maintainer", "TableMaintained"]

_GIVES_WAY = 10
"""Times in a row that a piece of work is done in vain before a table is left to the replicator that writes it."""


@dataclass(frozen=True, slots=True)
class TableMaintained:
    """What was done to one table.

    Attributes:
        table: ``schema.name``.
        pieces: of work.
        files_before: files of the table when it began.
        files_after: files of it now.
        bytes_before: their size.
        bytes_after: likewise.
        deleted_before: rows in them that were deleted.
        deleted_after: likewise.
        files_removed: files and log entries that no promised version needs, and that went.
        seconds: what it took.
        gave_way: whether something was left because somebody else kept writing the same files.
    """

    table: str
    pieces: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    deleted_before: int
    deleted_after: int
    files_removed: int
    seconds: float
    gave_way: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


class Maintainer:
    """The Delta tables of one pipeline.

    Args:
        lake: folder of all tables.
        pipeline: name under which positions are committed.
        registry: folder of the versions of tables.
        given: what was asked for single tables.
        sizes: what files should look like.
    """

    def __init__(
        self, lake: Location, pipeline: str, registry: Path, given: SettingsByTable, sizes: Sizes
    ) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._registry = FileRegistry(registry)
        self._given = given
        self._sizes = sizes
        self._frontier = FrontierStore(lake, pipeline)

    def tables(self) -> list[TableId]:
        """Return the tables of the newest frontier into which something was committed."""
        manifest = self._frontier.latest()
        named = [TableId.parse(name) for name in manifest.tables] if manifest else []
        return [table for table in named if self._is_ours(table, self._delta(table).latest())]

    def maintain(
        self, table: TableId, on_piece: Callable[[int], None] = lambda _pieces: None
    ) -> TableMaintained:
        """Bring a table's files into order, and let go of what no frontier needs.

        Args:
            table: any of the pipeline's.
            on_piece: told after each piece of work how many were done.

        Raises:
            VersionNotFound: there is no such table.
            TargetConflict: it is not one of this pipeline, or somebody changed its columns.
            CorruptTable: a file of it does not read.
            OSError: its folder refused.
        """
        begun, delta = time.monotonic(), self._delta(table)
        before = self._ours(table)
        key = self._sorted_by(table, before)
        pieces = in_vain = 0
        followed = delta.follow()
        while in_vain < _GIVES_WAY and (now := followed.latest()) is not None:
            if (rewrite := plan_rewrite(now, key, self._sizes)) is None:
                break
            actions = rewrite.write()
            failpoint("maintenance.files_written")
            done = put_rewrite(rewrite, actions, followed.latest)
            if done is None:
                in_vain += 1
                continue
            failpoint("maintenance.after_commit")
            if is_due(done.version, now.properties):
                write_checkpoint(now.folder, done.version, delta.state(done.version))
            pieces, in_vain = pieces + 1, 0
            on_piece(pieces)
        removed = self._tidy(table)
        after = self._ours(table)
        return TableMaintained(
            str(table),
            pieces,
            len(before.files),
            len(after.files),
            sum(file.size for file in before.files),
            sum(file.size for file in after.files),
            _deleted(before),
            _deleted(after),
            removed,
            round(time.monotonic() - begun, 3),
            in_vain > 0,
        )

    def _delta(self, table: TableId) -> DeltaTable:
        return DeltaTable(table_path(self._lake, table))

    def _ours(self, table: TableId) -> Snapshot:
        """Return a table of this pipeline as it is."""
        held = self._delta(table).latest()
        if held is None:
            raise VersionNotFound(
                f"There is no target table of {table}.",
                next_step="correct the name, or wait for the first batch: headrace status FILE.",
            )
        if not self._is_ours(table, held):
            raise TargetConflict(
                f"The Delta table in the place of {table} is not one of the replicator {self._pipeline}.",
                next_step="maintain it with what wrote it; headrace leaves it alone.",
            )
        return held

    def _is_ours(self, table: TableId, held: Snapshot | None) -> bool:
        if held is None or SCHEMA_PROPERTY not in held.properties:
            return False
        return identity(held, self._pipeline, table) in held.transactions

    def _sorted_by(self, table: TableId, held: Snapshot) -> tuple[str, ...]:
        settings = settings_for(table, self._given)
        schema = self._registry.get(int(held.properties[SCHEMA_PROPERTY]))
        return sorted_by(settings.renamed(schema), settings.mode)

    def _tidy(self, table: TableId) -> int:
        oldest = self._frontier.oldest()
        entry = oldest.tables.get(str(table)) if oldest else None
        if entry is None or entry.version < 0:
            return 0
        return tidy(table_path(self._lake, table), entry.version)


def _deleted(held: Snapshot) -> int:
    return sum(int(file.vector["cardinality"]) for file in held.files if file.vector)
