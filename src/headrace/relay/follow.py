"""A relay that reads from another relay: its change log is a copy of what that one serves.

In: blocks of the upstream relay. Out: a change log with the same SCNs, the same bytes where the blocks are whole, and
the table versions that it names. The order of every round: versions, then blocks, then the sync that makes these
readable. After each break it goes on behind its own durable end, so nothing has to be remembered besides the log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from headrace.changelog import ChangeLogSettings, ChangeLogWriter
from headrace.changelog.segment import list_segments
from headrace.errors import (
    ChangeLogLost,
    DiskBudgetReached,
    DiskFull,
    FellOffUpstream,
    HeadraceError,
    LeaseLost,
    NotServed,
    Retry,
    ScnNotFound,
    StateError,
)
from headrace.model.block import Block, transaction_index
from headrace.model.schema import TableSchema
from headrace.registry.file import FileRegistry
from headrace.wire.block import decode_block
from headrace.wire.checked import CheckedBlock

__all__ = [
    "FELL_OFF",
    "FOLLOWING",
    "REFUSED",
    "Beginning",
    "FollowStatus",
    "Follower",
    "Upstream",
]

_LOG = logging.getLogger(__name__)

FOLLOWING = "following"
WAITING_FOR_UPSTREAM = "waiting for upstream"
WAITING_FOR_ROOM = "waiting for room"
FELL_OFF = "fell off"
"""What comes next is gone upstream: nothing more is copied before a person has decided."""
REFUSED = "refused"
"""Upstream, or our own disk, says no for another reason that time alone does not heal."""

_POLL_S = 0.5
_RETAIN_S = 5.0
_ROOM_S = 1.0
"""Pause before a full disk is tried again."""


class Beginning(NamedTuple):
    """Where an upstream's log begins.

    Attributes:
        scn: everything above it can be had; 0 when nothing was ever dropped.
        commit_us: no transaction up to there committed later, microseconds since 1970 UTC.
    """

    scn: int
    commit_us: int


class Upstream(Protocol):
    """The relays that are followed, as one. Every method may raise what the relay's protocol names."""

    def beginning(self) -> Beginning:
        """Return where the upstream's log begins."""
        ...

    def open(self, after_scn: int, known_scn: int) -> None:
        """Begin to receive what lies above an SCN; what was received before is forgotten.

        Args:
            after_scn: everything up to here is held.
            known_scn: newest transaction that is held, 0 for none: the upstream must hold it too.

        Raises:
            ScnNotFound: the upstream does not hold the place.
            ForeignUpstream: it does not hold the transaction.
        """
        ...

    def take(self, timeout_s: float) -> list[CheckedBlock]:
        """Return blocks that came, in their order; none when none did in time."""
        ...

    def schemas(self, ids: Iterable[int]) -> list[TableSchema]:
        """Return table versions."""
        ...

    def failed(self) -> float:
        """Go on to the next relay, and return how many seconds to wait before it is asked."""
        ...

    def close(self) -> None:
        """Stop receiving."""
        ...


@dataclass(frozen=True, slots=True)
class FollowStatus:
    """What a follower is doing.

    Attributes:
        state: ``following``, ``waiting for upstream``, ``waiting for room``, ``fell off`` or ``refused``.
        detail: the error behind it, empty while it follows.
        complete_scn: newest whole transaction that is durable here.
        covered_scn: everything up to here is.
        blocks: that this process has copied.
    """

    state: str
    detail: str
    complete_scn: int
    covered_scn: int
    blocks: int


class Follower:
    """Copies one source. Used from one thread.

    Args:
        name: of the source.
        upstream: where from.
        folder: of the own change log; made when it does not exist.
        settings: of that log.
        registry: keeps its table versions.
        on_status: told at each change, and now and then.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        name: str,
        upstream: Upstream,
        folder: Path,
        settings: ChangeLogSettings,
        registry: FileRegistry,
        on_status: Callable[[FollowStatus], None] = lambda _status: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._upstream = upstream
        self._folder = folder
        self._settings = settings
        self._registry = registry
        self._on_status = on_status
        self._clock = clock
        self._log: ChangeLogWriter | None = None
        self._kept: set[int] = set()
        self._retain_at = 0.0
        self._blocks = 0
        self._state = ""

    def run(self, stop: threading.Event) -> None:
        """Follow until ``stop`` is set; waits by itself for whatever may pass or be repaired upstream.

        Raises:
            LeaseLost: another process writes the log.
            ChangeLogLost: segments of it are gone.
        """
        try:
            while not stop.is_set():
                try:
                    log = self._begin()
                    while not stop.is_set():
                        self._step(log)
                except (LeaseLost, ChangeLogLost):
                    raise
                except (DiskFull, DiskBudgetReached) as error:
                    self._report(WAITING_FOR_ROOM, error)
                    stop.wait(_ROOM_S)
                except HeadraceError as error:
                    self._report(_state_of(error), error)
                    stop.wait(self._upstream.failed())
        finally:
            self._upstream.close()
            if self._log is not None:
                self._log.close()

    def _begin(self) -> ChangeLogWriter:
        """Ask for what lies behind the durable end of the log."""
        self._upstream.close()
        log = self._log = self._opened()
        tail = log.tail
        try:
            known = tail.complete_scn if tail.complete_scn > tail.oldest_scn else 0
            self._upstream.open(tail.covered_scn, known)
        except ScnNotFound as error:
            if error.scn >= error.oldest:
                raise
            raise self._fell_off(error) from error
        self._report(FOLLOWING)
        return log

    def _opened(self) -> ChangeLogWriter:
        """Return the log as after a crash: nothing of an open transaction is in it."""
        if self._log is not None:
            return self._log.reopened()
        begins = Beginning(0, 0)
        if not self._folder.exists() or not list_segments(self._folder):
            # Before there is a log: until then nobody is told that it serves everything from 0 on.
            begins = self._upstream.beginning()
        log = ChangeLogWriter.open(self._folder, self._settings)
        if begins.scn:
            try:
                log.begin_at(*begins)
            except BaseException:
                log.close()
                raise
        return log

    def _step(self, log: ChangeLogWriter) -> None:
        """Copy what came."""
        blocks = self._upstream.take(_POLL_S)
        for block in blocks:
            self._keep_schemas(block.schema_ids)
            self._copy(log, block)
        if blocks:
            log.sync()
        now = self._clock()
        if now >= self._retain_at:
            self._retain_at = now + _RETAIN_S
            log.retain()
        self._report(FOLLOWING)

    def _copy(self, log: ChangeLogWriter, block: CheckedBlock) -> None:
        """Append what the log does not hold yet of a block."""
        header, held = block.header, log.appended
        if header.transactions and header.first_scn > held.complete_scn:
            log.append_stored(block.data)
        elif header.transactions and header.last_scn > held.complete_scn:
            log.append(decode_block(block.data).after(held.complete_scn))
        elif header.covered_scn > held.covered_scn:
            log.append(Block(transaction_index([]), (), (), header.covered_scn))
        else:
            return
        self._blocks += 1

    def _keep_schemas(self, ids: frozenset[int]) -> None:
        """Have every version in the registry before the block that names it.

        Raises:
            NotServed: upstream does not give one of them.
        """
        wanted = sorted(schema_id for schema_id in ids - self._kept if not self._has(schema_id))
        if wanted:
            came = {self._registry.put(schema) for schema in self._upstream.schemas(wanted)}
            if missing := set(wanted) - came:
                raise NotServed(
                    f"The upstream of {self._name} does not give table version {min(missing):016x}.",
                    next_step="restore the registry folder beside the upstream's change log.",
                )
        self._kept |= ids

    def _has(self, schema_id: int) -> bool:
        try:
            self._registry.get(schema_id)
        except StateError:
            return False
        return True

    def _fell_off(self, error: ScnNotFound) -> FellOffUpstream:
        return FellOffUpstream(
            f"The relay of {self._name} holds everything up to SCN {error.scn}, and its upstream only what lies above "
            f"{error.oldest}: what lies between is gone there. What is held is served; nothing more is copied.",
            next_step="name an upstream that reaches back further; or stop this relay, move its change log "
            f"{self._folder} away and start it again: it then begins at {error.oldest}, and consumers that stand "
            "before that are told so.",
        )

    def _report(self, state: str, error: HeadraceError | None = None) -> None:
        if state != self._state:
            self._state = state
            if error is not None:
                _LOG.warning("%s: %s: %s", self._name, state, error)
            else:
                _LOG.info("%s: %s", self._name, state)
        scns = (0, 0)
        if self._log is not None:
            scns = self._log.tail.complete_scn, self._log.tail.covered_scn
        self._on_status(FollowStatus(state, str(error) if error else "", *scns, self._blocks))


def _state_of(error: HeadraceError) -> str:
    if isinstance(error, FellOffUpstream):
        return FELL_OFF
    # Who is above the upstream's newest waits for it: it is behind, or being restored.
    waits = error.retry is Retry.TIMED or isinstance(error, ScnNotFound)
    return WAITING_FOR_UPSTREAM if waits else REFUSED
