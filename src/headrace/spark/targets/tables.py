"""Delta tables under one folder: what each says of itself, and its columns; rows are the targets' business.

Nothing here needs Spark: a table's columns change by an entry of its log.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from headrace.errors import HeadraceError, TargetConflict, TargetUnwritable
from headrace.lake.actions import check_writable
from headrace.lake.checkpoint import is_due, write_checkpoint
from headrace.lake.commit import put_commit
from headrace.lake.delta_log import DeltaTable, FollowedTable
from headrace.lake.evolution import (
    SCHEMA_PROPERTY,
    SHAPE_PROPERTY,
    WIDENING,
    create_actions,
    evolve_actions,
    numbers_of,
)
from headrace.lake.ledger import app_id, applied_scn, table_path
from headrace.lake.modes import Mode
from headrace.lake.snapshot import Snapshot
from headrace.lake.tidy import tidy
from headrace.model.schema import TableId, TableSchema
from headrace.spark.failures import translate
from headrace.spark.targets.base import Capabilities, TargetState

__all__ = ["DeltaTables", "capabilities", "translated"]


def capabilities(
    name: str, modes: Iterable[Mode] = (Mode.MIRROR,), *, maintenance: bool = False
) -> Capabilities:
    """Return what every implementation that writes these tables can do, and what one of them can."""
    return Capabilities(
        name=name,
        format="delta",
        atomic_ledger=True,
        keyless=True,
        truncate=True,
        add_column=True,
        drop_column=True,
        widening=WIDENING,
        versions=True,
        distributed=True,
        modes=frozenset(mode.value for mode in modes),
        shaping=True,
        maintenance=maintenance,
    )


def translated(
    outcome: TargetState | Exception | None, schema: TableSchema
) -> TargetState | HeadraceError:
    """Return what came of a table's batch, an error as one of ours with the original chained."""
    if isinstance(outcome, TargetState):
        return outcome
    assert outcome is not None
    error = translate(outcome, schema.table, schema)
    if error is not outcome:
        error.__cause__ = outcome
    return error


class DeltaTables:
    """The tables of one pipeline.

    Args:
        lake: folder of all tables.
        pipeline: name under which positions are committed.
        vectors: whether new tables may use deletion vectors.
    """

    def __init__(self, lake: Path, pipeline: str, *, vectors: bool) -> None:
        self._lake = lake.absolute()
        self._pipeline = pipeline
        self._vectors = vectors
        self._followed: dict[TableId, FollowedTable] = {}

    def folder(self, table: TableId) -> Path:
        """Return where a table lies."""
        return table_path(self._lake, table)

    def application(self, table: TableId) -> str:
        """Return the identifier under which positions are committed."""
        return app_id(self._pipeline, table)

    def state(self, table: TableId) -> TargetState | None:
        """Return what the table's own log says, None when there is no table."""
        snapshot = self.followed(table).latest()
        return None if snapshot is None else self.state_of(snapshot, table)

    def followed(self, table: TableId) -> FollowedTable:
        """Return the table's newest version."""
        if table not in self._followed:
            self._followed[table] = DeltaTable(self.folder(table)).follow()
        return self._followed[table]

    def committed(self, table: TableId) -> TargetState:
        """Return what a table says behind a commit of ours, once a checkpoint that is due was written."""
        snapshot = self.existing(table)
        if is_due(snapshot.version, snapshot.properties):
            write_checkpoint(snapshot.folder, snapshot.version, self.followed(table).state())
        return self.state_of(snapshot, table)

    def tidy(self, table: TableId, promised: int) -> None:
        """Let go of files that no version from ``promised`` on needs; what refuses is tried again another time."""
        with suppress(HeadraceError, OSError):
            tidy(self.folder(table), promised)

    def state_of(self, snapshot: Snapshot, table: TableId) -> TargetState:
        """Return what one version of a table says."""
        return TargetState(
            version=snapshot.version,
            applied_scn=applied_scn(snapshot, self._pipeline, table),
            schema_id=int(snapshot.properties.get(SCHEMA_PROPERTY, "0")),
            shape=snapshot.properties.get(SHAPE_PROPERTY, ""),
        )

    def existing(self, table: TableId) -> Snapshot:
        """Return the newest version of a table that is there.

        Raises:
            TargetConflict: it is gone.
        """
        snapshot = self.followed(table).latest()
        if snapshot is None:
            raise TargetConflict(
                f"The target table of {table} vanished during a commit.",
                next_step="let headrace be the only writer of the table; the batch is tried again.",
            )
        return snapshot

    def evolve(self, schema: TableSchema) -> TargetState:
        """Create the table, or bring its columns to ``schema``; nothing when they are there.

        Raises:
            IncompatibleSchemaChange: the change cannot be carried over; names table and column.
            TargetUnwritable: the folder refused.
        """
        table = schema.table
        folder = self.folder(table)
        if folder.exists() and not folder.is_dir():
            raise TargetUnwritable(
                f"The target table of {table} cannot be written: {folder.name} is a file.",
                next_step="move the file away; the batch is tried again.",
            )
        snapshot = self.followed(table).latest()
        if snapshot is not None:
            state = self.state_of(snapshot, table)
            same = state.schema_id == schema.schema_id
            # Asked last: it parses the table's schema, and most batches tell no numbers.
            if same and (
                not schema.numbers or numbers_of(snapshot).items() >= schema.numbers.items()
            ):
                return state
        try:
            if snapshot is None:
                put_commit(folder, 0, create_actions(schema, vectors=self._vectors))
            else:
                check_writable(snapshot.protocol, snapshot.properties, folder.name)
                put_commit(folder, snapshot.version + 1, evolve_actions(snapshot, schema))
        except OSError as error:
            raise translate(error, table, schema) from error
        return self.state_of(self.existing(table), table)
