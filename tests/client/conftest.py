"""A change log, a relay over it, and a subscription that runs beside the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.client import Backoff, HttpSettings, Settings, State, Subscription
from headrace.testing.histories import TABLES
from headrace.testing.relay import served
from tests.client.logs import LogFolder
from tests.client.members import Members
from tests.waiting import until

QUICK = Settings(
    idle_checkpoint_s=0.0,
    retry=Backoff(0.001, 1.0, 0.001),
    reconnect=Backoff(0.005, 1.2, 0.05),
    http=HttpSettings(read_timeout_s=10.0),
    patience_s=0.3,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogFolder]:
    log = LogFolder(tmp_path / "log")
    log.register(*TABLES)
    yield log
    log.close()


@pytest.fixture
def relay(log: LogFolder) -> Iterator[str]:
    with served({"shop": log.folder}, heartbeat_s=0.1) as url:
        yield url


@pytest.fixture
def members(relay: str, tmp_path: Path) -> Iterator[Members]:
    members = Members(relay, tmp_path)
    yield members
    members.close()


@contextmanager
def running(subscription: Subscription) -> Iterator[Callable[[], None]]:
    """Run a subscription in a thread; the value joins it and raises what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            subscription.run()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever joins
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join() -> None:
        thread.join(60)
        assert not thread.is_alive(), f"still running: {subscription.status}"
        if raised:
            raise raised[0]

    try:
        yield join
    finally:
        subscription.stop()
        thread.join(60)


def suspended(subscription: Subscription) -> None:
    """Wait until a subscription is suspended."""
    until(lambda: subscription.status.state is State.SUSPENDED_ON_ERROR, "suspended")
