"""The stream as lines of JSON, for people and scripts.

In: decoded blocks. Out: a line per change and event in ``(scn, ord)`` order, one at each transaction's end, one per
block that only moves coverage. What JSON cannot hold exactly is text. Pure functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headrace.model.block import ORIGIN_LOG, Block, Body
from headrace.model.change import META, missing_matrix
from headrace.model.moments import moment_texts
from headrace.wire.place import Place
from headrace.wire.plain import plain

__all__ = ["block_lines", "line"]

_ROW, _END = 0, 1


def line(said: dict[str, Any]) -> bytes:
    """Return one object as a line."""
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def block_lines(block: Block, after: Place, upto: int | None) -> bytes:
    """Return the lines of what lies above a place and up to an SCN; none when nothing does."""
    wanted = block.after(after.after_scn)
    if upto is not None:
        wanted = wanted.upto(upto)
    if not len(wanted.index):
        return line({"covered_scn": wanted.covered_scn}) if wanted.covered_scn > after.scn else b""
    entries = [
        *(entry for body in wanted.bodies for entry in _rows(body)),
        *(
            (
                event.scn,
                _ROW,
                event.ord,
                {
                    "scn": event.scn,
                    "event": event.kind.value,
                    "ord": event.ord,
                    "table": str(event.table),
                    "payload": event.payload,
                },
            )
            for event in wanted.system
        ),
        *(
            (
                int(entry["scn"]),
                _END,
                0,
                {
                    "scn": int(entry["scn"]),
                    "end": True,
                    "commit_us": int(entry["commit_us"]),
                    "origin": "log" if entry["origin"] == ORIGIN_LOG else "select",
                },
            )
            for entry in wanted.index
            if entry["last_piece"]
        ),
    ]
    entries.sort(key=lambda entry: entry[:3])
    told = (
        said
        for scn, kind, ord_, said in entries
        if kind == _END or (scn, ord_) > (after.scn, after.ord)
    )
    return b"".join(line(said) for said in told)


def _rows(body: Body) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
    """Yield ``(scn, kind, ord, object)`` of each change row."""
    batch = body.batch
    names = batch.schema.names[len(META) :]
    columns = [_cells(batch.column(name)) for name in names]
    missing = missing_matrix(batch.column("_missing"), len(names))
    heads = zip(
        batch.column("_scn").to_pylist(),
        batch.column("_ord").to_pylist(),
        batch.column("_op").to_pylist(),
        strict=True,
    )
    for at, (scn, ord_, op) in enumerate(heads):
        unsent = {names[i] for i in missing[at].nonzero()[0]}
        cells = zip(names, columns, strict=True)
        said: dict[str, Any] = {
            "scn": scn,
            "ord": ord_,
            "op": op,
            "table": str(body.table),
            "row": {name: column[at] for name, column in cells if name not in unsent},
        }
        if unsent:
            said["missing"] = [name for name in names if name in unsent]
        yield scn, _ROW, ord_, said


def _cells(column: pa.Array) -> list[Any]:
    """Return the cells of a column as what JSON holds."""
    if pa.types.is_temporal(column.type):
        return list(moment_texts(column))
    return [plain(cell) for cell in column.to_pylist()]
