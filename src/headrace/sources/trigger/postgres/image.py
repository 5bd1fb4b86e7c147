"""Rows as PostgreSQL writes a whole row as text: ``(1,"a, b",,"")``.

A cell is what the type's output function gives. It stands in quotes where it is empty or holds anything that could be
taken for the form's own signs; quotes and backslashes are doubled there. A cell without a text is null.

Source: PostgreSQL, "Composite Type Input and Output Syntax".
"""

from __future__ import annotations

import re

from headrace.errors import ProtocolError

__all__ = ["cells_of"]

_CELL = re.compile(rb'(?:"((?:[^"\\]|""|\\\\)*)"|([^,()"\\]*))([,)])', re.DOTALL)


def cells_of(image: bytes, width: int) -> list[bytes | None]:
    """Return the cells of a row.

    Args:
        image: the row's text.
        width: how many cells it has.

    Raises:
        ProtocolError: the text is no row of so many cells.
    """
    if width == 0 and image == b"()":
        return []
    cells: list[bytes | None] = []
    at, end = 1, len(image)
    while at < end:
        match = _CELL.match(image, at)
        if match is None:
            break
        quoted, plain, sign = match.groups()
        if quoted is not None:
            cells.append(quoted.replace(b'""', b'"').replace(b"\\\\", b"\\"))
        else:
            cells.append(plain or None)
        at = match.end()
        if sign == b")":
            break
    if image[:1] != b"(" or image[-1:] != b")" or at != end or len(cells) != width:
        raise ProtocolError(
            f"A row image of {len(image)} bytes is no row of {width} cells.",
            next_step="find who writes to headrace.txlog_changes, which only headrace's triggers do.",
        )
    return cells
