"""Whether the change log is the one that the tables were filled from.

In: the newest frontier, which tells that log's identity, its position and when the transaction there was committed.
Out: nothing, or `ChangeLogLost`. A log may begin behind the tables, and end behind them too: by its positions alone it
looks like one that has grown, and what it lacks in between would be missing for good. One that a resync began says so
itself: it tells of a gap, by which each table is emptied or compared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.changelog.identity import identity_of
from headrace.changelog.reader import ChangeLogReader
from headrace.errors import ChangeLogLost, ScnNotFound
from headrace.lake.frontier import Manifest
from headrace.model.block import SystemKind

__all__ = ["SameLog"]


class SameLog:
    """Looks at the change log in a folder, at a start and before each batch.

    Attributes:
        identity: of the log that was looked at last, empty for one without.

    Args:
        folder: of the log.
        reader: of the log.
    """

    def __init__(self, folder: Path, reader: ChangeLogReader) -> None:
        self._folder = folder
        self._reader = reader
        self.identity = ""

    def check(self, manifest: Manifest | None, stands: Callable[[], bool]) -> None:
        """Return when the log is that of a frontier, holds the same transaction there, or tells of a gap behind it.

        A relay's log has another identity in each copy. What cannot be told, for want of an identity or of the
        transaction, is taken for the same.

        Args:
            manifest: the newest frontier, None before the first.
            stands: asked whether there is any table of the frontier still.

        Raises:
            ChangeLogLost: it is another one.
        """
        found = identity_of(self._folder)
        known = self.identity or (manifest.log if manifest else "")
        is_other = bool(found and known) and found != known
        if manifest and is_other and not self._follows(manifest) and stands():
            raise ChangeLogLost(
                f"The target tables are at SCN {manifest.scn} of another change log; the one in {self._folder} lacks "
                "what is committed there: RESYNC NEEDED.",
                next_step="restore the change log that the tables were filled from, or begin anew: stop, move the "
                "state folder and the target tables away, start.",
            )
        self.identity = found or known

    def _follows(self, manifest: Manifest) -> bool:
        """Return whether nothing is lost for tables at a frontier that go on with the log."""
        try:
            return self._holds(manifest) or self._tells_a_gap(manifest)
        except ScnNotFound:
            return False

    def _holds(self, manifest: Manifest) -> bool:
        """Return whether the log's newest transaction up to a frontier is the frontier's."""
        newest = self._reader.newest_at(manifest.scn)
        if newest is None:
            # Nothing was committed yet, or it was dropped behind somebody who had it.
            return not manifest.commit_us or self._reader.tail().oldest_scn > 0
        return int(newest["commit_us"]) == manifest.commit_us

    def _tells_a_gap(self, manifest: Manifest) -> bool:
        """Return whether the log's first transaction behind a frontier says that changes are missing before it."""
        ref = next(self._reader.refs(manifest.scn), None)
        if ref is None:
            return False
        block = self._reader.load(ref, ()).after(manifest.scn)
        first = block.index["scn"][0]
        return any(one.kind is SystemKind.GAP for one in block.system if one.scn == first)
