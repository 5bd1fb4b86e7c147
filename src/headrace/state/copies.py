"""How each table's copy stands, told by the requests that read whole tables.

Pure. A table has many dumps in its life; one of them says how it stands: the newest, but a dump that was cancelled
only where the table needed it. Whoever calls off the second dump of a complete table leaves it complete, and one of
two that wait leaves the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.model.schema import TableId
from headrace.state.records import OPEN, Cause, DumpProgress, DumpRequest, RequestState

__all__ = ["Copy", "copies_of"]


@dataclass(frozen=True, slots=True)
class Copy:
    """One table's copy."""

    request: DumpRequest
    progress: DumpProgress

    @property
    def is_cancelled(self) -> bool:
        """Whether a copy that the table needs was called off: the table is not complete and will not be by itself."""
        return self.request.state is RequestState.CANCELLED and not self.progress.completed_scn

    @property
    def is_paused(self) -> bool:
        """Whether the copy rests until it is resumed."""
        return self.request.state is RequestState.PAUSED and not self.progress.completed_scn


def copies_of(
    requests: Iterable[DumpRequest],
    progress: Iterable[DumpProgress],
    tables: Sequence[TableId] = (),
) -> dict[TableId, Copy]:
    """Return the dump that says how each table stands.

    Args:
        requests: every request in order of submission.
        progress: of every request.
        tables: what was captured when capture last began.
    """
    begun: dict[str, list[DumpProgress]] = {}
    for entry in progress:
        begun.setdefault(entry.request_id, []).append(entry)
    copies: dict[TableId, Copy] = {}
    to_begin: list[DumpRequest] = []
    for request in requests:
        if not request.scope.is_whole:
            continue
        if request.state in OPEN and request.request_id not in begun:
            to_begin.append(request)
        entries = begun.get(request.request_id) or _not_begun(request, copies, tables)
        for entry in entries:
            copy = Copy(request, entry)
            needless = request.cause is Cause.ASKED and entry.table in copies
            # One that is still to begin reads all of the table, whatever it was read for.
            needless |= any(one.table in (None, entry.table) for one in to_begin)
            if not (copy.is_cancelled and needless):
                copies[entry.table] = copy
    return copies


def _not_begun(
    request: DumpRequest, copies: Mapping[TableId, Copy], tables: Sequence[TableId]
) -> list[DumpProgress]:
    """Return what is said of tables by a request that never began: a word only where there was none or a bad one."""
    # Before capture ever began nobody knows which all of them are.
    named = (request.table,) if request.table else tables or tuple(copies)
    return [
        DumpProgress(request.request_id, table)
        for table in named
        if request.state is RequestState.CANCELLED
        or (table in copies and copies[table].is_cancelled)
    ]
