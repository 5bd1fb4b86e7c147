"""What a person asked for a target table, by patterns of its name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from headrace.errors import ConfigError
from headrace.lake.modes import Mode
from headrace.model.schema import TableId

__all__ = [
    "SettingsByTable",
    "TableSettings",
    "refuse_modes",
    "refuse_other_shape",
    "settings_for",
]


@dataclass(frozen=True, slots=True)
class TableSettings:
    """How one table is kept.

    Attributes:
        mode: what its target keeps.
    """

    mode: Mode = Mode.MIRROR

    @property
    def shape(self) -> str:
        """What a target table remembers of it, empty for a plain mirror."""
        return "" if self.mode is Mode.MIRROR else self.mode.value


SettingsByTable = Sequence[tuple[str, TableSettings]]
"""Patterns ``schema.table`` with what they ask for; the first that matches counts."""


def settings_for(table: TableId, given: SettingsByTable) -> TableSettings:
    """Return what a table's first matching pattern asks for, a mirror without one."""
    for pattern, settings in given:
        if fnmatchcase(str(table), pattern):
            return settings
    return TableSettings()


def refuse_modes(given: SettingsByTable, modes: Collection[str], target: str) -> None:
    """Refuse what a target cannot keep.

    Args:
        given: what was asked for.
        modes: names of those that the target has.
        target: its name.

    Raises:
        ConfigError: naming table, mode and target.
    """
    for pattern, settings in given:
        if settings.mode.value not in modes:
            raise ConfigError(
                f"tables.{pattern}: the target {target} has no mode {settings.mode.value}.",
                next_step=f"choose {' or '.join(sorted(modes))} for the table, or another target.",
            )


def refuse_other_shape(table: TableId, settings: TableSettings, made: str) -> None:
    """Refuse a target table that was made in another way: its rows are not those that were asked for.

    Args:
        table: the table.
        settings: what is asked for now.
        made: what the target table remembers.

    Raises:
        ConfigError: naming both.
    """
    if settings.shape != made:
        raise ConfigError(
            f"The target table of {table} was made as {made or Mode.MIRROR.value}, and the file asks for "
            f"{settings.shape or Mode.MIRROR.value}.",
            next_step=f"set tables back, or move the target table away and copy it again: "
            f"headrace dump start FILE --table {table}.",
        )
