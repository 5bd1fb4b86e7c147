"""Global transaction ids, of either kind of server, and sets of them.

MariaDB counts within a domain, in which ids rise: the last id of each domain says what came before. MySQL counts per
server that first committed, or per tag of such a server; ids of one may be missing in between, so what came before is a
set.
"""

from __future__ import annotations

import bisect
import re
import struct
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.errors import ConfigError

__all__ = ["DomainGtid", "DomainGtids", "Gtid", "GtidSet", "Gtids", "SourceGtid", "gtids_of"]

Range = tuple[int, int]
"""First number and last."""

_DOMAIN = re.compile(r"\d+-\d+-\d+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_TAGGED = 1
"""Form of a set in which each source has a tag, which may be empty."""


class Gtid(Protocol):
    """A transaction's id; its text is what the server writes."""

    @property
    def source(self) -> str:
        """Who counts."""
        ...

    @property
    def number(self) -> int:
        """Which transaction of it."""
        ...


@dataclass(frozen=True, slots=True)
class DomainGtid:
    """MariaDB's id.

    Attributes:
        domain: stream of transactions.
        server: who committed it.
        number: rises within the domain.
    """

    domain: int
    server: int
    number: int

    @property
    def source(self) -> str:
        """The domain, which counts."""
        return str(self.domain)

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.number}"


@dataclass(frozen=True, slots=True)
class SourceGtid:
    """MySQL's id.

    Attributes:
        source: name of the server that first committed it, and behind a colon its tag where it has one.
        number: unique within the source; others of it may be missing below, and come later.
    """

    source: str
    number: int

    def __str__(self) -> str:
        return f"{self.source}:{self.number}"


class Gtids(Protocol):
    """What came before a place of the log."""

    @property
    def text(self) -> str:
        """As the server takes it."""
        ...

    def behind(self, gtid: Gtid) -> Gtids:
        """Return what came before the place behind one more transaction."""
        ...

    def to_json(self) -> Any:
        """Return plain values; `gtids_of` reads them back."""
        ...


@dataclass(frozen=True, slots=True)
class DomainGtids:
    """MariaDB's: the last id of each domain."""

    last: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> DomainGtids:
        """Read ``0-1-17,2-1-4``.

        Raises:
            ConfigError: it is no such list.
        """
        found = {}
        for part in filter(None, text.split(",")):
            if not _DOMAIN.fullmatch(part):
                raise _unreadable()
            found[part.partition("-")[0]] = part
        return cls(found)

    @property
    def text(self) -> str:
        """As the server takes it."""
        return ",".join(self.last[domain] for domain in sorted(self.last, key=int))

    def among(self, others: Any) -> bool:
        """Return whether every id is one of others: of the domains that it knows, it has come as far."""
        return isinstance(others, DomainGtids) and self.last.items() <= others.last.items()

    def behind(self, gtid: Gtid) -> DomainGtids:
        """Return what came before the place behind one more transaction."""
        return DomainGtids({**self.last, gtid.source: str(gtid)})

    def to_json(self) -> str:
        """Return plain values."""
        return self.text


@dataclass(frozen=True, slots=True)
class GtidSet:
    """MySQL's: per source the ranges of its numbers, rising and apart."""

    ranges: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Read ``uuid:1-17:19:tag:1-3,uuid:5``.

        Raises:
            ConfigError: it is no such set.
        """
        found: dict[str, list[Range]] = {}
        for part in filter(None, re.sub(r"\s", "", text).split(",")):
            server, *rest = part.split(":")
            source = server.lower()
            for word in rest:
                match = _RANGE.fullmatch(word)
                if match is None:
                    source = f"{server.lower()}:{word.lower()}"
                    continue
                first = int(match[1])
                found.setdefault(source, []).append((first, int(match[2] or first)))
        try:
            for source in found:
                uuid.UUID(source.partition(":")[0])
        except ValueError:
            raise _unreadable() from None
        return cls({source: tuple(_joined(sorted(ranges))) for source, ranges in found.items()})

    @property
    def text(self) -> str:
        """As the server takes it."""
        return ",".join(
            f"{source}:" + ":".join(f"{first}-{last}" for first, last in self.ranges[source])
            for source in sorted(self.ranges)
        )

    def __contains__(self, gtid: SourceGtid) -> bool:
        ranges = self.ranges.get(gtid.source, ())
        at = bisect.bisect_right(ranges, (gtid.number, 1 << 63)) - 1
        return at >= 0 and ranges[at][0] <= gtid.number <= ranges[at][1]

    def behind(self, gtid: Gtid) -> GtidSet:
        """Return what came before the place behind one more transaction."""
        ranges = self.ranges.get(gtid.source, ())
        if ranges and ranges[-1][1] == gtid.number - 1:
            # Nearly always: the next one.
            more = (*ranges[:-1], (ranges[-1][0], gtid.number))
        else:
            more = tuple(_joined(sorted((*ranges, (gtid.number, gtid.number)))))
        return GtidSet({**self.ranges, gtid.source: more})

    def to_json(self) -> dict[str, list[list[int]]]:
        """Return plain values."""
        return {source: [list(one) for one in ranges] for source, ranges in self.ranges.items()}

    def encoded(self) -> bytes:
        """Return the bytes in which the protocol has a set."""
        tagged = any(":" in source for source in self.ranges)
        count = len(self.ranges)
        head = _TAGGED << 56 | count << 8 | _TAGGED if tagged else count
        parts = [struct.pack("<Q", head)]
        for source in sorted(self.ranges):
            server, _, tag = source.partition(":")
            parts.append(uuid.UUID(server).bytes)
            if tagged:
                parts.append(bytes([len(tag) << 1]) + tag.encode())
            ranges = self.ranges[source]
            parts.append(struct.pack("<Q", len(ranges)))
            parts += [struct.pack("<QQ", first, last + 1) for first, last in ranges]
        return b"".join(parts)


def gtids_of(value: Any) -> Gtids:
    """Read what `Gtids.to_json` gave.

    Raises:
        ConfigError: it is nothing of the kind.
    """
    if isinstance(value, str):
        return DomainGtids.parse(value)
    if not isinstance(value, dict):
        raise _unreadable()
    return GtidSet(
        {
            source: tuple((int(first), int(last)) for first, last in ranges)
            for source, ranges in value.items()
        }
    )


def _joined(ranges: list[Range]) -> Iterator[Range]:
    """Yield ranges that neither touch nor overlap; given ones rise."""
    held: Range | None = None
    for first, last in ranges:
        if held is not None and first <= held[1] + 1:
            held = (held[0], max(held[1], last))
            continue
        if held is not None:
            yield held
        held = (first, last)
    if held is not None:
        yield held


def _unreadable() -> ConfigError:
    return ConfigError(
        "A list of global transaction ids does not read.",
        next_step="restore the state folder from a backup, or dump every table again.",
    )
