"""What the apply job is told, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headrace.lake.settings import SettingsByTable
from headrace.spark.at_work import Patience
from headrace.spark.maintenance import MaintenanceSettings
from headrace.store import Location

__all__ = ["ApplyOptions"]


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """What apply needs to know.

    Attributes:
        pipeline: name under which positions are committed.
        changelog: folder of the change log.
        lake: folder of the target tables.
        tables: patterns ``schema.name``; empty means every table in the log.
        max_rows: change rows of one table in one commit.
        slice_rows: change rows that one task folds.
        max_slices: most tasks that fold one commit.
        parallel_tables: tables worked on at the same time.
        freshness: file for freshness samples, None for none.
        within_s: from commit to visible, to be counted as in time; None where nobody asked.
        settings: what was asked for single tables.
        maintenance: of files between batches, None for none.
        patience: with tables that fail.
        dead_letters: folder of what is put aside, None where nothing is.
    """

    pipeline: str
    changelog: Path
    lake: Location
    tables: tuple[str, ...] = ()
    max_rows: int = 2_000_000
    slice_rows: int = 1_000_000
    max_slices: int = 4
    parallel_tables: int = 2
    freshness: Path | None = None
    within_s: float | None = None
    settings: SettingsByTable = ()
    maintenance: MaintenanceSettings | None = field(default_factory=MaintenanceSettings)
    patience: Patience = field(default_factory=Patience)
    dead_letters: Path | None = None
