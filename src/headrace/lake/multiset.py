"""One batch of a table without a key: rows are counted, and counts are what changes.

In: the folded form and the table before. Out: the log actions of one commit, their files written.

Source: docs/paper_map.md, tables without a key.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import NegativeCount
from headrace.fold import ALL_DEAD, NET
from headrace.lake.commit import Action
from headrace.lake.data_file import DataFile
from headrace.lake.keyed import all_dead, in_table_order
from headrace.lake.probe import KeySet
from headrace.lake.settle import Dead, settle
from headrace.lake.snapshot import Snapshot
from headrace.lake.stages import stage
from headrace.lake.vectors import Places
from headrace.model.change import table_arrow_schema
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableSchema

__all__ = ["commit_multiset"]


def commit_multiset(
    snapshot: Snapshot, schema: TableSchema, folded: pa.Table, *, complete: bool
) -> list[Action]:
    """Return the actions that bring a table's rows behind a batch; arguments as of `commit_keyed`.

    Raises:
        NegativeCount: a complete table holds a row less often than it is removed; nothing was written.
        CorruptTable: a file of the table does not read.
        OSError: the folder refused.
    """
    wiped = pc.any(pc.equal(folded["_effect"], ALL_DEAD)).as_py()
    net = folded.filter(pc.equal(folded["_effect"], NET))
    own = net.select(schema.names).cast(table_arrow_schema(schema))
    counts = net["_count"].to_numpy()
    born = own.take(pa.array(np.repeat(np.arange(len(counts)), np.maximum(counts, 0))))
    if wiped:
        dead = all_dead(snapshot)
        left = int((counts < 0).sum())
    else:
        removed = in_table_order(snapshot, own.filter(pa.array(counts < 0)))
        dead, left = _fallen(snapshot, removed, -counts[counts < 0])
    if left and complete:
        raise NegativeCount(
            f"{schema.table} has no key, and a change removes a row more often than the target holds it.",
            next_step=f"copy the table again: headrace dump start FILE --table {schema.table}.",
        )
    return settle(snapshot, dead, in_table_order(snapshot, born), ())


@stage("probe")
def _fallen(
    snapshot: Snapshot, removed: pa.Table, counts: npt.NDArray[np.int64]
) -> tuple[Dead, int]:
    """Return the places of the copies that go, and how many are removed that nobody holds."""
    if not removed.num_rows:
        return {}, 0
    wanted = Counter(dict(zip(_encoded(removed).to_pylist(), counts.tolist(), strict=True)))
    near = KeySet(removed, snapshot.partition_columns)
    found: dict[int, Places] = {}
    for index, file in enumerate(snapshot.files):
        if not wanted:
            break
        try:
            if not near.may_be_in(file, snapshot.schema):
                continue
            places = _copies_in(file, snapshot, near, wanted)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise snapshot.corrupt(file, error) from error
        if places:
            found[index] = np.array(places, np.int64)
    return found, wanted.total()


def _copies_in(
    file: DataFile, snapshot: Snapshot, near: KeySet, wanted: Counter[bytes]
) -> list[int]:
    """Return the places of copies in one file, and take them from what is wanted."""
    deleted = file.deleted()
    taken: list[int] = []
    begin = 0
    for batch in file.batches(snapshot.schema, snapshot.partition_columns):
        places = near.found_in(batch)
        places = places[~np.isin(places + begin, deleted)]
        same = _encoded(pa.Table.from_batches([batch]).take(pa.array(places)))
        for place, cells in zip(places.tolist(), same.to_pylist(), strict=True):
            if wanted[cells] > 0:
                wanted[cells] -= 1
                taken.append(begin + place)
        begin += batch.num_rows
    # Reading an absent row enters it with zero.
    for cells in [cells for cells, count in wanted.items() if not count]:
        del wanted[cells]
    return taken


def _encoded(rows: pa.Table) -> pa.Array:
    return encode_rows([column.combine_chunks() for column in rows.columns])
