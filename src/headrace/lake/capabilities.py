"""What each target can do, as data: known where the configuration is read, long before Spark starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.errors import ConfigError
from headrace.lake.modes import Mode
from headrace.lake.policies import Dropped, Incompatible
from headrace.lake.settings import SettingsByTable, TableSettings
from headrace.lake.widening import WIDENING

__all__ = [
    "DELTA",
    "DUCKDB",
    "MERGE",
    "MYSQL",
    "PARQUET",
    "POSTGRES",
    "Capabilities",
    "refuse_unkept",
    "unkept",
]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a target can do.

    Attributes:
        name: of the implementation.
        format: table format it writes.
        atomic_ledger: whether rows and applied SCN become durable in one commit.
        keyless: whether tables without a key are kept as multisets.
        truncate: whether a truncate is carried over.
        add_column: whether a new column is carried over without a new copy.
        drop_column: whether one that is dropped or renamed is.
        widening: pairs of neutral type names ``(from, to)`` carried over without a new copy; ``decimal`` stands for
            every growth of precision that loses no digit.
        versions: whether older states of a table can be read.
        distributed: whether tasks on other machines can write it.
        modes: names of the modes that its tables may have.
        keeps_columns: whether a column that the source no longer has may stay.
        recopies: whether a new copy of a table can be made beside the old one, which stays readable meanwhile.
        maintenance: whether files of its tables are written anew between batches.
        partitions: whether its tables may be partitioned by columns.
        adopts: whether a table of it may begin with a dump that was made elsewhere.
    """

    name: str
    format: str
    atomic_ledger: bool = True
    keyless: bool = True
    truncate: bool = True
    add_column: bool = True
    drop_column: bool = True
    widening: frozenset[tuple[str, str]] = WIDENING
    versions: bool = False
    distributed: bool = True
    modes: frozenset[str] = frozenset({Mode.MIRROR.value})
    keeps_columns: bool = False
    recopies: bool = False
    maintenance: bool = False
    partitions: bool = False
    adopts: bool = False


_ALL = frozenset(mode.value for mode in Mode)

DELTA = Capabilities(
    "delta",
    "delta",
    versions=True,
    modes=_ALL,
    keeps_columns=True,
    recopies=True,
    maintenance=True,
    partitions=True,
    adopts=True,
)
"""Delta tables by commits of our own."""
MERGE = Capabilities("merge", "delta", versions=True)
"""Delta tables by Spark's MERGE."""
DUCKDB = Capabilities(
    "duckdb", "duckdb", distributed=False, modes=_ALL, keeps_columns=True, recopies=True
)
"""A DuckDB file."""
POSTGRES = Capabilities("postgres", "postgres", modes=_ALL, keeps_columns=True, recopies=True)
"""A PostgreSQL database."""
MYSQL = Capabilities("mysql", "mysql", modes=_ALL, keeps_columns=True, recopies=True)
"""A MySQL or MariaDB server."""
PARQUET = Capabilities("parquet", "parquet", modes=frozenset({Mode.APPEND.value}))
"""Files of changes."""


def refuse_unkept(given: SettingsByTable, target: Capabilities) -> None:
    """Refuse what a target cannot keep, or what does not go together.

    Args:
        given: what was asked for; the pattern ``*`` stands for all that no other names.
        target: what it can do.

    Raises:
        ConfigError: naming table, mode or setting, and target.
    """
    for place, problem, next_step in unkept(given, target):
        raise ConfigError(f"{place}: {problem}.", next_step=next_step)


def unkept(given: SettingsByTable, target: Capabilities) -> Iterator[tuple[str, str, str]]:
    """Yield what `refuse_unkept` would refuse: place in the configuration, what is wrong, and what to do."""
    for pattern, settings in given:
        place = "changes" if pattern == "*" else f"tables.{pattern}"
        for problem, next_step in _problems(settings, target):
            yield place, problem, next_step


def _problems(settings: TableSettings, target: Capabilities) -> Iterable[tuple[str, str]]:
    """Yield what stands against some settings, each with what to do."""
    mode, policies = settings.mode, settings.policies
    if mode.value not in target.modes:
        modes = " or ".join(sorted(target.modes))
        yield (
            f"the target {target.name} has no mode {mode.value}",
            f"choose {modes} for the table, or another target.",
        )
    if settings.partition_by and not target.partitions:
        yield (
            f"the target {target.name} partitions no tables",
            "take partition_by away, or choose another target.",
        )
    if settings.adopted and not target.adopts:
        yield (
            f"the target {target.name} adopts no dumps",
            "take first_copy away, so that headrace copies the table, or choose another target.",
        )
    if settings.adopted and (settings.of_columns or mode is not Mode.MIRROR):
        yield (
            "first_copy: adopted needs the source's own rows: mode: mirror, and no setting of columns",
            "take mode, select, drop, rename, mask, compute and where away, or first_copy.",
        )
    asked = f"incompatible: {policies.incompatible.value}"
    keeping = [asked] if policies.incompatible is Incompatible.NEW_COLUMN else []
    if policies.dropped_column is Dropped.KEEP:
        keeping.append("dropped_column: keep")
    recopying = policies.incompatible is Incompatible.RECOPY
    if keeping and not target.keeps_columns:
        yield (
            f"the target {target.name} cannot do {keeping[0]}: it has the source's columns and no others",
            "set changes for the table to what it can do (stop, drop), or choose another target.",
        )
    if recopying and not target.recopies:
        yield (
            f"the target {target.name} cannot do {asked}: it has no place for a second copy",
            "set changes for the table to incompatible: stop, or choose another target.",
        )
    if (keeping or recopying) and settings.of_columns:
        yield (
            f"{(keeping or [asked])[0]} does not go with select, drop, rename, mask, compute and where",
            "take those away, or set changes for the table to what goes with them (stop, drop).",
        )
    if recopying and mode is not Mode.MIRROR:
        yield (
            f"{asked} would throw away what the mode {mode.value} keeps",
            "choose incompatible: new_column or stop for the table.",
        )
