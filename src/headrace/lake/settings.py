"""What a person asked for a target table, by patterns of its name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import MadeOtherwise
from headrace.lake.modes import Mode
from headrace.lake.policies import Policies
from headrace.model.patterns import matches
from headrace.model.schema import TableId, TableSchema

__all__ = [
    "IN_KEY",
    "LEFT_OUT",
    "UNKNOWN",
    "SettingFault",
    "SettingsByTable",
    "TableSettings",
    "refuse_other_shape",
    "settings_for",
]


@dataclass(frozen=True, slots=True)
class SettingFault:
    """A name in the settings of a table's columns that cannot stand there.

    Attributes:
        setting: which one.
        column: the name.
        why: what is wrong with it, as the end of a sentence.
    """

    setting: str
    column: str
    why: str


UNKNOWN, IN_KEY, LEFT_OUT = (
    "which is no column of the table",
    "which is part of the key",
    "which is left out",
)
"""What can be wrong with a name."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """How one table is kept; what may hold a secret shows in no ``repr``.

    Attributes:
        mode: what its target keeps.
        select: the only columns that it has, beside its key's; empty for all.
        drop: columns that it does not have.
        rename: columns with the names that it has for them.
        mask: columns with the Spark SQL expressions that stand in their places.
        compute: further columns with the expressions that they hold.
        where: condition of the rows that it has, None for all.
        policies: what it does when its source changes.
        partition_by: columns of the target that lie in paths and not in files.
        adopted: whether its first rows come from a dump made elsewhere (`headrace.lake.adopted`).
        sets_aside: whether it goes on without a transaction that it will never take.
        ignored: operations of change rows, and of truncates, that never reach it.
    """

    mode: Mode = Mode.MIRROR
    select: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    mask: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    compute: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    where: str | None = field(default=None, repr=False)
    policies: Policies = field(default_factory=Policies)
    partition_by: tuple[str, ...] = ()
    adopted: bool = False
    sets_aside: bool = False
    ignored: frozenset[str] = frozenset()

    @property
    def of_columns(self) -> bool:
        """Whether the target's columns or rows are others than the source's."""
        plain = replace(
            self,
            mode=Mode.MIRROR,
            policies=Policies(),
            partition_by=(),
            adopted=False,
            sets_aside=False,
            ignored=frozenset(),
        )
        return plain != TableSettings()

    def kept(self, schema: TableSchema) -> list[str]:
        """Return the source's columns that the target has, as they are or masked, by their names at the source."""
        return [
            name
            for name in schema.names
            if name not in self.drop
            and (not self.select or name in self.select or name in schema.key)
        ]

    def faults(self, schema: TableSchema) -> Iterator[SettingFault]:
        """Yield the columns that are named and are not there, or that nobody may touch."""
        known = set(schema.names)
        for setting, names in (
            ("select", self.select),
            ("drop", self.drop),
            ("rename", dict(self.rename)),
            ("mask", dict(self.mask)),
        ):
            for name in names:
                if name not in known:
                    yield SettingFault(setting, name, UNKNOWN)
                elif name in schema.key and setting in ("drop", "mask"):
                    yield SettingFault(setting, name, IN_KEY)
                elif setting in ("rename", "mask") and name not in self.kept(schema):
                    yield SettingFault(setting, name, LEFT_OUT)

    def alike(self, schema: TableSchema) -> TableSchema:
        """Return a version of the source's table with only the columns whose values the target has too."""
        masked = {name for name, _ in self.mask}
        names = [name for name in self.kept(schema) if name not in masked]
        return replace(schema, columns=tuple(schema.column(name) for name in names))

    def renamed(self, schema: TableSchema) -> TableSchema:
        """Return a version of a table with the names that the target has for its columns."""
        names = dict(self.rename)
        return replace(
            schema,
            columns=tuple(replace(c, name=names.get(c.name, c.name)) for c in schema.columns),
            key=tuple(names.get(name, name) for name in schema.key),
            numbers={names.get(name, name): number for name, number in schema.numbers.items()},
        )

    def of_its_own(self, held: Collection[str]) -> set[str]:
        """Return those of a target table's columns whose values are not the source's."""
        names = dict(self.rename)
        masked = {names.get(name, name) for name, _ in self.mask}
        return masked | {name for name, _ in self.compute} & set(held)

    @property
    def shape(self) -> str:
        """What a target table remembers of it, empty for a plain mirror; expressions only as a digest."""
        if not self.of_columns:
            return "" if self.mode is Mode.MIRROR else self.mode.value
        # In whatever order the file names them.
        named = (self.select, self.drop, self.rename, self.mask, self.compute)
        text = json.dumps([*(sorted(names) for names in named), self.where])
        return f"{self.mode.value}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


SettingsByTable = Sequence[tuple[str, TableSettings]]
"""Patterns ``schema.table`` with what they ask for; the first that matches counts."""


def settings_for(table: TableId, given: SettingsByTable) -> TableSettings:
    """Return what a table's first matching pattern asks for, a mirror without one."""
    for pattern, settings in given:
        if matches(str(table), pattern):
            return settings
    return TableSettings()


def refuse_other_shape(table: TableId, settings: TableSettings, made: str) -> None:
    """Refuse a target table that was made in another way: its rows are not those that were asked for.

    Args:
        table: the table.
        settings: what is asked for now.
        made: what the target table remembers.

    Raises:
        MadeOtherwise: naming both.
    """
    if settings.shape != made:
        raise MadeOtherwise(
            f"The target table of {table} was made as {made or Mode.MIRROR.value}, and the file asks for "
            f"{settings.shape or Mode.MIRROR.value}.",
            next_step="set tables back, or move the target table away (of a warehouse, with its row in "
            f"headrace.ledger) and copy it again: headrace dump start FILE --table {table}.",
        )
