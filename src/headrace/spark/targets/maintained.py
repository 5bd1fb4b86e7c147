"""Pieces of maintenance of Delta tables, carried out in tasks.

In: tables, and what their files should look like. Out: versions of them with the same rows. Rows never come to the
driver: it plans from the log, and sees the names of the files that the tasks wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, TargetConflict
from headrace.lake.commit import Action
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import Rewrite, Rewritten, plan_rewrite, put_rewrite
from headrace.model.schema import TableId
from headrace.observe.failpoints import failpoint
from headrace.spark.failures import translate
from headrace.spark.targets.tables import DeltaTables
from headrace.spark.together import Work, run_together

__all__ = ["maintain_tables"]

Outcome = Rewritten | HeadraceError | None


def maintain_tables(
    session: SparkSession,
    tables: DeltaTables,
    keys: Mapping[TableId, tuple[str, ...]],
    sizes: Sizes,
    most: int,
) -> dict[TableId, Outcome]:
    """Carry out one piece of work on each of some tables; arguments and result as of `Target.maintain`."""
    outcomes: dict[TableId, Outcome] = {}
    planned: dict[TableId, Rewrite] = {}
    for table, key in keys.items():
        if len(planned) == most:
            break
        try:
            snapshot = tables.followed(table).latest()
            rewrite = None if snapshot is None else plan_rewrite(snapshot, key, sizes)
        except Exception as error:  # noqa: BLE001 - the table's outcome, no other's
            outcomes[table] = translate(error, table, None)
            continue
        if rewrite is None:
            outcomes[table] = None
        else:
            planned[table] = rewrite
    works = [Work(rewrite.rows, rewrite.write) for rewrite in planned.values()]
    written = run_together(session, works, len(works)) if works else []
    for (table, rewrite), actions in zip(planned.items(), written, strict=True):
        try:
            done = _commit(tables, table, rewrite, actions)
        except Exception as error:  # noqa: BLE001 - likewise
            outcomes[table] = translate(error, table, None)
            continue
        outcomes[table] = done
    return outcomes


def _commit(tables: DeltaTables, table: TableId, rewrite: Rewrite, actions: object) -> Rewritten:
    """Make what a task wrote part of a table; raises what the task ended with.

    Raises:
        TargetConflict: somebody else touched the same files meanwhile.
    """
    if isinstance(actions, Exception):
        raise actions
    assert isinstance(actions, Sequence)
    failpoint("maintenance.files_written")
    done = put_rewrite(rewrite, list[Action](actions), tables.followed(table).latest)
    if done is None:
        raise TargetConflict(
            f"Another writer changed the target table of {table} while its files were written anew.",
            next_step="let headrace be the only writer of the table; maintenance tries again later.",
        )
    failpoint("maintenance.after_commit")
    tables.committed(table)
    return done
