"""What people set while a capture runs: the pace of dumps and of log delivery, and what the change log retains.

Each setting is a value of its own in the state database, so that two people who change two of them at once both
succeed. A capture reads them about twice a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = ["ADAPTIVE", "OwnPace", "Pace"]

ADAPTIVE = 0
"""A chunk size that follows the time a chunk takes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Settings that win over the configuration; None leaves a setting as the file has it.

    Attributes:
        chunk_rows: rows of one bounded select, `ADAPTIVE` to let it follow the time per chunk.
        chunk_s: seconds that an adaptive chunk aims at.
        load: share of one connection's time that selects may take, above 0 to 1.
        delay_s: pause after each chunk.
        rows_per_s: most rows that dumps read per second, 0 for no limit.
        log_paused: whether log delivery stands still; the source keeps its log meanwhile.
        log_rows_per_s: most change rows that are delivered per second, 0 for no limit.
        retain_bytes: bytes of the change log that are kept for late readers.
        retain_s: seconds for which it is kept for them.
    """

    chunk_rows: int | None = None
    chunk_s: float | None = None
    load: float | None = None
    delay_s: float | None = None
    rows_per_s: float | None = None
    log_paused: bool = False
    log_rows_per_s: float = 0.0
    retain_bytes: int | None = None
    retain_s: float | None = None

    def validate(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ValueError: names the setting as the configuration does.
        """
        bounds: tuple[tuple[str, float | None, float, float], ...] = (
            ("dump.chunk_rows", self.chunk_rows, 0, 1_000_000),
            ("dump.chunk_s", self.chunk_s, 0.001, 60),
            ("dump.load", self.load, 0.001, 1),
            ("dump.delay_s", self.delay_s, 0, 3_600),
            ("dump.rows_per_s", self.rows_per_s, 0, 10**9),
            # No configuration has it; over HTTP it is called so.
            ("rows per second of the log (log_rows_per_s)", self.log_rows_per_s, 0, 10**9),
            ("changelog.retain", self.retain_bytes, 0, 2**53),
            ("changelog.retain_s", self.retain_s, 0, 10**9),
        )
        for name, value, least, most in bounds:
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} must lie between {least:,} and {most:,}")

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Pace:
        """Return the pace that stored values amount to; an empty value is none."""

        def number(name: str) -> float | None:
            return float(values[name]) if values.get(name) else None

        def whole(name: str) -> int | None:
            value = number(name)
            return None if value is None else int(value)

        return cls(
            whole("chunk_rows"),
            number("chunk_s"),
            number("load"),
            number("delay_s"),
            number("rows_per_s"),
            values.get("log_paused") == "True",
            number("log_rows_per_s") or 0.0,
            whole("retain_bytes"),
            number("retain_s"),
        )

    def with_own(self, own: OwnPace) -> Pace:
        """Return the pace of a request that has settings of its own."""
        return replace(self, **own.settings)


@dataclass(frozen=True, slots=True)
class OwnPace:
    """Settings of one dump request, which win over those of the replicator; None leaves one as it is there.

    Attributes:
        chunk_rows: as in `Pace`.
        delay_s: as in `Pace`.
        rows_per_s: as in `Pace`.
    """

    chunk_rows: int | None = None
    delay_s: float | None = None
    rows_per_s: float | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Return what is set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}
