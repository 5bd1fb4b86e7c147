"""Settings of a change log."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import ConfigError

__all__ = ["ChangeLogSettings"]


@dataclass(frozen=True, slots=True)
class ChangeLogSettings:
    """Sizes and ages.

    Attributes:
        segment_bytes: a new segment file begins at this size.
        budget_bytes: blocks on disk never take more; what every job has applied makes room first.
        retain_bytes: kept for late readers even when every job has applied it, unless the budget needs the room.
        retain_s: kept for at least this long, likewise, by a clock that nobody sets; of what stood there before the
            writer began, the file system's times tell the age.
    """

    segment_bytes: int = 64 * 2**20
    budget_bytes: int = 8 * 2**30
    retain_bytes: int = 2**30
    retain_s: float = 0.0

    @property
    def roll_bytes(self) -> int:
        """Size at which a segment ends: small enough that old ones can go before the budget is used up."""
        return min(self.segment_bytes, self.budget_bytes // 4)

    def validate(self) -> None:
        """Check each field.

        Raises:
            ConfigError: names the first field that cannot be used.
        """
        for name, least in (
            ("segment_bytes", 4096),
            ("budget_bytes", 4096),
            ("retain_bytes", 0),
            ("retain_s", 0),
        ):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"changelog.{name} is {getattr(self, name)}, below {least}.",
                    next_step=f"set changelog.{name} to {least} or more, or leave it out.",
                )
