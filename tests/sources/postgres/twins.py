"""Both decoders, given the same frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.sources.base import LogItem
from headrace.sources.postgres.assembler import Assembler, TableVersion
from headrace.sources.postgres.decoder import Decoder, make_decoder
from headrace.sources.postgres.frames import FrameBuffer
from headrace.sources.postgres.messages import Relation
from headrace.sources.postgres.spools import Spools
from headrace.sources.postgres.types import Form
from tests.sources.postgres import wire

TYPES: tuple[pa.DataType, ...] = (
    pa.int64(), pa.int32(), pa.int16(), pa.bool_(), pa.float32(), pa.float64(), pa.date32(),
    pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.decimal128(12, 3), pa.decimal128(38, 0),
    pa.decimal128(5, 5), pa.string(), pa.binary(),
)  # fmt: skip
WIDE = TableSchema(
    TableId("public", "wide"),
    tuple(Column(f"c{i}", type_, "t") for i, type_ in enumerate(TYPES)),
    ("c0", "c12"),
    KeyCheck.IMMEDIATE,
)
FULL = TableSchema(
    TableId("public", "full"),
    (Column("a", pa.int32(), "integer"), Column("b", pa.string(), "text")),
    (),
    KeyCheck.NONE,
)
# Columns that a log in binary may have, and how each is read.
PACKED_TYPES: tuple[tuple[pa.DataType, Form], ...] = (
    *((type_, Form.PLAIN) for type_ in TYPES if not pa.types.is_decimal(type_)),
    (pa.decimal128(12, 3), Form.NUMERIC), (pa.decimal128(38, 0), Form.NUMERIC), (pa.string(), Form.NUMERIC),
    (pa.string(), Form.UUID), (pa.string(), Form.JSONB), (pa.string(), Form.OID), (pa.string(), Form.TIME),
    (pa.string(), Form.SKIPPED), (pa.string(), Form.UNKNOWN),
)  # fmt: skip
PACKED = TableSchema(
    TableId("public", "packed"),
    tuple(Column(f"c{i}", type_, "t") for i, (type_, _) in enumerate(PACKED_TYPES)),
    ("c0",),
    KeyCheck.IMMEDIATE,
)
OIDS = {5: WIDE, 6: FULL, 7: None, 8: PACKED}
FORMS = {8: tuple(form for _, form in PACKED_TYPES)}


class Versions:
    """Knows three tables, one of which comes in binary; another is nobody's."""

    def resolve(self, relation: Relation) -> TableVersion:
        schema = OIDS.get(relation.oid)
        if schema is None:
            return TableVersion()
        return TableVersion(schema, relation.oid, forms=FORMS.get(relation.oid, ()))

    def misread(self, relation: Relation) -> frozenset[str]:
        return frozenset()

    def migrated(self, content: bytes) -> tuple[()]:
        return ()


def relations() -> list[bytes]:
    wide = [(c.name, c.name in WIDE.key, 25, -1) for c in WIDE.columns]
    packed = [(c.name, c.name in PACKED.key, 25, -1) for c in PACKED.columns]
    return [
        wire.relation(5, "public", "wide", "d", wide),
        wire.relation(6, "public", "full", "f", [("a", True, 23, -1), ("b", True, 25, -1)]),
        wire.relation(7, "public", "other", "d", [("a", True, 23, -1)]),
        wire.relation(8, "public", "packed", "d", packed),
    ]


def frames_of(messages: Sequence[bytes]) -> list[bytes]:
    return [wire.frame(message) for message in messages]


def decoder_of(engine: str, max_rows: int = 100_000) -> Decoder:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_DECODER", engine)
        return make_decoder(100, max_rows, 1 << 30)


def outcome(
    engine: str, frames: Sequence[bytes], cuts: Sequence[int] = (), max_rows: int = 100_000
) -> list[Any] | str:
    """Return everything that a stream amounts to, or that it ends in an error."""
    data = b"".join(frames)
    decoder = decoder_of(engine, max_rows)
    assembler = Assembler(Versions(), "p", decoder, Spools(), foreign)
    buffer = FrameBuffer(room=64)
    items: list[LogItem] = []
    try:
        for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
            buffer.add(data[start:end])
            before = -1
            while before != buffer.start:
                before = buffer.start
                assembler.advance(buffer)
                while assembler.full:
                    items.append(assembler.take())
                    assembler.advance(buffer)
        if assembler.has_output:
            items.append(assembler.take())
    except HeadraceError:
        return "an error"
    except ForeignFrame:
        return "a foreign frame"
    return [buffer.end - buffer.start, assembler.open, *map(_plain, items)]


class ForeignFrame(Exception):
    """What the reader would look at."""


def foreign(kind: bytes, data: bytes) -> None:
    raise ForeignFrame(kind, data)


def _plain(item: LogItem) -> Any:
    block = item.block
    bodies = [
        (b.schema_id, b.batch.schema, [_cells(column) for column in b.batch.columns])
        for b in block.bodies
    ]
    for body in block.bodies:
        body.batch.validate(full=True)
    # The text: not a number is not equal to itself.
    return repr((block.index.tolist(), bodies, block.system, block.covered_scn, item.position))


def _cells(column: pa.Array) -> list[Any]:
    """Return values; days and microseconds as numbers, since Python's calendar is shorter."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def both(frames: Sequence[bytes], cuts: Sequence[int] = (), max_rows: int = 100_000) -> Any:
    native = outcome("native", frames, cuts, max_rows)
    assert native == outcome("python", frames, cuts, max_rows)
    return native
