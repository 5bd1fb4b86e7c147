"""One piece of maintenance: files of a table written anew, and the commit that changes no row.

In: a version of a table. Out: another version with the same rows in better files. The commit says that no data
changed, so that streaming readers pass it over, and carries no position: the ledger stays where it is. Whoever commits
beside us is given way: files that somebody touched meanwhile stay as they are, and are planned again.

Source: Delta protocol, "Add File and Remove File" (``dataChange``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import TargetConflict
from headrace.lake.actions import check_writable
from headrace.lake.clustering import clustered_by
from headrace.lake.commit import Action, CommitConflict, commit_info, put_commit
from headrace.lake.data_file import DataFile
from headrace.lake.data_writer import write_rows
from headrace.lake.mapping import in_files
from headrace.lake.modes import FROM_SCN, ORD, SCN, Mode
from headrace.lake.partition_values import partition_of
from headrace.lake.pieces import FileFacts, Piece, Sizes, next_piece
from headrace.lake.settle import discard, removal
from headrace.lake.snapshot import Snapshot
from headrace.lake.vectors import vector_id
from headrace.model.schema import TableSchema

__all__ = ["Rewrite", "Rewritten", "plan_rewrite", "put_rewrite", "sorted_by"]

_ATTEMPTS = 20
"""Versions of others that one piece of work is carried over."""
_WHOLE_CHARS = 32
"""Text of this length may have been cut where the log gives bounds."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A planned piece of work on one table; travels to the task that does it.

    Attributes:
        snapshot: the table it was planned from.
        piece: what is written anew.
        key: columns to sort by.
    """

    snapshot: Snapshot
    piece: Piece
    key: tuple[str, ...]

    @property
    def files(self) -> list[DataFile]:
        """The files that go."""
        return [self.snapshot.files[place] for place in self.piece.files]

    @property
    def rows(self) -> int:
        """Rows that they hold, those included that are deleted."""
        return sum(file.rows() for file in self.files)

    def write(self) -> list[Action]:
        """Write the files that come, and return the actions that put them in the place of those that go.

        Raises:
            CorruptTable: a file of the table does not read.
            OSError: the folder refused.
        """
        snapshot = self.snapshot
        batches: list[pa.RecordBatch] = []
        for file in self.files:
            try:
                batches += file.live_batches(snapshot.schema, snapshot.partition_columns)
            except (OSError, ValueError, pa.ArrowException) as error:
                raise snapshot.corrupt(file, error) from error
        rows = pa.Table.from_batches(batches, schema=snapshot.schema)
        full = -(-rows.num_rows // max(self.piece.count, 1))
        adds = write_rows(
            snapshot.folder, rows, self.key, max(full, 1), partitions=snapshot.partition_columns
        )
        return [
            *({"remove": removal(file, changes_data=False)} for file in self.files),
            *({"add": {**add, "dataChange": False}} for add in adds),
        ]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What one piece of work did to a table.

    Attributes:
        version: of the table with it.
        reason: as of `Piece.reason`.
        files_before: files that went.
        files_after: files that came.
        bytes_read: size of the first.
        bytes_written: size of the second.
    """

    version: int
    reason: str
    files_before: int
    files_after: int
    bytes_read: int
    bytes_written: int


def sorted_by(schema: TableSchema, mode: Mode) -> tuple[str, ...]:
    """Return the columns that the files of a table are sorted by, none for rows without a key.

    Args:
        schema: of the table, as its target has it.
        mode: what the target keeps.
    """
    if mode is Mode.APPEND:
        return SCN, ORD
    return (*schema.key, FROM_SCN) if mode is Mode.HISTORY else schema.key


def plan_rewrite(snapshot: Snapshot, key: tuple[str, ...], sizes: Sizes) -> Rewrite | None:
    """Return the next piece of work on a table, None when it is in order.

    Files of different partitions stay apart.

    Args:
        snapshot: the table.
        key: columns that its files are sorted by, behind those by which somebody has it clustered.
        sizes: what its files should look like.

    Raises:
        TargetConflict: somebody changed its columns.
        UnsupportedTableFeature: somebody switched on what we do not write.
    """
    check_writable(snapshot.protocol, snapshot.properties, snapshot.folder.name)
    if not set(key) <= set(snapshot.schema.names):
        raise TargetConflict(
            f"The columns of the target table {snapshot.folder.name} are not those that headrace made.",
            next_step="undo the change of its columns.",
        )
    key = tuple(dict.fromkeys((*clustered_by(snapshot), *key)))
    own = tuple(name for name in key if name not in snapshot.partition_columns)
    columns = snapshot.partition_fields
    parts: dict[tuple[str | None, ...], list[int]] = {}
    for place, file in enumerate(snapshot.files):
        parts.setdefault(partition_of(file.partition_values, columns), []).append(place)
    piece = next_piece(_facts(snapshot, own), sizes, [*parts.values()])
    return None if piece is None else Rewrite(snapshot, piece, own)


def put_rewrite(
    rewrite: Rewrite, actions: Sequence[Action], latest: Callable[[], Snapshot | None]
) -> Rewritten | None:
    """Make written files part of the table, and return what became of it.

    Args:
        rewrite: the piece of work.
        actions: what it came to; the files are deleted when they are not needed.
        latest: returns the table as it is now.

    Returns:
        None when somebody touched the same files, or the columns, meanwhile.

    Raises:
        OSError: the folder refused.
    """
    planned, piece = rewrite.snapshot, rewrite.piece
    info = commit_info("HEADRACE MAINTENANCE", reason=piece.reason, files=str(len(piece.files)))
    for _ in range(_ATTEMPTS):
        now = latest()
        if now is None or not _stands(rewrite, now):
            break
        try:
            put_commit(planned.folder, now.version + 1, [info, *actions])
        except CommitConflict:
            continue
        return _rewritten(rewrite, actions, now.version + 1)
    discard(planned, actions)
    return None


def _stands(rewrite: Rewrite, now: Snapshot) -> bool:
    """Whether a table still has the files that go, untouched, and the same columns."""
    planned = rewrite.snapshot
    same = all(now.metadata[name] == planned.metadata[name] for name in ("id", "schemaString"))
    same = same and now.domains == planned.domains
    return same and {_name(file) for file in rewrite.files} <= {_name(file) for file in now.files}


def _rewritten(rewrite: Rewrite, actions: Sequence[Action], version: int) -> Rewritten:
    sizes = [int(action["add"]["size"]) for action in actions if "add" in action]
    gone = [file.size for file in rewrite.files]
    return Rewritten(version, rewrite.piece.reason, len(gone), len(sizes), sum(gone), sum(sizes))


def _name(file: DataFile) -> tuple[str, str]:
    return file.action["path"], vector_id(file.vector)


def _facts(snapshot: Snapshot, key: tuple[str, ...]) -> list[FileFacts]:
    first = snapshot.schema.field(key[0]) if key else None
    return [
        FileFacts(
            file.size,
            file.rows(),
            int(file.vector["cardinality"]) if file.vector else 0,
            None if first is None else _bounds(file, first),
        )
        for file in snapshot.files
    ]


def _bounds(file: DataFile, column: pa.Field) -> tuple[Any, Any] | None:
    """Return the bounds of a column in a file, None where the log has none, or none that are exact."""
    known, name = file.statistics(), in_files(column)
    ends = [known.get(which, {}).get(name) for which in ("minValues", "maxValues")]
    if known.get("nullCount", {}).get(name) != 0:
        return None
    if pa.types.is_integer(column.type):
        exact = all(isinstance(end, int) for end in ends)
    elif pa.types.is_string(column.type):
        exact = all(isinstance(end, str) and len(end) < _WHOLE_CHARS for end in ends)
    else:
        exact = pa.types.is_date(column.type) and all(isinstance(end, str) for end in ends)
    return (ends[0], ends[1]) if exact else None
