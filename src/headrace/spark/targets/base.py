"""The port of a target.

A target takes the folded changes of tables and makes them, and the position they reach, durable: each table in one
step of its own. It is called by `headrace.spark.apply` alone; `Target.apply` from one thread, `Target.evolve` for
several tables at once. Everything may be called again after a crash: what was committed is told by `Target.state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import HeadraceError
from headrace.lake.capabilities import Capabilities
from headrace.lake.copies import Copy
from headrace.lake.modes import Mode
from headrace.lake.partitioning import UNPARTITIONED, Partitioning
from headrace.lake.pieces import Sizes
from headrace.lake.policies import DEFAULTS, Policies
from headrace.lake.rewrite import Rewritten
from headrace.model.schema import Column, TableId, TableSchema
from headrace.spark.status import BatchCost

__all__ = ["Copies", "Folded", "Kernel", "TableBatch", "Target", "TargetState"]

Kernel = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Work on record batches that runs in a task."""


@dataclass(frozen=True, slots=True)
class TargetState:
    """What the target itself says about one table.

    Attributes:
        version: newest version of the table.
        applied_scn: position committed with the newest data commit, 0 before the first.
        schema_id: table version that the target's columns were last brought to, 0 when unknown.
        shape: mode and settings by which the table was made, empty for a plain mirror.
        kept: its columns that the source no longer has.
        copy: of a table that is copied again, the new copy, whose position and columns these are.
        partitioning: the columns by which it is partitioned.
        foreign: what somebody else has last done to its rows while the job ran, empty for nothing, or where nobody can
            tell.
        cost: of the commit that led there, where the target measures it.
    """

    version: int
    applied_scn: int
    schema_id: int
    shape: str = ""
    kept: tuple[Column, ...] = ()
    copy: Copy | None = None
    partitioning: Partitioning = UNPARTITIONED
    foreign: str = ""
    cost: BatchCost | None = field(default=None, compare=False)


class Folded(Protocol):
    """The folded form of one table's changes, which lies in tasks and never in the driver.

    For a table that is no mirror, the changes themselves (`headrace.lake.modes.logged_schema`).
    """

    rows: int
    """Change rows before they were folded, about."""

    def frame(self) -> DataFrame:
        """Return it as rows for Spark's own statements."""
        ...

    def inside(self) -> Callable[[], Iterator[pa.RecordBatch]] | None:
        """Return what reads the whole of it when it is called in a task, None when that is too much for one."""
        ...

    def through(self, kernel: Kernel, ddl: str) -> DataFrame:
        """Return what ``kernel`` makes of the whole of it, in one task.

        Args:
            kernel: takes batches of the folded form.
            ddl: columns of what it yields, as SQL.
        """
        ...


@dataclass(frozen=True, slots=True)
class TableBatch:
    """What one batch brings to one table.

    Attributes:
        schema: table version of ``folded``; the target's columns are at least that new.
        folded: the folded form of exactly the changes above the table's applied SCN and up to ``scn``.
        scn: what the table reflects afterwards.
        complete: whether the table's dump lies at or before ``scn``.
        alone: whether it failed before, and shall share nothing with the batches of other tables.
        mode: what the table keeps.
    """

    schema: TableSchema
    folded: Folded
    scn: int
    complete: bool
    alone: bool = False
    mode: Mode = Mode.MIRROR


class Copies(Protocol):
    """How tables are copied again beside themselves: what is applied goes to the copy, readers see the table."""

    def begin_copy(self, schema: TableSchema, copy: Copy) -> TargetState:
        """Begin an empty copy, in the place of one that was begun before."""
        ...

    def ask_again(self, table: TableId, request: str) -> TargetState:
        """Let another dump fill the copy that was begun."""
        ...

    def end_copy(self, table: TableId) -> TargetState:
        """Put the copy in the table's place, at once.

        Raises:
            TargetConflict: somebody else writes the table all the time, or removed it.
        """
        ...


class Target(Protocol):
    """One lake or warehouse.

    Attributes:
        capabilities: what it can do.
        copies: how tables are copied again, None where it cannot.
    """

    capabilities: Capabilities
    copies: Copies | None

    def session(self, table: TableId) -> SparkSession:
        """Return the session that belongs to a table; what `apply` takes is made in it."""
        ...

    def state(self, table: TableId) -> TargetState | None:
        """Return what is durable, read from the target; None when there is no such table."""
        ...

    def evolve(self, schema: TableSchema, policies: Policies = DEFAULTS) -> TargetState:
        """Create the table, or bring its columns to a newer version; does nothing when they are there.

        Args:
            schema: the version, with the columns that the table's mode adds; the numbers of its columns tell one that
                was renamed from one that was dropped.
            policies: what happens to columns that cannot live on; those that the target lacks are never asked for.

        Raises:
            CopyNeeded: the change takes a new copy, which `copies` begins.
            IncompatibleSchemaChange: the change cannot be carried over; names table and column.
            TargetUnwritable: the target refused.
        """
        ...

    def apply(self, batches: Sequence[TableBatch]) -> list[TargetState | HeadraceError]:
        """Commit, for each table, its changes and the position they reach, once and at once.

        Returns:
            for each batch what the table says afterwards, or why nothing was written: MissingBase (a complete table
            lacks the row that a change patches), NegativeCount (a row of a keyless table is removed more often than it
            is held), TargetConflict (somebody else wrote the table), TargetUnwritable (the target refused).
        """
        ...

    def drop(self, table: TableId) -> None:
        """Remove a table that this pipeline made, with its position; does nothing when there is none.

        Raises:
            TargetUnwritable: the target refused.
        """
        ...

    def maintain(
        self, keys: Mapping[TableId, tuple[str, ...]], sizes: Sizes, most: int
    ) -> dict[TableId, Rewritten | HeadraceError | None]:
        """Write some files of tables anew, without any change to rows or position; called between batches.

        Args:
            keys: tables to look at, in this order, with the columns that their files are sorted by.
            sizes: what the files should look like.
            most: tables to work on, one bounded piece of work each.

        Returns:
            for each table that was looked at: what was done, None when it is in order, or why nothing was; a table
            that had no turn is left out.
        """
        ...

    def tidy(self, table: TableId, promised: int) -> None:
        """Let go of what no version from ``promised`` on needs; called now and then, between batches.

        Args:
            table: that the target holds.
            promised: oldest version of it that a frontier names.
        """
        ...
