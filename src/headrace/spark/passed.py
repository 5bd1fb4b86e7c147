"""Steps that may be left out: of a table that is to be filled anew anyway, in a shape that nobody asks for any more.

Somebody corrects settings, or takes a column's new name back, and moves the target table away. Between where the
table stopped and where its columns fit again the log holds changes that fit nothing; a dump brings their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import UnfitSettings
from headrace.model.block import ORIGIN_LOG, SystemKind
from headrace.model.schema import TableSchema
from headrace.registry.file import FileRegistry
from headrace.spark.plan import Range, Step

__all__ = ["to_pass"]


def to_pass(
    steps: Sequence[Step],
    check: Callable[[TableSchema], object],
    reader: ChangeLogReader,
    registry: FileRegistry,
) -> int:
    """Return up to where the changes of a table without rows are left out, 0 for none.

    That is up to where its columns fit and go on to fit. Never up to the end: settings that fit nothing are a mistake.
    Never in the middle of a dump either, whose end would then speak of rows that are not there.

    Args:
        steps: the table's, up to the end of the log; the first does not fit.
        check: raises `UnfitSettings` for a version that does not fit.
        reader: the log.
        registry: versions of tables.
    """
    last = max(n for n, step in enumerate(steps) if n == 0 or not _fits(step.schema, check))
    passed = list(steps)[: last + 1]
    if last == len(steps) - 1 or _in_dump(passed, reader, registry):
        return 0
    return passed[-1].upto_scn


def _fits(schema: TableSchema, check: Callable[[TableSchema], object]) -> bool:
    try:
        check(schema)
    except UnfitSettings:
        return False
    return True


def _in_dump(steps: Sequence[Step], reader: ChangeLogReader, registry: FileRegistry) -> bool:
    """Return whether steps end between rows that were read and the end of the dump that read them."""
    begin, end = steps[0].after_scn, steps[-1].upto_scn
    ended = max(
        (
            event.scn
            for event in Range(reader, registry, begin, end).events
            if event.table == steps[0].schema.table and event.kind is SystemKind.DUMP_COMPLETE
        ),
        default=begin,
    )
    for ref in {ref for step in steps for ref in step.refs}:
        index = reader.load(ref, ()).index
        read = index["scn"][index["origin"] != ORIGIN_LOG]
        if ((read > ended) & (read <= end)).any():
            return True
    return False
