"""Updates whose documents come as what changed in them (``binlog_row_value_options = PARTIAL_JSON`` of any session).

In: the rows of such an event. Out: the same rows with whole images, as every other event has them. A change is told
against the document in the image before; where that image lacks it, nobody here can know the new one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.errors import SourceError
from headrace.sources.mysql.documents import RENDERED, Document, document_of, rendered
from headrace.sources.mysql.events import RowsHeader
from headrace.sources.mysql.reading import Reading, bit_places, broken
from headrace.sources.mysql.types import ColumnType, Kind

__all__ = ["changed", "with_whole_documents"]

_HAS_CHANGES = 1
_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_LEG = re.compile(r'\[(\d+)\]|\.("(?:[^"\\]|\\.)*")|\.([^.\["\s]+)')


def with_whole_documents(header: RowsHeader, types: Sequence[ColumnType], table: str) -> RowsHeader:
    """Return the rows with whole images.

    Args:
        header: of an event with partial documents.
        types: of the table's columns.
        table: its name, for errors.

    Raises:
        SourceError: the document before a change is not in the log.
        ProtocolError: the rows do not follow the protocol.
    """
    rows = Reading(header.data, header.start, header.end)
    before = bit_places(header.before, header.width)
    after = bit_places(header.after, header.width)
    documents = [place for place, type_ in enumerate(types) if type_.kind is Kind.JSON]
    out = bytearray()
    while rows.left:
        begin = rows.at
        nulls = rows.bits(len(before))
        old = {}
        for n, place in enumerate(before):
            if not _bit(nulls, n):
                old[place] = _cell(rows, types[place])
        out += header.data[begin : rows.at]
        partial: set[int] = set()
        if rows.length() & _HAS_CHANGES:
            told = rows.bits(len(documents))
            partial = {place for n, place in enumerate(documents) if _bit(told, n)}
        nulls = rows.bits(len(after))
        out += nulls
        for n, place in enumerate(after):
            if _bit(nulls, n):
                continue
            type_ = types[place]
            cell = _cell(rows, type_)
            if place in partial:
                if place not in old:
                    raise SourceError(
                        f"{table}: the log has what changed in a document, and not the document before.",
                        next_step="see that sessions with binlog_row_value_options=PARTIAL_JSON have "
                        "binlog_row_image=FULL, and dump the table again.",
                    )
                document = changed(document_of(old[place]), cell)
                cell = RENDERED + rendered(document).encode()
            if type_.width is None:
                out += len(cell).to_bytes(type_.prefix, "little")
            out += cell
    return replace(header, data=bytes(out), start=0, end=len(out))


def _bit(mask: bytes, place: int) -> int:
    return mask[place >> 3] >> (place & 7) & 1


def _cell(rows: Reading, type_: ColumnType) -> bytes:
    return rows.take(rows.number(type_.prefix) if type_.width is None else type_.width)


def changed(document: Document, changes: bytes) -> Document:
    """Return a document behind changes: each an operation, a path, and a document where one is put there.

    Raises:
        ProtocolError: the changes do not fit the document.
    """
    rest = Reading(changes, 0, len(changes))
    whole: list[Any] = [document]
    while rest.left:
        operation = rest.number(1)
        path = rest.counted().decode("utf-8", "replace")
        legs = [0, *_legs(path)]
        value = None if operation == _REMOVE else document_of(rest.counted())
        held: Any = whole
        try:
            for leg in legs[:-1]:
                held = _child(held, leg)
            _apply(operation, held, legs[-1], value)
        except (LookupError, TypeError) as error:
            raise broken("a change of a document does not fit it") from error
    found: Document = whole[0]
    return found


def _legs(path: str) -> list[int | str]:
    if not path.startswith("$"):
        raise broken("a path in a document does not read")
    found: list[int | str] = []
    at = 1
    while at < len(path):
        match = _LEG.match(path, at)
        if match is None:
            raise broken("a path in a document does not read")
        at = match.end()
        if match[1] is not None:
            found.append(int(match[1]))
        else:
            found.append(json.loads(match[2]) if match[2] is not None else match[3])
    return found


def _child(held: Any, leg: int | str) -> Any:
    if isinstance(leg, int) and not isinstance(held, list):
        # What is no array counts as one with a single part.
        if leg:
            raise LookupError
        return held
    return held[leg]


def _apply(operation: int, held: Any, leg: int | str, value: Document) -> None:
    if operation == _REPLACE:
        held[leg]  # Only what is there is replaced.
        held[leg] = value
    elif operation == _REMOVE:
        del held[leg]
    elif operation == _INSERT and isinstance(held, list) and isinstance(leg, int):
        held.insert(leg, value)
    elif operation == _INSERT and isinstance(held, dict) and isinstance(leg, str):
        held[leg] = value
        # The server orders names by length, and then by their bytes.
        ordered = sorted(held.items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
        held.clear()
        held.update(ordered)
    else:
        raise LookupError
