"""What ``run --once`` waits for: fixed when it begins, so that it ends however busy the source is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import StateError
from headrace.replicator.picture import Picture, TablePicture
from headrace.spark.notes import DEAD_LETTERS
from headrace.state.records import Cause, DumpProgress, DumpRequest, RequestState

__all__ = ["Goal"]

_FOR_PEOPLE = (Cause.ASKED, Cause.ADOPTED)
"""Who asks for these wants to be told when they fail, whatever becomes of the table."""

_OVER = (RequestState.COMPLETED, RequestState.FAILED, RequestState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Goal:
    """The source as it was at a moment, in the tables.

    Attributes:
        scn: the source's position at that moment, in its own numbers until the incarnation's offset is added.
        tables: the captured tables.
        over: requests that had ended by then, whichever way.
    """

    scn: int
    tables: frozenset[str]
    over: frozenset[str]

    @classmethod
    def of(cls, scn: int, tables: frozenset[str], requests: Sequence[DumpRequest]) -> Goal:
        """Return the goal of a run that begins now."""
        return cls(scn, tables, frozenset(r.request_id for r in requests if r.state in _OVER))

    def is_reached(
        self,
        picture: Picture,
        progress: Mapping[str, DumpProgress],
        requests: Sequence[DumpRequest],
        read_scn: int = 0,
    ) -> bool:
        """Whether every table is complete and shows the moment, no request waits, and what they read is there.

        Args:
            picture: how things stand.
            progress: of each table's copy.
            requests: every one; looked at after the progress.
            read_scn: position of the rows that any of them read last; looked at after the requests.

        Raises:
            StateError: something that only a person ends stands in the way: a request that failed or was paused, a
                copy that was cancelled, a log that was paused; or all is done but for changes that were put aside, or
                for tables that trying again does not mend.
        """
        _refuse_what_waits_for_people(picture, requests)
        fresh = [request for request in requests if request.request_id not in self.over]
        self._refuse_what_failed(picture, progress, fresh)
        copied = {name for name, entry in progress.items() if entry.completed_scn}
        live = {table.name for table in picture.tables if table.phase == "live"}
        lacking = [table for table in picture.tables if _lacks_only_letters(table)]
        stuck = [table for table in picture.tables if _is_stuck(table, picture)]
        done = copied & (live | {table.name for table in lacking})
        whole = self.tables - {table.name for table in stuck}
        if not whole <= done or any(r.state not in _OVER for r in fresh):
            return False
        completed = (progress[name].completed_scn for name in whole)
        end = max(self.scn, read_scn, *completed)
        if not picture.shows(end) or any(t.lag_changes and t.applied_scn < end for t in lacking):
            return False
        _tell_of_stuck([table for table in stuck if table.name in self.tables], picture)
        _tell_of_letters([table for table in lacking if table.name in self.tables])
        return True

    def _refuse_what_failed(
        self,
        picture: Picture,
        progress: Mapping[str, DumpProgress],
        fresh: Sequence[DumpRequest],
    ) -> None:
        for request in fresh:
            if request.state is not RequestState.FAILED:
                continue
            # Until the log is here up to the goal, it may still say that the table is gone, or that it came back.
            known = picture.covered_scn >= self.scn and all(r.state in _OVER for r in fresh)
            if request.cause not in _FOR_PEOPLE and (not known or self._is_moot(request, progress)):
                continue
            raise StateError(
                f"request {request.request_id}: {request.reason}",
                next_step="correct the cause and run again; what was copied stays.",
            )

    def _is_moot(self, request: DumpRequest, progress: Mapping[str, DumpProgress]) -> bool:
        """Whether a failed copy lacks nothing that the source has: its tables are gone, or copied by another one."""
        mine = [one for one in progress.values() if one.request_id == request.request_id]
        return all(
            one.state == "done" or (one.state == "dropped" and str(one.table) not in self.tables)
            for one in mine
        )


def _lacks_only_letters(table: TablePicture) -> bool:
    return table.phase == "failing" and table.error.partition(":")[0] == DEAD_LETTERS


def _is_stuck(table: TablePicture, picture: Picture) -> bool:
    return table.phase == "failing" and table.name in picture.for_people


def _tell_of_stuck(tables: Sequence[TablePicture], picture: Picture) -> None:
    """Refuse to go on where nothing more comes: such a table would be tried again for ever."""
    if tables:
        first, others = tables[0], ", ".join(table.name for table in tables[1:])
        raise StateError(
            f"All is copied but for {first.name}, which only a person mends: {first.error}"
            + (f" So it is with {others}." if others else ""),
            next_step=picture.for_people[first.name],
        )


def _tell_of_letters(tables: Sequence[TablePicture]) -> None:
    """Refuse to call a run good whose tables are not the source's; they would fail until a person sees to them."""
    if tables:
        names = ", ".join(table.name for table in tables)
        raise StateError(
            f"All is copied but for changes that were put aside: {names}.",
            next_step=f"headrace dead-letters list FILE --table {tables[0].name}, then replay or discard them.",
        )


def _refuse_what_waits_for_people(picture: Picture, requests: Sequence[DumpRequest]) -> None:
    paused = next((r.request_id for r in requests if r.state is RequestState.PAUSED), None)
    if paused is not None:
        raise StateError(
            f"request {paused} is paused, and the run would wait for it for ever.",
            next_step=f"headrace dump resume FILE {paused}, or cancel it; then run again.",
        )
    if picture.refused:
        raise StateError(
            f"The relays give nothing more, and the run would wait for it for ever: {picture.refused}",
            next_step="see to what it says; then run again.",
        )
    if picture.log_paused:
        raise StateError(
            "Log delivery is paused, and the run would wait for it for ever.",
            next_step="headrace log resume FILE; then run again.",
        )
    for table in picture.tables:
        if table.phase == "incomplete":
            raise StateError(
                f"{table.name} is incomplete: {table.error}",
                next_step=f"headrace dump start FILE --table {table.name}; then run again.",
            )
        if table.phase == "waiting" and table.error:
            raise StateError(
                f"{table.name} waits: {table.error}",
                next_step="make the dump and adopt it while headrace run works without --once.",
            )
