"""Which segments make up the log, and how much of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.changelog.segment import SegmentHeader, SegmentName

__all__ = ["Link", "follow"]


@dataclass(frozen=True, slots=True)
class Link:
    """One segment of the log.

    Attributes:
        header: of the segment.
        length: bytes that count; what lies behind them is not part of the log.
    """

    header: SegmentHeader
    length: int

    @property
    def name(self) -> SegmentName:
        """The segment's identity."""
        return self.header.name


def follow(
    newest: SegmentName,
    length: int,
    first_number: int,
    header_of: Callable[[SegmentName], SegmentHeader | None],
) -> list[Link]:
    """Return the log's segments, oldest first.

    Args:
        newest: the last segment.
        length: bytes of it that count.
        first_number: number of the oldest segment that was kept.
        header_of: reads a header, returns None when the file does not exist; the chain begins behind it.
    """
    links: list[Link] = []
    name = newest
    while name.number >= max(first_number, 1):
        header = header_of(name)
        if header is None:
            break
        links.append(Link(header, length))
        name, length = header.previous, header.previous_length
    links.reverse()
    return links
