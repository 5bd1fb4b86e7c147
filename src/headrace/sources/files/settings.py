"""What a source of files is told."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from headrace.model.schema import TableId
from headrace.sources.patterns import TablePatterns

__all__ = ["FilesSettings"]


@dataclass(frozen=True, slots=True)
class FilesSettings:
    """Everything a `headrace.sources.files.FilesSource` is told.

    Attributes:
        folder: of the feed.
        state: folder in which the place is kept.
        tables: patterns of captured tables.
        exclude: patterns of tables that are not, whatever ``tables`` says.
        name: of the pipeline.
        poll_s: time between two looks for more while nothing comes.
        block_rows: rows after which a block is handed over.
        block_bytes: the same in bytes of lines.
    """

    folder: Path
    state: Path
    tables: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    name: str = "headrace"
    poll_s: float = 0.25
    block_rows: int = 65_536
    block_bytes: int = 8 << 20

    def selects(self, table: TableId) -> bool:
        """Return whether a table is captured."""
        return _patterns(self.tables).match(table) and not _patterns(self.exclude).match(table)


@functools.cache
def _patterns(texts: tuple[str, ...]) -> TablePatterns:
    return TablePatterns(texts)
