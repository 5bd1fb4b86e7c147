"""Table versions are asked for once in a process, however many subscriptions need them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.client import Subscription, schemas
from headrace.client.schemas import Schemas
from headrace.errors import NotServed
from headrace.testing.notation import table_of
from tests.changelog.windows import window
from tests.client.conftest import QUICK
from tests.client.logs import LogFolder
from tests.client.recording import Recorder

MANY = 6


class Asking:
    """Counts who enters, and who asks a relay; that one is held until it is let go, or so many ask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int = MANY) -> None:
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.asked = 0
        get, ask = Schemas.get, Schemas._ask

        def entering(own: Schemas, schema_id: int) -> Any:
            self.entered.release()
            return get(own, schema_id)

        def asking(own: Schemas, schema_id: int) -> Any:
            self.asked += 1
            if self.asked == most:
                self.go.set()
            assert self.go.wait(30)
            return ask(own, schema_id)

        monkeypatch.setattr(Schemas, "get", entering)
        monkeypatch.setattr(Schemas, "_ask", asking)


def consuming(log: LogFolder, relay: str, name: str, count: int) -> list[Subscription]:
    table = table_of(2, name=name)
    log.register(table)
    log.append(*(window(scn, 2, tables=(table,)) for scn in (1, 2)))
    return [
        Subscription(relay, "shop", Recorder(), start="oldest", upto=2, settings=QUICK)
        for _ in range(count)
    ]


def test_those_that_begin_together_ask_once(
    log: LogFolder, relay: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "_SOON_S", 30.0)
    asking = Asking(monkeypatch)
    subscriptions = consuming(log, relay, "asked_once", MANY)
    with ThreadPoolExecutor(MANY) as pool:
        done = [pool.submit(one.run) for one in subscriptions]
        for _ in range(MANY):
            assert asking.entered.acquire(timeout=30)
        asking.go.set()
        for one in done:
            one.result(30)
    assert asking.asked == 1
    # And nobody who comes later.
    consuming_later = Subscription(
        relay, "shop", Recorder(), start="oldest", upto=2, settings=QUICK
    )
    consuming_later.run()
    assert asking.asked == 1


def test_nobody_waits_for_long_for_one_that_hangs(
    log: LogFolder, relay: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "_SOON_S", 0.01)
    asking = Asking(monkeypatch, most=2)
    hanging, other = consuming(log, relay, "one_hangs", 2)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(hanging.run)
        assert asking.entered.acquire(timeout=30)
        other.run()
        held.result(30)
    assert asking.asked == 2


def test_what_no_relay_knows_is_not_remembered(log: LogFolder, relay: str) -> None:
    unknown = Schemas(Subscription(relay, "shop", Recorder())._relays, "shop", lambda _: False)
    for _ in range(2):
        with pytest.raises(NotServed):
            unknown.get(4711)
    version = table_of(2, name="came_later")
    with pytest.raises(NotServed):
        unknown.get(version.schema_id)
    log.register(version)
    assert unknown.get(version.schema_id) == version
