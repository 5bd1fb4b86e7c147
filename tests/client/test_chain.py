"""Consumers of a chain of relays: any of them goes on where another one broke off."""

from __future__ import annotations

import json
import random

import pytest

from headrace.client import Subscription
from headrace.relay.server.settings import ServedSource
from headrace.testing.line_faults import SOUND, Damage, FaultyLine
from headrace.testing.relay import served
from tests.changelog.windows import TABLE, window
from tests.client.conftest import QUICK, running
from tests.client.logs import random_blocks, told_by
from tests.client.recording import Recorder
from tests.relay.following import following
from tests.requirements import req
from tests.waiting import until


@req("D39", "D44", "D48", "D26", "B-6")
@pytest.mark.parametrize("seed", range(3))
def test_failover_inside_windows_between_relays_of_a_chain_loses_and_repeats_nothing(
    log, relay, tmp_path, seed
):
    blocks = random_blocks(seed + 160)
    log.append(*blocks)
    rng = random.Random(seed)
    consumer = Recorder()
    with (
        following(tmp_path / "copy", relay) as copy,
        served({"shop": copy.folder}, heartbeat_s=0.1) as second,
        FaultyLine(relay) as one,
        FaultyLine(second) as two,
    ):
        copy.covers(blocks[-1].covered_scn)
        for line in (one, two):
            line.rule = lambda n: Damage(cut_at=rng.randrange(500, 9_000)) if n < 12 else SOUND
        Subscription(
            [one.url, two.url], "shop", consumer, upto=blocks[-1].covered_scn, settings=QUICK
        ).run()
        assert min(one.connections, two.connections) > 3
    assert sorted(consumer.told, key=lambda told: told[:2]) == told_by(blocks)
    assert consumer.rollbacks == 0


@req("D54", "D52", "D48")
def test_a_relay_that_joins_the_chain_is_told_of_by_the_routing_document_and_taken(log, tmp_path):
    """The consumer knows the leader alone; the document names the follower as soon as there is one."""
    log.register(TABLE)
    log.append(window(1))
    routes = tmp_path / "routes.json"
    source = ServedSource("shop", log.folder, log.folder / "schemas", relays=routes)
    consumer = Recorder()

    def say(version: int, *relays: str) -> None:
        draft = routes.with_suffix(".tmp")
        draft.write_text(
            json.dumps({"version": version, "sources": {"shop": {"relays": list(relays)}}})
        )
        draft.replace(routes)

    with served((source,), heartbeat_s=0.1) as leader, FaultyLine(leader) as line:
        say(1, line.url)
        subscription = Subscription(line.url, "shop", consumer, settings=QUICK)
        with running(subscription):
            until(lambda: consumer.windows == [1], "the first window")
            with (
                following(tmp_path / "copy", leader) as copy,
                served({"shop": copy.folder}, heartbeat_s=0.1) as follower,
            ):
                copy.covers(1)
                say(2, line.url, follower)
                line.cut()
                until(lambda: subscription._relays.urls == [line.url, follower], "the document")
                line.rule = lambda _: Damage(cut_at=0)
                line.cut()
                log.append(window(2))
                until(lambda: consumer.windows == [1, 2], "the window from the follower")
    assert consumer.rollbacks == 0
