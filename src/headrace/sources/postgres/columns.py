"""Leaves out columns that the log carries and the configuration does not want.

The decoder reads whole messages; what leaves of them is decided when a block is handed over.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.model.block import Body
from headrace.model.change import META, change_schema, missing_matrix, pack_missing
from headrace.model.schema import TableSchema
from headrace.sources.postgres.messages import Relation
from headrace.sources.postgres.settings import ColumnChoice

__all__ = ["joined", "kept_names", "narrowed", "narrowed_body"]


def kept_names(
    relation: Relation, choice: ColumnChoice | None, key: Collection[str]
) -> frozenset[str] | None:
    """Return the names of the columns to keep, None for all; those of the key always are."""
    if choice is None:
        return None
    names = [column.name for column in relation.columns]
    kept = frozenset(name for name in names if choice.keeps(name) or name in key)
    return None if len(kept) == len(names) else kept


def narrowed(relation: Relation, kept: Collection[str]) -> Relation:
    """Return the description with the kept columns only."""
    columns = tuple(column for column in relation.columns if column.name in kept)
    return replace(relation, columns=columns)


def narrowed_body(body: Body, schema: TableSchema) -> Body:
    """Return a body with the columns of ``schema`` only, as a body of that version.

    Args:
        body: change rows, in the shape of their messages.
        schema: a version that has some of their columns, in the same order.
    """
    batch = body.batch
    names = batch.schema.names[len(META) :]
    # By place: a column that is left out may have the name of one of these.
    columns = batch.columns[: len(META)]
    missing = columns[META.index("_missing")]
    if missing.null_count < batch.num_rows:
        places = [names.index(name) for name in schema.names]
        matrix = missing_matrix(missing, len(names))[:, places]
        masks = [pack_missing(np.flatnonzero(row), len(places)) for row in matrix]
        columns[META.index("_missing")] = pa.array(masks, pa.binary())
    columns += [batch.column(name) for name in schema.names]
    kept = pa.RecordBatch.from_arrays(columns, schema=change_schema(schema))
    return Body(schema.schema_id, schema.table, kept)


def joined(bodies: Sequence[Body]) -> Body:
    """Return one body with the rows of several of one version, in ``(scn, ord)`` order."""
    if len(bodies) == 1:
        return bodies[0]
    rows = pa.Table.from_batches([body.batch for body in bodies])
    rows = rows.sort_by([("_scn", "ascending"), ("_ord", "ascending")]).combine_chunks()
    return Body(bodies[0].schema_id, bodies[0].table, rows.to_batches()[0])
