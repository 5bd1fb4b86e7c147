"""Delta tables by commits of our own: Arrow kernels in Spark's tasks, one log entry by the driver.

In: the folded form of tables' changes, in tasks. Out: one version of each table that carries rows and applied SCN
(Delta's ``txn`` action). Rows never come to the driver: it sees the names of the files that the task wrote.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, TargetConflict
from headrace.lake.actions import check_writable
from headrace.lake.capabilities import DELTA
from headrace.lake.commit import CommitConflict, commit_info, put_commit, transaction
from headrace.lake.ledger import check_ahead
from headrace.lake.modes import shaped
from headrace.lake.pieces import Sizes
from headrace.lake.remembered import kept_names
from headrace.lake.rewrite import Rewritten
from headrace.lake.settings import SettingsByTable
from headrace.lake.settle import discard
from headrace.lake.snapshot import Snapshot
from headrace.model.schema import TableId, TableSchema
from headrace.observe.failpoints import failpoint
from headrace.spark.status import BatchCost
from headrace.spark.targets.base import Copies, TableBatch, TargetState
from headrace.spark.targets.files import Written, write_files
from headrace.spark.targets.maintained import maintain_tables
from headrace.spark.targets.tables import DeltaTables, translated
from headrace.store import Location

__all__ = ["DeltaTarget"]

_ATTEMPTS = 5
"""Tries of one batch while other writers commit in between."""


class DeltaTarget:
    """Delta tables under one folder, written by our own commits.

    Args:
        spark: a session of the application, used for all tables.
        lake: folder of all tables.
        pipeline: name under which positions are committed.
        vectors: whether new tables may use deletion vectors; without them every touched file is written again.
        parallel: tasks that tables share, and commits at the same time.
        settings: what was asked for single tables.
    """

    capabilities = DELTA

    def __init__(
        self,
        spark: SparkSession,
        lake: Location,
        pipeline: str,
        *,
        vectors: bool = True,
        parallel: int = 2,
        settings: SettingsByTable = (),
    ) -> None:
        self._spark = spark
        self._tables = DeltaTables(lake, pipeline, vectors=vectors, settings=settings)
        self._parallel = parallel
        self.state = self._tables.state
        self.evolve = self._tables.evolve
        self.tidy = self._tables.tidy
        self.drop = self._tables.drop
        self.copies: Copies | None = self._tables

    def session(self, _table: TableId) -> SparkSession:
        """Return the session: no table has settings of its own."""
        return self._spark

    def apply(self, batches: Sequence[TableBatch]) -> list[TargetState | HeadraceError]:
        """Commit each table's changes and the position they reach in one version of it.

        A table into which somebody else committed meanwhile is worked out again over what is there then.
        """
        outcomes: list[TargetState | Exception | None] = [None] * len(batches)
        for _ in range(_ATTEMPTS):
            places, pairs = [], []
            for place, batch in enumerate(batches):
                if outcomes[place] is None or isinstance(outcomes[place], CommitConflict):
                    try:
                        pairs.append((self._before(batch), batch))
                        places.append(place)
                    except Exception as error:  # noqa: BLE001 - the table's outcome, no other's
                        outcomes[place] = error
            if not pairs:
                break
            written = write_files(self._spark, pairs, self._parallel)
            with ThreadPoolExecutor(self._parallel) as pool:
                results = pool.map(self._commit, pairs, written)
                for place, result in zip(places, results, strict=True):
                    outcomes[place] = result
        return [
            translated(outcome, batch.schema)
            for batch, outcome in zip(batches, outcomes, strict=True)
        ]

    def maintain(
        self, keys: Mapping[TableId, tuple[str, ...]], sizes: Sizes, most: int
    ) -> dict[TableId, Rewritten | HeadraceError | None]:
        """Write some files of tables anew, in tasks, each table's in one version of it."""
        return maintain_tables(self._spark, self._tables, keys, sizes, most)

    def _before(self, batch: TableBatch) -> Snapshot:
        """Return the table as it is."""
        snapshot = self._tables.existing(batch.schema.table)
        self._check(snapshot, shaped(batch.schema, batch.mode), batch.scn)
        return snapshot

    def _commit(
        self, planned: tuple[Snapshot, TableBatch], written: Written | Exception
    ) -> TargetState | Exception:
        """Make a table's files part of it; return what it says then, or what stood in the way."""
        if isinstance(written, Exception):
            return written
        snapshot, batch = planned
        table = batch.schema.table
        failpoint("apply.files_written")
        begun = time.monotonic()
        position = transaction(self._tables.application(table, snapshot), batch.scn)
        info = commit_info("HEADRACE APPLY", scn=str(batch.scn))
        try:
            put_commit(snapshot.folder, snapshot.version + 1, [info, position, *written.actions])
        except CommitConflict as conflict:
            discard(snapshot, written.actions)
            return conflict
        except Exception as error:  # noqa: BLE001 - the table's outcome, no other's
            return error
        failpoint("apply.after_commit")
        try:
            state = self._tables.committed(table)
        except Exception as error:  # noqa: BLE001 - likewise
            return error
        cost = _cost(snapshot, batch, written, time.monotonic() - begun)
        return replace(state, cost=cost)

    def _check(self, snapshot: Snapshot, schema: TableSchema, scn: int) -> None:
        """Refuse a table that we cannot write, or that another process of ours has brought further.

        Raises:
            TargetConflict: columns or position are not as we left them.
            UnsupportedTableFeature: somebody switched on what we do not write.
        """
        table = schema.table
        check_writable(snapshot.protocol, snapshot.properties, snapshot.folder.name)
        ours = set(schema.names) | kept_names(snapshot)
        if set(snapshot.schema.names) != ours:
            raise TargetConflict(
                f"The columns of the target table of {table} are not those that headrace made.",
                next_step="undo the change of its columns; the batch is tried again.",
            )
        check_ahead(table, self._tables.state_of(snapshot, table).applied_scn, scn)


def _cost(snapshot: Snapshot, batch: TableBatch, written: Written, commit_s: float) -> BatchCost:
    """Return what a batch cost its table."""
    held = {file.action["path"] for file in snapshot.files}
    adds = [action["add"] for action in written.actions if "add" in action]
    bodies = [body for action in written.actions for body in action.values()]
    vectors = [add["deletionVector"]["sizeInBytes"] for add in adds if "deletionVector" in add]
    return BatchCost(
        batches=1,
        rows=batch.folded.rows,
        files=len({body["path"] for body in bodies}),
        bytes=sum(add["size"] for add in adds if add["path"] not in held) + sum(vectors),
        probe_s=written.seconds["probe"],
        write_s=written.seconds["write"],
        commit_s=commit_s,
    )
