"""How each table's copy stands, told by the requests that read whole tables.

Pure. A table has many dumps in its life; one of them says how it stands: the newest, but a dump that was cancelled
only where the table needed it. Whoever calls off the second dump of a complete table leaves it complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.model.schema import TableId
from headrace.state.records import Cause, DumpProgress, DumpRequest, RequestState

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
    for request in requests:
        if not request.scope.is_whole:
            continue
        entries = begun.get(request.request_id) or _not_begun(request, copies, tables)
        for entry in entries:
            copy = Copy(request, entry)
            needless = copy.is_cancelled and request.cause is Cause.ASKED
            if not (needless and entry.table in copies):
                copies[entry.table] = copy
    return copies


def _not_begun(
    request: DumpRequest, copies: Mapping[TableId, Copy], tables: Sequence[TableId]
) -> list[DumpProgress]:
    """Return what is said of tables by a request that never began: a word only where there was none or a bad one."""
    named = (request.table,) if request.table else tables
    return [
        DumpProgress(request.request_id, table)
        for table in named
        if request.state is RequestState.CANCELLED
        or (table in copies and copies[table].is_cancelled)
    ]
