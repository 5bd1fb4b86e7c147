"""A group: consumers that share the stream of one source by partitions, in any number of processes.

Each process runs a member. A member takes its turn several times per lease: it renews the lease, claims partitions up
to its fair share, and learns which it has to give up. It delivers each partition that it owns by a subscription of its
own. No member leads: whoever has its turn does what waits to be done for all of them.

Source: Databus, section 3.4 (a cluster of consumers that share partitions of a stream).
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headrace.client.consumer import Consumer
from headrace.client.delivery import OnLost
from headrace.client.errors import CheckpointUnusable, GroupUnavailable, StaleGeneration
from headrace.client.group_anew import Anew
from headrace.client.group_begin import defined, found
from headrace.client.group_share import Partition, Share
from headrace.client.group_state import Claim, GroupState, begun, leave, resize, rewind, turn
from headrace.client.group_store import GroupStore
from headrace.client.relays import Relays
from headrace.client.settings import Settings
from headrace.client.start import Start
from headrace.client.subscription import Subscription
from headrace.errors import ConfigError
from headrace.wire.place import Place

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["Group"]

_TURNS = 3
"""Turns of a member in the time of its lease: two may be missed."""

_log = logging.getLogger(__name__)


class Group:
    """One member of a group.

    Args:
        relays: addresses, as `Subscription` has them.
        source: name of the source.
        consumer_factory: makes the consumer of one partition each time this member begins with it; consumers of
            different partitions are called from threads of their own.
        store: what the members share.
        name: of the group.
        partitions: how many there are when the group begins; later `resize` alone changes that.
        by: how keys are spread over partitions, ``hash`` or ``mod`` as the protocol has them.
        filter: what to leave out at the relay, equal for all members, without ``partition``.
        start: where the whole group begins when it is new.
        shapes: as `Subscription` has them.
        on_lost: as `Subscription` has it, for each partition whose place no relay holds any more. With ``dump`` those
            that are lost together share a dump.
        on_suspended: ``wait`` leaves a partition that failed suspended, in the hands of this member, while the others
            go on; ``raise`` ends the member with the error.
        dead_letters: folder for windows that are skipped, with one folder per partition inside.
        settings: sizes, times and numbers of each subscription.
        lease_s: how long the others wait for a member that gives no sign of life.
        clock: monotonic seconds.
        rng: decides the jitter of pauses.

    Attributes:
        name: of the group.
        member: the name of this member, no other's.

    Raises:
        ConfigError: one of them cannot be used.
    """

    def __init__(
        self,
        relays: str | Sequence[str],
        source: str,
        consumer_factory: Callable[[Partition], Consumer],
        store: GroupStore,
        name: str,
        partitions: int = 8,
        *,
        by: Literal["hash", "mod"] = "hash",
        filter: Mapping[str, Any] | None = None,
        start: Start = "oldest",
        shapes: Mapping[str, pa.Schema | type[BaseModel]] | None = None,
        on_lost: OnLost = "stop",
        on_suspended: Literal["wait", "raise"] = "wait",
        dead_letters: Path | str | None = None,
        settings: Settings | None = None,
        lease_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        if lease_s <= 0:
            raise ConfigError(f"lease_s is {lease_s}.", next_step="set lease_s above 0.")
        self.name = name
        self.member = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._relays = [relays] if isinstance(relays, str) else list(relays)
        self._source = source
        self._consumer_factory = consumer_factory
        self._store = store
        self._by = by
        self._filter = dict(filter or {})
        self._start = start
        self._shapes = shapes
        self._on_suspended = on_suspended
        self._dead_letters = None if dead_letters is None else Path(dead_letters)
        self._settings = settings or Settings()
        self._settings.validate()
        self._lease_s = lease_s
        self._clock = clock
        self._rng = rng or random.Random()
        self._definition = defined(source, by, self._filter)
        # Refused here and not when it is too late to ask the person who wrote it.
        begun(self._definition, partitions, Place(0))
        self._partitions = partitions
        self._shares: dict[int, Share] = {}
        self._renewed = clock()
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._anew = Anew(
            store,
            name,
            source,
            self._opened_relays,
            lambda seconds: not self._stopping.wait(seconds),
            lease_s / _TURNS,
        )
        self._on_lost: OnLost = self._anew.found if on_lost == "dump" else on_lost

    # -- from any thread --------------------------------------------------------------------------

    @property
    def subscriptions(self) -> dict[int, Subscription]:
        """What delivers now, by number of the partition: to look at, to pause, to skip a window."""
        shares = list(self._shares.values())
        return {share.claim.number: share.subscription for share in shares if share.alive}

    def state(self) -> GroupState | None:
        """Return members, owners and places of the whole group; None before its first member ran.

        Raises:
            GroupUnavailable: the store does not answer.
        """
        return self._store.read(self.name)

    def resize(self, count: int) -> None:
        """Ask for another count of partitions; the members carry it out while they run, and it outlives all of them.

        Asking for the count that there is calls off what was asked for before and is not carried out yet.

        Raises:
            ConfigError: there cannot be so many.
            GroupUnavailable: the store does not answer, or there is no such group yet.
        """
        self._store.change(self.name, lambda state, _: resize(state, count))
        self._woken.set()

    def rewind(self, to: Start | int) -> None:
        """Ask for everything behind a place, an SCN or a time once more; what it means is looked up now.

        The members end what they deliver and begin with all partitions there, with consumers made anew; it outlives all
        of them. What was asked for before and is not carried out yet is forgotten.

        Raises:
            ConfigError: ``to`` is nothing of this kind.
            GroupUnavailable: the store does not answer, or there is no such group yet.
            HeadraceError: no relay can tell.
        """
        place = Place(to) if isinstance(to, int) else self._anew.place_of(to)
        self._store.change(self.name, lambda state, _: rewind(state, place.after_scn))
        self._woken.set()

    def stop(self) -> None:
        """End `run` soon; what is being delivered comes to the end of its piece. Returns at once."""
        self._stopping.set()
        self._woken.set()

    # -- the member -------------------------------------------------------------------------------

    def run(self) -> None:
        """Be a member until somebody stops it.

        Raises:
            ConfigError: the group shares another source, filter or kind of partition.
            FatalResult: a callback wanted an end.
            HeadraceError: the place to begin cannot be found; or, with ``on_suspended="raise"``, what suspended a
                partition.
        """
        try:
            if found(
                self._store,
                self.name,
                self._definition,
                self._begun,
                self._stopping,
                self._lease_s / _TURNS,
            ):
                self._take_part()
        finally:
            self._stopping.clear()

    def _take_part(self) -> None:
        self._renewed = self._clock()
        over = threading.Event()
        watch = threading.Thread(
            target=self._watch_lease, args=(over,), name="headrace-lease", daemon=True
        )
        watch.start()
        try:
            while not self._stopping.is_set():
                self._judge(self._turn())
                self._woken.wait(self._lease_s / _TURNS)
                self._woken.clear()
        finally:
            try:
                self._leave()
            finally:
                over.set()
                watch.join()

    def _watch_lease(self, over: threading.Event) -> None:
        """Stop everything when no turn has come through for most of a lease; whoever waits for the store cannot.

        At the next turn the others may have what is ours. Places are fenced; what consumers do elsewhere is not.
        """
        while not over.wait(self._lease_s / _TURNS**2):
            if self._clock() - self._renewed >= self._lease_s * (1 - 1 / _TURNS):
                self._stop_but(())

    def _begun(self) -> GroupState:
        """Return the new group. It begins at one place: what a start means moves while members come."""
        place = self._anew.place_of(self._start)
        return begun(self._definition, self._partitions, place)

    def _opened_relays(self) -> Relays:
        settings = self._settings
        return Relays(
            self._relays,
            self._source,
            settings.http,
            max_block_bytes=settings.max_block_bytes,
            backoff=settings.reconnect,
            rng=random.Random(self._rng.random()),
        )

    def _turn(self, *, leaving: bool = False) -> list[Share]:
        """Take a turn: begin and stop what it says. Return the shares that ended since the last one."""
        ended = [share for share in list(self._shares.values()) if not share.alive]
        began = self._clock()
        lease_us = round(self._lease_s * 1e6)
        over = [share.claim for share in ended]
        try:
            claims = self._store.change(
                self.name,
                lambda state, now_us: turn(
                    state, self.member, now_us, lease_us, over, leaving=leaving
                ),
            )
        except GroupUnavailable as error:
            _log.warning("%s", error)
            return []
        self._renewed = began
        for share in ended:
            del self._shares[share.claim.generation]
        self._stop_but(claims)
        for claim in claims:
            if claim.generation not in self._shares:
                _log.info(
                    "%s begins with partition %d of group %s.", self.member, claim.number, self.name
                )
                self._shares[claim.generation] = Share(
                    claim, self.name, self._store, self._subscribed, self._woken.set
                )
        return ended

    def _stop_but(self, claims: Iterable[Claim]) -> None:
        kept = {claim.generation for claim in claims}
        for generation, share in list(self._shares.items()):
            if generation not in kept:
                share.stop()

    def _judge(self, ended: Sequence[Share]) -> None:
        """Raise what ended a partition, unless it may go on here or elsewhere."""
        for share in ended:
            if isinstance(share.error, StaleGeneration | CheckpointUnusable):
                _log.warning("%s", share.error)
            elif share.error is not None:
                raise share.error

    def _leave(self) -> None:
        """End every partition, and hand all of them on; nobody waits for the lease of a member that leaves."""
        self._stop_but(())
        while any(share.alive for share in self._shares.values()):
            for share in list(self._shares.values()):
                share.join(self._lease_s / _TURNS)
                self._turn(leaving=True)
        try:
            self._store.change(self.name, lambda state, _: leave(state, self.member))
        except GroupUnavailable as error:
            _log.warning("%s The others go on when the lease of %s is over.", error, self.member)
        self._shares.clear()

    def _subscribed(self, claim: Claim, partition: Partition) -> Subscription:
        taken = {"by": self._by, "count": claim.count, "take": [claim.number]}
        folder = self._dead_letters
        return Subscription(
            self._relays,
            self._source,
            self._consumer_factory(partition),
            partition.checkpoints,
            filter={**self._filter, "partition": taken},
            upto=claim.upto,
            shapes=self._shapes,
            on_lost=self._on_lost,
            on_suspended=self._on_suspended,
            dead_letters=folder and folder / f"{self.name}-{claim.number}-of-{claim.count}",
            settings=self._settings,
            clock=self._clock,
            rng=random.Random(self._rng.random()),
        )
