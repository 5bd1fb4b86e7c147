"""Delta tables under one folder: what each says of itself, and its columns; rows are the targets' business.

Nothing here needs Spark: a table's columns change by an entry of its log.
"""

from __future__ import annotations

from contextlib import suppress

from headrace.errors import HeadraceError, TargetConflict, TargetUnwritable
from headrace.lake.actions import check_writable
from headrace.lake.aside import (
    aside_path,
    asked_again,
    begin_copy,
    copy_of,
    discarded,
    take_place,
)
from headrace.lake.checkpoint import is_due, write_checkpoint
from headrace.lake.commit import CommitConflict, put_commit
from headrace.lake.copies import Copy, refuse_in_place
from headrace.lake.delta_log import DeltaTable, FollowedTable
from headrace.lake.evolution import (
    SCHEMA_PROPERTY,
    SHAPE_PROPERTY,
    create_actions,
    evolve_actions,
    later_names,
)
from headrace.lake.ledger import applied_scn, identity, table_path
from headrace.lake.partitioning import Partitioning
from headrace.lake.planned import planned_changes
from headrace.lake.policies import DEFAULTS, Policies
from headrace.lake.remembered import kept_columns, numbers_of
from headrace.lake.settings import SettingsByTable, settings_for
from headrace.lake.snapshot import Snapshot
from headrace.lake.tidy import tidy
from headrace.model.schema import TableId, TableSchema
from headrace.spark.failures import translate
from headrace.spark.targets.base import TargetState
from headrace.store import Location, store_of

__all__ = ["DeltaTables", "translated"]

_ATTEMPTS = 5
"""Tries to put a copy in place while other writers commit in between."""


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
        settings: what was asked for single tables.
    """

    def __init__(
        self, lake: Location, pipeline: str, *, vectors: bool, settings: SettingsByTable = ()
    ) -> None:
        self._lake = lake.absolute()
        self._pipeline = pipeline
        self._vectors = vectors
        self._settings = settings
        self._followed: dict[Location, FollowedTable] = {}
        self._copies: dict[TableId, Copy | None] = {}

    def folder(self, table: TableId) -> Location:
        """Return where a table is written: its new copy while there is one."""
        return self._aside(table) if self._copy(table) else table_path(self._lake, table)

    def application(self, table: TableId, held: Snapshot | None) -> str:
        """Return the identifier under which positions are committed to a table, or to its copy, as it is now."""
        return identity(held, self._pipeline, table)

    def state(self, table: TableId) -> TargetState | None:
        """Return what the table's own log says, None when there is no table."""
        snapshot = self.followed(table).latest()
        return None if snapshot is None else self.state_of(snapshot, table)

    def followed(self, table: TableId) -> FollowedTable:
        """Return the newest version of what is written."""
        return self._following(self.folder(table))

    def committed(self, table: TableId) -> TargetState:
        """Return what a table says behind a commit of ours, once a checkpoint that is due was written."""
        snapshot = self.existing(table)
        if is_due(snapshot.version, snapshot.properties):
            write_checkpoint(snapshot.folder, snapshot.version, self.followed(table).state())
        return self.state_of(snapshot, table)

    def tidy(self, table: TableId, promised: int) -> None:
        """Let go of files that no version from ``promised`` on needs; what refuses is tried again another time."""
        with suppress(HeadraceError, OSError):
            tidy(table_path(self._lake, table), promised)

    def state_of(self, snapshot: Snapshot, table: TableId) -> TargetState:
        """Return what one version of a table says."""
        copy, shown = self._copy(table), snapshot
        if copy is not None:
            shown = self._following(table_path(self._lake, table)).latest() or snapshot
        return TargetState(
            version=shown.version,
            applied_scn=applied_scn(snapshot, self._pipeline, table),
            schema_id=int(snapshot.properties.get(SCHEMA_PROPERTY, "0")),
            shape=snapshot.properties.get(SHAPE_PROPERTY, ""),
            kept=kept_columns(snapshot),
            copy=copy,
            partitioning=_partitioning(snapshot),
            foreign=self.followed(table).foreign,
        )

    def existing(self, table: TableId) -> Snapshot:
        """Return the newest version of a table that is there.

        Raises:
            TargetConflict: it is gone.
        """
        snapshot = self.followed(table).latest()
        if snapshot is None:
            raise _vanished(table)
        return snapshot

    def evolve(self, schema: TableSchema, policies: Policies = DEFAULTS) -> TargetState:
        """Create the table, or bring its columns to ``schema``; nothing when they are there.

        Raises:
            ConfigError: it cannot be partitioned by the columns that were asked for.
            CopyNeeded: the change takes a new copy.
            IncompatibleSchemaChange: the change cannot be carried over; names table and column.
            TargetUnwritable: the folder refused.
        """
        table = schema.table
        folder = self.folder(table)
        if store_of(folder).is_file(folder):
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
                asked = self._asked(schema, None)
                actions = create_actions(schema, vectors=self._vectors, partitioning=asked)
                store_of(folder).end_discard(folder, "_delta_log")
                put_commit(folder, 0, actions)
            else:
                check_writable(snapshot.protocol, snapshot.properties, folder.name)
                refuse_in_place(table, planned_changes(snapshot, schema, policies))
                actions = evolve_actions(snapshot, schema, policies)
                put_commit(folder, snapshot.version + 1, actions)
        except OSError as error:
            raise translate(error, table, schema) from error
        return self.state_of(self.existing(table), table)

    # -- tables that are copied again, or go ------------------------------------------------------

    def begin_copy(self, schema: TableSchema, copy: Copy) -> TargetState:
        """Begin an empty copy beside the table; what is written goes there from now on."""
        table, aside = schema.table, self._aside(schema.table)
        shown = self._following(table_path(self._lake, table)).latest()
        try:
            begin_copy(
                aside,
                schema,
                self.application(table, shown),
                copy,
                vectors=self._vectors,
                partitioning=self._asked(schema, shown),
            )
        except OSError as error:
            raise translate(error, table, schema) from error
        return self._noted(table, copy)

    def ask_again(self, table: TableId, request: str) -> TargetState:
        """Let another dump fill the copy."""
        asked_again(self._aside(table), request)
        held = self._copy(table)
        assert held is not None
        return self._noted(table, Copy(request, held.after_scn))

    def end_copy(self, table: TableId) -> TargetState:
        """Put the copy in the table's place, in one commit.

        Raises:
            TargetConflict: somebody else writes the table all the time, or removed it.
        """
        shown, aside = self._following(table_path(self._lake, table)), self._aside(table)
        for attempt in range(_ATTEMPTS):
            snapshot = shown.latest()
            if snapshot is None:
                raise _vanished(table)
            try:
                copy = self.existing(table)
                take_place(snapshot, copy, self.application(table, copy))
                break
            except CommitConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
            except OSError as error:
                raise translate(error, table, None) from error
        self._followed.pop(aside)
        # Its rows are all new.
        shown.foreign = ""
        return self._noted(table, None)

    def drop(self, table: TableId) -> None:
        """Remove a table's folder, and its new copy's, if this pipeline made it."""
        state = self.state(table)
        if state is None or not (state.applied_scn or state.schema_id):
            return
        for folder in (self._aside(table), table_path(self._lake, table)):
            try:
                discarded(folder)
            except OSError as error:
                raise translate(error, table, None) from error
            self._followed.pop(folder, None)
        self._copies.pop(table, None)

    def _asked(self, schema: TableSchema, shown: Snapshot | None) -> Partitioning:
        """Return how a table that is made is partitioned: one that is copied again like the one that is shown."""
        asked = settings_for(schema.table, self._settings).partition_by
        if shown is not None and asked in ((held := _partitioning(shown)).asked, held.now):
            return held.later(later_names(shown, schema))
        return Partitioning(asked, asked)

    def _noted(self, table: TableId, copy: Copy | None) -> TargetState:
        self._copies[table] = copy
        return self.state_of(self.existing(table), table)

    def _copy(self, table: TableId) -> Copy | None:
        if table not in self._copies:
            self._copies[table] = copy_of(self._aside(table), table_path(self._lake, table))
        return self._copies[table]

    def _aside(self, table: TableId) -> Location:
        return aside_path(self._lake, self._pipeline, table)

    def _following(self, folder: Location) -> FollowedTable:
        if folder not in self._followed:
            self._followed[folder] = DeltaTable(folder).follow()
        return self._followed[folder]


def _partitioning(held: Snapshot) -> Partitioning:
    return Partitioning.of(held.properties, held.partition_columns)


def _vanished(table: TableId) -> TargetConflict:
    return TargetConflict(
        f"The target table of {table} vanished during a commit.",
        next_step="let headrace be the only writer of the table; the batch is tried again.",
    )
