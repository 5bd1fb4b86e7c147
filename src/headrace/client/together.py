"""One program over several sources, or over the shards of one: windows of all of them, each whole, one at a time.

Sources share no order: between two of them a window comes when it comes. Each has a subscription, a consumer object
and a checkpoint of its own; what the consumers share needs no lock, because no two of them are called at once.

Source: Databus, section 3.5 (one consumer of a partitioned source: order per partition).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.client.subscription import Subscription

__all__ = ["Together", "Turns"]


class Turns:
    """Who may call now. One holder at a time, in the order in which they came; a holder may take its turn again."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._holder: object | None = None
        self._depth = 0

    def take(self, holder: object) -> None:
        """Return when it is the holder's turn."""
        with self._changed:
            if self._holder is not holder:
                self._waiting.append(holder)
                self._changed.wait_for(lambda: self._holder is None and self._waiting[0] is holder)
                self._waiting.popleft()
                self._holder = holder
            self._depth += 1

    def give(self, holder: object) -> None:
        """Undo one `take`."""
        with self._changed:
            assert self._holder is holder
            self._depth -= 1
            if not self._depth:
                self._holder = None
                self._changed.notify_all()


class Together:
    """Runs several subscriptions, whose callbacks never overlap.

    Args:
        subscriptions: one per source, none of them running.

    Raises:
        ConfigError: there are none, or one is named twice.
    """

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        if not subscriptions or len({id(one) for one in subscriptions}) < len(subscriptions):
            raise ConfigError(
                "Subscriptions run together need to be at least one, and each another one.",
                next_step="make a subscription for each source.",
            )
        self._subscriptions = list(subscriptions)
        turns = Turns()
        for subscription in self._subscriptions:
            subscription.take_turns(turns)

    def stop(self) -> None:
        """End all of them soon; returns at once."""
        for subscription in self._subscriptions:
            subscription.stop()

    def run(self) -> None:
        """Deliver until somebody stops them, or everything that was asked for came.

        One that is suspended waits for a person while the others go on. One that ends with an error ends all.

        Raises:
            HeadraceError: the first that ended one of them; see `Subscription.run`.
        """
        failed: list[BaseException] = []

        def run(subscription: Subscription) -> None:
            try:
                subscription.run()
            except BaseException as error:  # noqa: BLE001 - raised by whoever called us
                failed.append(error)
                self.stop()

        threads = [
            threading.Thread(target=run, args=(one,), name="headrace-together", daemon=True)
            for one in self._subscriptions
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            # Ctrl-C comes to the thread that waits.
            self.stop()
            raise
        if failed:
            raise failed[0]
