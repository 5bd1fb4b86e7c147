"""A table whose first rows come from a dump that was made elsewhere.

In: the dump's files, and the position whose rows they are. Out: the first version of a Delta table: all rows and the
applied SCN in one commit, so that what the log says behind that position is applied to it, and nothing before.

Source: docs/adr/0045-a-dump-made-elsewhere-is-adopted.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from headrace.errors import DumpUnfit
from headrace.lake.commit import Action, CommitConflict, put_commit, transaction
from headrace.lake.data_writer import FILE_ROWS, write_rows
from headrace.lake.dump_files import DumpFiles
from headrace.lake.evolution import create_actions
from headrace.lake.key_check import KeysOnce
from headrace.lake.partitioning import Partitioning
from headrace.lake.snapshot import Snapshot
from headrace.plural import counted
from headrace.store import Location, store_of

__all__ = ["adopted_scn", "put_adopted", "write_adopted"]

_ADOPTED = "headrace.adopted_scn"
"""Property of a table: the position of the dump that its first version holds."""
_PIECE_BYTES = 128 * 2**20
"""Rows in memory before they become a file."""


def adopted_scn(held: Snapshot) -> int | None:
    """Return the position of the dump that a table began with, None when it began empty."""
    text = held.properties.get(_ADOPTED)
    return int(text) if text else None


def write_adopted(
    folder: Location,
    dump: DumpFiles,
    application: str,
    scn: int,
    spool: Path,
    *,
    vectors: bool,
    partition_by: tuple[str, ...] = (),
) -> list[Action]:
    """Write a dump's rows, and return the actions of the table's first version; nobody reads it before `put_adopted`.

    Args:
        folder: of the table, which is not there yet.
        dump: its rows.
        application: under which positions are committed.
        scn: everything up to here is in the dump, and nothing behind it.
        spool: folder for what does not fit into memory.
        vectors: whether rows may be removed by deletion vectors.
        partition_by: columns that lie in paths and not in files.

    Raises:
        DumpUnfit: the rows are not those of the table; nothing is left behind.
        ConfigError: the table cannot be partitioned by these columns.
        IncompatibleSchemaChange: a column's name is none that Delta takes.
        UnplacedValue: a row has no partition.
        OSError: a folder refused.
    """
    schema = dump.schema
    actions = create_actions(
        schema,
        vectors=vectors,
        partitioning=Partitioning(partition_by, partition_by),
        properties={_ADOPTED: str(scn)},
    )
    actions.append(transaction(application, scn))
    spool.mkdir(parents=True, exist_ok=True)
    begun = len(actions)
    try:
        with KeysOnce(dump.rows if schema.key else 0, spool) as keys:
            for piece in _pieces(dump):
                if schema.key:
                    keys.add([piece[name] for name in schema.key])
                adds = write_rows(folder, piece, schema.key, partitions=partition_by)
                actions += ({"add": add} for add in adds)
            if repeated := keys.repeated():
                raise DumpUnfit(
                    f"The dump of {schema.table} has {counted(repeated, 'row')} with a key "
                    f"({', '.join(schema.key)}) that another of its rows has.",
                    next_step="make the dump again under one snapshot, into an empty folder.",
                )
    except Exception:
        _discard(folder, actions[begun:])
        raise
    return actions


def put_adopted(folder: Location, actions: list[Action]) -> None:
    """Make what `write_adopted` wrote the first version of a table.

    Raises:
        CommitConflict: there is a table meanwhile; nothing is left behind.
        OSError: the folder refused.
    """
    try:
        store_of(folder).end_discard(folder, "_delta_log")
        put_commit(folder, 0, actions)
    except CommitConflict:
        _discard(folder, actions)
        raise


def _discard(folder: Location, actions: list[Action]) -> None:
    """Delete the files that some actions name, which no version will."""
    adds = (action["add"] for action in actions if "add" in action)
    store_of(folder).delete([folder / unquote(add["path"]) for add in adds])


def _pieces(dump: DumpFiles) -> Iterator[pa.Table]:
    """Yield a dump's rows in tables of about one file each."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in dump.batches():
        if held and (rows + batch.num_rows > FILE_ROWS or size + batch.nbytes > _PIECE_BYTES):
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if rows:
        yield pa.Table.from_batches(held)
