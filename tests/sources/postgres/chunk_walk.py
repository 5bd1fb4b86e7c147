"""A table of a real server, read chunk by chunk."""

from __future__ import annotations

import pyarrow as pa

from headrace.model.schema import TableId
from headrace.sources.postgres.chunks import PostgresChunkReader

T = TableId("public", "t")


def walk(reader: PostgresChunkReader, limit: int) -> list[pa.RecordBatch]:
    """Read the whole table by chunks."""
    until = reader.upper_bound(T).key
    after: tuple[str, ...] | None = None
    chunks: list[pa.RecordBatch] = []
    assert until is not None
    while True:
        chunk = reader.read(T, after, until, limit)
        chunks.append(chunk.rows)
        if chunk.rows.num_rows < limit and not chunk.cut:
            return chunks
        after = chunk.last_key
