"""The changes of a table that is no mirror as rows of a staging table, ready for plain SQL.

In: one table's changes as they came (`headrace.lake.modes.logged_schema`). Out: an Arrow table of positions instead of
names. Of a table of changes it has each of them, ``c0…`` being the cells of the target. Of one that keeps versions::

    place    int64        number of the row; versions of one key beside each other and in order
    code     int64        the same for versions of one key
    opens    bool         the first version of its key
    closes   bool         the last one
    died     bool         its transaction leaves no row
    told     bool         a chunk row says it
    reaches  bool         the row that the target holds at the key may have lived until then
    scn      int64        of the change that made it
    since    timestamptz  its commit time
    asks     bool         the row grew out of one that the target holds
    o0…      …            the key of that
    m0…      bool         whether that cell is missing
    c0…      …            the row; of one that died, the row that it was
    gone     bool         no row: it died, or has cells that come from nowhere
    held     bool         there was a row before it
    idle     bool         it says nothing new

``m…`` is there only for the columns that some row lacks; the last three are filled in by statements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.fold.followed import ABSOLUTE
from headrace.fold.form import origin_name
from headrace.fold.versions import Versions, versions
from headrace.lake.append import named_missing
from headrace.lake.modes import COMMITTED_AT, Mode, shaped
from headrace.lake.sql.staged import Staged
from headrace.model.change import READ, missing_matrix
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableSchema

__all__ = ["StagedVersions", "staged_changes", "staged_versions"]


@dataclass(frozen=True, slots=True)
class StagedVersions(Staged):
    """What a staging table of versions holds.

    Attributes:
        wiped_scn: of the first truncate, None without one.
        wiped_us: its commit time, microseconds since 1970 UTC.
        asks: whether some row grew out of one that the target holds.
        dies: whether some version is that there is no row.
        tells: whether a chunk row says some version.
    """

    wiped_scn: int | None = None
    wiped_us: int = 0
    asks: bool = False
    dies: bool = False
    tells: bool = False


def staged_changes(schema: TableSchema, changes: pa.Table) -> tuple[pa.Table, Staged]:
    """Return the changes themselves, and what they are; the name is the caller's to give.

    Args:
        schema: version of the changes.
        changes: in order.
    """
    rows = named_missing(schema, changes).select(shaped(schema, Mode.APPEND).names)
    return rows.rename_columns([f"c{i}" for i in range(rows.num_columns)]), Staged("", wiped=False)


def staged_versions(schema: TableSchema, changes: pa.Table) -> tuple[pa.Table, StagedVersions]:
    """Return the versions of keys to stage, and what they are; the name is the caller's to give.

    Args:
        schema: version of the changes; it has a key.
        changes: in order.

    Raises:
        MalformedTransaction: a deferred key ends a transaction with two rows.
        ProtocolError: rows that no source may send.
    """
    found = versions(schema, changes)
    form = found.rows.assemble(schema, changes).combine_chunks()
    count, codes, when = form.num_rows, found.codes, pa.array(found.when)
    changed = codes[1:] != codes[:-1]
    edge = np.ones(min(count, 1), bool)
    told = pc.equal(changes["_op"].take(when), READ)
    asks = found.rows.origins != ABSOLUTE
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "place": pa.array(np.arange(count), pa.int64()),
        "code": pa.array(codes, pa.int64()),
        "opens": pa.array(np.concatenate([edge, changed])),
        "closes": pa.array(np.concatenate([changed, edge])),
        "died": pa.array(found.dead),
        "told": told,
        "reaches": _reaches(schema, changes, found, form),
        "scn": changes["_scn"].take(when),
        "since": changes[COMMITTED_AT].take(when),
        "asks": pa.array(asks),
    }
    missing = missing_matrix(form["_missing"].combine_chunks(), len(schema.columns))
    lacking = tuple(int(index) for index in np.flatnonzero(missing.any(axis=0)))
    for index, name in enumerate(schema.key):
        columns[f"o{index}"] = form[origin_name(name)]
    for index in lacking:
        columns[f"m{index}"] = pa.array(missing[:, index])
    for index, name in enumerate(schema.names):
        columns[f"c{index}"] = form[name]
    columns["gone"] = pa.array(found.dead)
    columns["held"] = columns["idle"] = pa.array(np.zeros(count, bool))
    lenders = form.filter(pa.array(asks))
    keys = [
        *(form[name] for name in schema.key),
        *(lenders[origin_name(name)] for name in schema.key),
    ]
    staged = StagedVersions(
        "",
        wiped=found.wiped >= 0,
        lacking=lacking,
        needed=lacking,
        null_keys=any(cells.null_count for cells in keys),
        wiped_scn=changes["_scn"][found.wiped].as_py() if found.wiped >= 0 else None,
        wiped_us=changes[COMMITTED_AT][found.wiped].value if found.wiped >= 0 else 0,
        asks=bool(asks.any()),
        dies=bool(found.dead.any()),
        tells=bool(pc.any(told).as_py()),
    )
    return pa.table(columns), staged


def _reaches(
    schema: TableSchema, changes: pa.Table, found: Versions, form: pa.Table
) -> pa.ChunkedArray | pa.Array:
    """Return which versions may come upon the row that the target holds: a truncate has not ended it before.

    What comes in the truncate's own transaction is one version with it.
    """
    if found.wiped < 0:
        return pa.array(np.ones(form.num_rows, bool))
    before = encode_rows([changes[name].take(pa.array(found.before)) for name in schema.key])
    touched = pc.is_in(encode_rows([form[name] for name in schema.key]), before)
    scn = changes["_scn"].to_numpy()
    return pc.or_(touched, pa.array(scn[found.when] <= scn[found.wiped]))
