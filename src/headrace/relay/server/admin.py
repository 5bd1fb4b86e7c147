"""The commands: what people may ask of a source while its relay runs.

They go through the state database of its capture, which takes them up within a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from headrace.errors import BadRequest, NotServed, StateError
from headrace.model.schema import TableId
from headrace.observe.status import ProcessStatus
from headrace.relay.follow import FELL_OFF, FOLLOWING, FollowStatus
from headrace.relay.server.feed import Feed
from headrace.state.records import Scope
from headrace.state.store import StateStore

__all__ = ["dump", "follow_status", "pause", "resume", "retention", "source_state"]

_ALL = "all"
_RETAIN = {"retain": "retain_bytes", "retain_s": "retain_s"}
"""What the protocol calls a setting, and what the state does."""


def source_state(
    feed: Feed,
) -> Literal["running", "paused", "waiting", "fell off", "unknown", "none"]:
    """Return whether changes are let in, are held back and why, or have never been captured; from any thread."""
    if not feed.reader.exists:
        return "none"
    if (status := follow_status(feed)) is not None and status.state != FOLLOWING:
        return "fell off" if status.state == FELL_OFF else "waiting"
    path = feed.source.state
    if path is None or not path.exists():
        return "running"
    try:
        with _state_of(feed) as state:
            return "paused" if state.pace().log_paused else "running"
    except StateError:
        return "unknown"


def follow_status(feed: Feed) -> FollowStatus | None:
    """Return what the follower that fills a log said last; None where none does."""
    path = feed.source.follower
    said = ProcessStatus.read(path) if path is not None else None
    return FollowStatus(**said.detail) if said is not None and said.detail else None


def pause(feed: Feed) -> dict[str, Any]:
    """Hold the source's changes back, until `resume`; what the log holds is served on.

    Raises:
        NotServed: the source has no state to command.
    """
    with _state_of(feed) as state:
        state.set_pace(log_paused=True)
    return {"source": feed.name, "state": "paused"}


def resume(feed: Feed) -> dict[str, Any]:
    """Let the source's changes in again.

    Raises:
        NotServed: the source has no state to command.
    """
    with _state_of(feed) as state:
        state.set_pace(log_paused=False)
    return {"source": feed.name, "state": "running"}


def dump(feed: Feed, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Queue a dump of a table, of the rows of one that meet a condition, or of all tables.

    Args:
        feed: of the source.
        asked: ``table``, a captured one or ``all``; and ``where``, in the source's SQL, if only some rows are wanted.

    Raises:
        BadRequest: names what does not read.
        NotServed: the source has no state to command, or no such table.
    """
    table, where = asked.get("table"), asked.get("where", "")
    if not isinstance(table, str) or not (table == _ALL or "." in table):
        raise _bad("table", "schema.table, or all")
    if not isinstance(where, str) or (where and table == _ALL):
        raise _bad("where", "a condition on the rows of one table")
    with _state_of(feed) as state:
        if table == _ALL:
            return {"source": feed.name, "request": state.submit(Scope.ALL_TABLES)}
        chosen, captured = TableId.parse(table), state.captured()
        if chosen not in captured:
            raise NotServed(
                f"Source {feed.name} has no captured table {chosen}.",
                next_step=f"choose one of {', '.join(sorted(map(str, captured))) or 'none so far'}.",
            )
        scope = Scope.PREDICATE if where else Scope.TABLE
        return {"source": feed.name, "request": state.submit(scope, chosen, predicate=where)}


def retention(feed: Feed, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Change what the change log retains for late readers; what its jobs still need stays, whatever is said.

    Args:
        feed: of the source.
        asked: ``retain``, bytes, and ``retain_s``, seconds, or one of them; None gives one back to the file.

    Raises:
        BadRequest: names what does not read.
        NotServed: the source has no state to command.
    """
    said = {_RETAIN[name]: asked[name] for name in _RETAIN if name in asked}
    if not said:
        raise _bad("retain", "a number of bytes, or retain_s, a number of seconds")
    if not _is_number(asked.get("retain"), int):
        raise _bad("retain", "a whole number of bytes, or null")
    if not _is_number(asked.get("retain_s"), int, float):
        raise _bad("retain_s", "a number of seconds, or null")
    with _state_of(feed) as state:
        try:
            pace = state.set_pace(**said)
        except ValueError as error:
            raise _bad("retain or retain_s", f"other values: {error}") from error
    return {"source": feed.name, "retain": pace.retain_bytes, "retain_s": pace.retain_s}


@contextmanager
def _state_of(feed: Feed) -> Iterator[StateStore]:
    path = feed.source.state
    if path is None or not path.exists():
        raise NotServed(
            f"Source {feed.name} has no capture here that could be told anything.",
            next_step="ask the relay beside its capture.",
        )
    try:
        state = StateStore(path)
    except OSError as error:
        raise StateError(
            f"The state of {feed.name} cannot be opened ({type(error).__name__}).",
            next_step="check the rights of its state folder.",
        ) from error
    try:
        yield state
    finally:
        state.close()


def _is_number(value: object, *kinds: type) -> bool:
    return value is None or (isinstance(value, kinds) and not isinstance(value, bool))


def _bad(name: str, wanted: str) -> BadRequest:
    return BadRequest(
        f"The parameter {name} does not read: expected {wanted}.",
        next_step="correct it; docs/relay_protocol.md describes the commands.",
    )
