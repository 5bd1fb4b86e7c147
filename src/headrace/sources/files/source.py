"""A folder of files of changes as a `headrace.sources.base.Source`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError, SourceError
from headrace.model.schema import TableId, TableSchema
from headrace.plural import counted
from headrace.sources.base import Finding, SchemaStore, refuse
from headrace.sources.database import View
from headrace.sources.description import (
    ColumnDescription,
    Given,
    SourceDescription,
    TableDescription,
)
from headrace.sources.files.assembler import Assembler
from headrace.sources.files.chunks import EmptyChunks, key_texts
from headrace.sources.files.lines import FeedLines, feed_files, feed_sizes, last_scn
from headrace.sources.files.manifest import Manifest, read_manifest
from headrace.sources.files.place import FeedPlace, PlaceFile, feed_scn, own_scn
from headrace.sources.files.settings import FilesSettings
from headrace.sources.files.stream import FilesLogReader, MarkQueue, QueueWriter
from headrace.sources.patterns import TablePatterns
from headrace.sources.taken import taken

__all__ = ["FilesSource"]


class FilesSource:
    """A feed of changes in a folder: ``tables.json`` and files of lines, complete from its first transaction on.

    Args:
        folder: of the feed; nothing is ever written there.
        state: folder in which the pipeline's place is kept.
        tables: patterns such as ``shop.*``.
        exclude: patterns of tables left out.
        name: of the pipeline.
        poll_s: time between two looks for more while nothing comes.
    """

    def __init__(
        self,
        folder: Path,
        state: Path,
        tables: Sequence[str],
        exclude: Sequence[str] = (),
        name: str = "headrace",
        poll_s: float = 0.25,
    ) -> None:
        self.name = name
        self.settings = FilesSettings(folder, state, tuple(tables), tuple(exclude), name, poll_s)
        self._place = PlaceFile(state / "feed.json")
        self._queue = MarkQueue()

    def __repr__(self) -> str:
        return f"FilesSource(name={self.name!r}, folder={str(self.settings.folder)!r})"

    def _manifest(self) -> Manifest:
        return read_manifest(self.settings.folder)

    def preflight(self) -> list[Finding]:
        """Return everything that stands in the way; changes nothing."""
        try:
            feed_files(self.settings.folder)
            tables = self.tables()
        except HeadraceError as error:
            return [Finding("feed-unreadable", error.message, error.next_step or "Look at it.")]
        findings = [
            Finding(
                "no-key",
                f"{table.table} has no key: a feed does not say what its table held before, row for row.",
                f"Give it a key in the feed's description of tables, or exclude {table.table}.",
                table=str(table.table),
            )
            for table in tables
            if not table.key
        ]
        for table in tables:
            remedy = f"Give them other names where the feed is written, or exclude {table.table}."
            findings += taken(str(table.table), table.names, table.key, remedy)
        if not tables:
            findings.append(
                Finding(
                    "no-tables",
                    f"No table of the feed matches {', '.join(self.settings.tables)}.",
                    "Correct source.tables.",
                )
            )
        return findings

    def tables(self) -> list[TableSchema]:
        """Return the captured tables by name, as the feed describes them last."""
        last = {schema.table: schema for schema in self._manifest().versions.values()}
        return [last[table] for table in sorted(last) if self.settings.selects(table)]

    def prepare(self, *, fresh: bool = False) -> None:
        """Note that the feed is to be read from its beginning, unless it was begun.

        Raises:
            PreflightFailed: when a finding forbids it; then nothing was changed.
        """
        refuse(self.name, self.preflight())
        if fresh or self._place.read() is None:
            self._place.write(FeedPlace())

    def incarnation(self) -> str:
        """Return the feed's name."""
        return self._manifest().feed

    def departs(self, incarnation: str, scn: int) -> str:
        """Return why the feed does not hold what another one's, or its own, held up to an SCN."""
        now = self.incarnation()
        if now != incarnation:
            return "another feed has other transactions"
        end = last_scn(self.settings.folder)
        if end < feed_scn(scn):
            return f"it ends at {end}, and was read up to {feed_scn(scn)}"
        return ""

    def open(self, schemas: SchemaStore) -> FilesLogReader:
        """Start reading the feed from what was last acknowledged.

        Raises:
            SlotLost: there is no place, or files behind it are gone.
            SourceUnavailable: the folder cannot be read.
        """
        place = self._place.begin()
        scn = feed_scn(place.scn)
        lines = FeedLines(self.settings.folder, scn)
        assembler = Assembler(self.settings, self._manifest, schemas, scn, place.scn)
        return FilesLogReader(self.settings, lines, assembler, self._place, self._queue)

    def acknowledged_scn(self) -> int:
        """Return our place."""
        return self._place.begin().scn

    def chunks(self) -> EmptyChunks:
        """Open a chunk reader."""
        return EmptyChunks(self.settings)

    def watermarks(self) -> QueueWriter:
        """Open a watermark writer."""
        return QueueWriter(self._queue)

    def drop(self) -> None:
        """Forget our place; the feed stays."""
        self._place.forget()

    # -- what a replicator asks beside ------------------------------------------------------------

    def described(
        self, patterns: Sequence[str] | None = None, only: TableId | None = None
    ) -> SourceDescription:
        """Return what the feed says of its tables; see `headrace.sources.description.Describes`."""
        manifest = self._manifest()
        last = {schema.table: schema for schema in manifest.versions.values()}
        chosen = (
            TablePatterns(tuple(patterns)).match if patterns is not None else self.settings.selects
        )
        return SourceDescription(
            manifest.feed,
            tuple(
                _described(last[table])
                for table in sorted(last)
                if (table == only if only is not None else chosen(table))
            ),
        )

    def written_bytes(self) -> int:
        """Return how large the files are; likewise."""
        return sum(feed_sizes(self.settings.folder))

    def view(self, tables: Sequence[TableId]) -> AbstractContextManager[View]:
        """Refuse: a feed has no tables to compare with.

        Raises:
            SourceError: always.
        """
        raise SourceError(
            f"{self.name} reads a feed of changes, and there is no table to compare "
            f"{counted(len(tables), 'replica')} with.",
            next_step="compare them with the database that the feed comes from.",
        )

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as text."""
        return key_texts(schema, rows)

    def end_scn(self) -> int:
        """Return the SCN of the last transaction that has ended in the feed."""
        return own_scn(last_scn(self.settings.folder))

    def scn_of(self, position: str) -> int:
        """Return the SCN of a transaction's number."""
        return own_scn(int(position))

    def log_watch(self) -> FeedWatch:
        """Return what looks at the files."""
        return FeedWatch(self.settings.folder)


def _described(schema: TableSchema) -> TableDescription:
    return TableDescription(
        schema.table,
        tuple(
            ColumnDescription(c.name, c.source_type, c.nullable, c.type, Given.EXACT)
            for c in schema.columns
        ),
        schema.key,
        schema.key,
        None,
        None,
    )


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """The files of a feed.

    Attributes:
        status: ``kept``.
        retained_bytes: of all files.
        files: how many.
    """

    status: str
    retained_bytes: int
    files: int

    @property
    def warning(self) -> str:
        """Nothing: whoever writes the feed removes its files."""
        return ""

    def __str__(self) -> str:
        return (
            f"the feed has {counted(self.files, 'file')} of {counted(self.retained_bytes, 'byte')}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a status file."""
        return {**asdict(self), "warning": self.warning, "text": str(self)}


class FeedWatch:
    """Looks at a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def look(self, now_s: float) -> KeptFiles:
        """Look once; see `headrace.sources.database.LogWatch`."""
        del now_s  # Nothing here is a rate.
        sizes = feed_sizes(self._folder)
        return KeptFiles("kept", sum(sizes), len(sizes))

    def close(self) -> None:
        """Do nothing: there is no connection."""
