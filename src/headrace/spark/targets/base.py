"""The port of a target, and what each target says it can do.

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
from headrace.lake.modes import Mode
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import Rewritten
from headrace.model.schema import TableId, TableSchema
from headrace.spark.status import BatchCost

__all__ = ["Capabilities", "Folded", "Kernel", "TableBatch", "Target", "TargetState"]

Kernel = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Work on record batches that runs in a task."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a target can do, as data: the assessment reads it without starting Spark.

    Attributes:
        name: of the implementation.
        format: table format it writes.
        atomic_ledger: whether rows and applied SCN become durable in one commit.
        keyless: whether tables without a key are kept as multisets.
        truncate: whether a truncate is carried over.
        add_column: whether a new column is carried over without a new copy.
        drop_column: whether one that is dropped or renamed is.
        widening: pairs of neutral type names ``(from, to)`` carried over without a new copy; ``decimal`` stands for
            every growth of precision that loses no digit.
        versions: whether older states of a table can be read.
        distributed: whether tasks on other machines can write it.
        modes: names of the modes that its tables may have.
        shaping: whether its tables may have other columns or rows than the source's.
        maintenance: whether files of its tables are written anew between batches.
    """

    name: str
    format: str
    atomic_ledger: bool
    keyless: bool
    truncate: bool
    add_column: bool
    drop_column: bool
    widening: frozenset[tuple[str, str]]
    versions: bool
    distributed: bool
    modes: frozenset[str] = frozenset({Mode.MIRROR.value})
    shaping: bool = False
    maintenance: bool = False


@dataclass(frozen=True, slots=True)
class TargetState:
    """What the target itself says about one table.

    Attributes:
        version: newest version of the table.
        applied_scn: position committed with the newest data commit, 0 before the first.
        schema_id: table version that the target's columns were last brought to, 0 when unknown.
        shape: mode and settings by which the table was made, empty for a plain mirror.
        cost: of the commit that led there, where the target measures it.
    """

    version: int
    applied_scn: int
    schema_id: int
    shape: str = ""
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


class Target(Protocol):
    """One lake or warehouse."""

    capabilities: Capabilities

    def session(self, table: TableId) -> SparkSession:
        """Return the session that belongs to a table; what `apply` takes is made in it."""
        ...

    def state(self, table: TableId) -> TargetState | None:
        """Return what is durable, read from the target; None when there is no such table."""
        ...

    def evolve(self, schema: TableSchema) -> TargetState:
        """Create the table, or bring its columns to a newer version; does nothing when they are there.

        Args:
            schema: the version, with the columns that the table's mode adds; the numbers of its columns tell one that
                was renamed from one that was dropped.

        Raises:
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
