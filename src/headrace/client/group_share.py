"""One partition in the hands of a member: a subscription, its thread, and how it ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from headrace.client.group_state import Claim
from headrace.client.group_store import GroupStore, PartitionCheckpoints
from headrace.client.subscription import Subscription

__all__ = ["Partition", "Share"]


@dataclass(frozen=True, slots=True)
class Partition:
    """What a consumer is told of the partition that it is made for.

    Attributes:
        group: name of the group.
        number: of the partition, from 0.
        count: of all partitions now.
        generation: rises with each owner; whoever writes elsewhere may refuse what comes under a lower one.
        checkpoints: where the place is kept, for consumers that store it in their own transaction.
    """

    group: str
    number: int
    count: int
    generation: int
    checkpoints: PartitionCheckpoints


class Share:
    """Delivers one partition, from the moment it is made until it is stopped or its claim is over.

    Args:
        claim: under which the partition is held.
        group: name of the group.
        store: of the group.
        subscribe: makes the subscription of a partition.
        ended: called from the share's own thread when it has ended by itself, without an error.

    Attributes:
        claim: under which the partition is held.
        subscription: what delivers.
        error: why it ended; None when it did not fail.
    """

    def __init__(
        self,
        claim: Claim,
        group: str,
        store: GroupStore,
        subscribe: Callable[[Claim, Partition], Subscription],
        ended: Callable[[], None],
    ) -> None:
        self.claim = claim
        self.error: BaseException | None = None
        self._ended = ended
        self._over = threading.Event()
        checkpoints = PartitionCheckpoints(store, group, claim, self.stop)
        partition = Partition(group, claim.number, claim.count, claim.generation, checkpoints)
        self.subscription = subscribe(claim, partition)
        name = f"headrace-partition-{claim.number}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether it still delivers, or may."""
        return not self._over.is_set()

    def stop(self) -> None:
        """End soon; from any thread."""
        self.subscription.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the end."""
        self._over.wait(timeout_s)

    def _run(self) -> None:
        try:
            self.subscription.run()
        except BaseException as error:  # noqa: BLE001 - the member judges it, a SystemExit too
            self.error = error
        finally:
            self._over.set()
        if self.error is None:
            # What failed is looked at when it is the member's turn again, no sooner: it may fail at once once more.
            self._ended()
