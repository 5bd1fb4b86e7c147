"""Row images: the SQL by which a trigger writes one, and how it is read. Pure.

A cell is ``N`` where it is null, else its length in bytes, a colon, and its bytes: the text that a select of the column
shows to a session of ours, or the bytes themselves where the column holds bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import ProtocolError
from headrace.sources.mysql.catalog import CatalogColumn
from headrace.sources.mysql.charsets import BINARY
from headrace.sources.mysql.connection import quote
from headrace.sources.mysql.texts import selected
from headrace.sources.mysql.types import ColumnType, Kind

__all__ = ["cells_of", "image_sql"]

_NULL, _COLON = ord("N"), b":"


def image_sql(columns: Sequence[CatalogColumn], row: str) -> str:
    """Return the expression for the image of a row.

    Args:
        columns: of the table, each of a type that is captured.
        row: ``NEW`` or ``OLD``.
    """
    cells = (_cell_sql(c.type, f"{row}.{quote(c.name)}") for c in columns if c.type is not None)
    return f"CONCAT({', '.join(cells)})"


def _cell_sql(type_: ColumnType, name: str) -> str:
    text = _bytes_sql(type_, name)
    return f"IF({name} IS NULL, 'N', CONCAT(LENGTH({text}), ':', {text}))"


def _bytes_sql(type_: ColumnType, name: str) -> str:
    if type_.kind in (Kind.GEOMETRY, Kind.VECTOR):
        return f"UNHEX(HEX({name}))"
    if type_.charset == BINARY and not type_.native:
        return f"CAST({name} AS BINARY)"
    if type_.charset and not type_.native:
        return f"CAST(CONVERT({name} USING utf8mb4) AS BINARY)"
    return f"CAST(CONVERT({selected(type_, name)} USING utf8mb4) AS BINARY)"


def cells_of(image: bytes, width: int) -> list[bytes | None]:
    """Return the cells of a row.

    Raises:
        ProtocolError: the image is no row of so many cells.
    """
    cells: list[bytes | None] = []
    at, end = 0, len(image)
    while at < end:
        if image[at] == _NULL:
            cells.append(None)
            at += 1
            continue
        colon = image.find(_COLON, at)
        size = image[at:colon] if colon > at else b""
        if not size.isdigit():
            break
        at = colon + 1 + int(size)
        cells.append(image[colon + 1 : at])
    if at != end or len(cells) != width:
        raise ProtocolError(
            f"A row image of {len(image)} bytes is no row of {width} cells.",
            next_step="find who writes to headrace.txlog_changes, which only headrace's triggers do.",
        )
    return cells
