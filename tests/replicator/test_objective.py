"""The freshness objective over a day, against an oracle that looks at every transaction."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from headrace.lake.counts import NO_TOTALS, OnTime, Totals
from headrace.lake.frontier import Manifest
from headrace.outputs.webhook import Webhook, WebhookSettings, signature
from headrace.replicator.alert import MET, MISSED, Alerts, due
from headrace.replicator.minutes import MinuteKeeper, ends_of
from headrace.replicator.objective import Attainment, attained
from headrace.state.minutes import ALL, MINUTE_S, MinuteStore
from tests.outputs.receiver import receiving
from tests.requirements import req
from tests.waiting import until

DAY_S = 86_400
BEGIN_S = 1_700_000_000
NEVER = 2**40


@dataclass
class Day:
    """Commits of a simulated day, and when each became visible; seconds since 1970."""

    commits: list[float]
    visible: list[float]

    @classmethod
    def made(cls, seed: int) -> Day:
        """Return a day of bursts, with outages of the target between seconds and hours."""
        rng = random.Random(seed)
        commits, at = [], float(BEGIN_S)
        while at < BEGIN_S + DAY_S:
            at += rng.expovariate(1 / rng.choice([2, 20, 60]))
            commits.append(at)
        frontiers, at = [], BEGIN_S + 1.0
        while at < BEGIN_S + DAY_S + 1:
            at += rng.choice([1, 1, 2, 5, 30])
            if rng.random() < 0.001:
                at += rng.choice([30, 200, 3_000, 20_000])
            frontiers.append(at)
        places = np.searchsorted(frontiers, commits)
        visible = [frontiers[at] if at < len(frontiers) else NEVER for at in places]
        return cls(commits, visible)

    def attained(self, now_s: float, within_s: float, over_s: int) -> tuple[int, int, int]:
        """Return seen, in time and overdue of the window, one transaction after the other."""
        begin = (now_s - over_s) // 60 * 60
        pairs = [pair for pair in zip(self.commits, self.visible, strict=True) if pair[0] <= now_s]
        seen = [b - a for a, b in pairs if begin <= b <= now_s]
        overdue = [a for a, b in pairs if b > now_s and now_s - a > within_s]
        return len(seen), sum(delay <= within_s for delay in seen), len(overdue)


@req("C09", "F15")
@pytest.mark.parametrize("seed", range(4))
def test_a_day_with_outages_is_measured_as_one_by_one(seed: int, tmp_path: Path) -> None:
    """Also by processes that come and go, and write a minute several times or not at all."""
    rng = random.Random(seed)
    day = Day.made(seed)
    within_s, over_s = rng.choice([2.0, 10.0, 60.0]), rng.choice([600, 7_200, DAY_S])
    totals, looks, misses = NO_TOTALS, 0, 0
    keeper = MinuteKeeper(tmp_path / "activity.db", None, {MINUTE_S: over_s})
    pairs = list(zip(day.commits, day.visible, strict=True))
    # Both rise: the transactions of one frontier follow each other.
    shown = groupby((pair for pair in pairs if pair[1] < NEVER), lambda pair: pair[1])
    for scn, (at, group) in enumerate(shown, 1):
        delays = [b - a for a, b in group]
        totals = totals.plus(np.array(delays), within_s)
        frontier = Manifest(scn, int(at * 1e6), {}, int(at * 1e6), scn, totals)
        keeper.take(frontier)
        if rng.random() < 0.02:
            keeper.close()
            keeper = MinuteKeeper(tmp_path / "activity.db", frontier, {MINUTE_S: over_s})
        if rng.random() < 0.1:
            # Some time later: nothing came since, and what waits grows old.
            following = next((b for b in day.visible if b > at), at + 1)
            now_s = rng.uniform(at, following - 0.001)
            keeper.close()
            store = MinuteStore(tmp_path / "activity.db")
            ends = ends_of(store.read(int(now_s - over_s) // 60, ALL))
            store.close()
            keeper = MinuteKeeper(tmp_path / "activity.db", frontier, {MINUTE_S: over_s})
            waiting = [a for a, b in pairs if a <= now_s < b]
            overdue = sum(now_s - a > within_s for a in waiting)
            found = attained((0.99, within_s, over_s), now_s, totals.on_time, ends, overdue)
            assert (found.seen, found.in_time, found.overdue) == day.attained(
                now_s, within_s, over_s
            )
            looks, misses = looks + 1, misses + found.missed
    keeper.close()
    assert looks > 20
    assert misses


def test_another_bound_begins_anew() -> None:
    totals = Totals().plus(np.array([1.0, 5.0]), 2.0)
    assert totals.on_time == OnTime(2.0, 2, 1)
    changed = totals.plus(np.array([3.0]), 4.0)
    assert changed.on_time == OnTime(4.0, 1, 1)
    assert changed.plus(np.array([]), None).on_time is None
    # What was kept with the other bound is no beginning of a window.
    found = attained((0.5, 4.0, 600), 6_000.0, changed.on_time, [(1, OnTime(2.0, 2, 1))], 1)
    assert (found.seen, found.in_time, found.attained, found.missed) == (1, 1, 0.5, False)
    # Nor are sums that are larger than those of now.
    found = attained((0.5, 4.0, 600), 6_000.0, changed.on_time, [(1, OnTime(4.0, 9, 9))], 0)
    assert found.seen == 1


GOOD = Attainment(0.9, 10.0, 3_600, 100, 95, 0)
BAD = replace(GOOD, overdue=50)


def test_a_miss_is_news_once_and_so_is_its_end() -> None:
    nothing = replace(GOOD, seen=0, in_time=0)
    assert (nothing.attained, due("", nothing), due(MISSED, nothing)) == (None, None, None)
    assert [due(told, GOOD) for told in ("", MISSED, MET)] == [None, MET, None]
    assert [due(told, BAD) for told in ("", MISSED, MET)] == [MISSED, None, MISSED]


@req("C09")
def test_the_webhook_is_told_once_whatever_it_answers_and_whoever_starts_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "activity.db"
    with receiving() as receiver:
        settings = WebhookSettings(receiver.url, b"secret", pause_s=0.01)

        def tell(*attainments: Attainment, calls: int) -> None:
            alerts = Alerts("shop", Webhook(settings), path)
            for one in attainments:
                alerts.take(one)
                until(lambda: len(receiver.taken) >= calls, "the calls", 20)
            # It is noted behind the answer, which the end waits for only a moment.
            with contextlib.closing(MinuteStore(path)) as store:
                until(
                    lambda: not json.loads(store.get("objective") or "{}").get("calling"),
                    "the note",
                    20,
                )
            alerts.close()

        tell(GOOD, calls=0)
        receiver.answers = [503, "cut"]
        tell(BAD, calls=1)
        # Another process goes on from what was told.
        tell(BAD, calls=1)
        tell(GOOD, calls=2)
        tell(GOOD, calls=2)
        tell(BAD, calls=3)
    assert [one["objective"] for one in receiver.taken] == [MISSED, MET, MISSED]
    assert receiver.taken[0]["attained"] == BAD.attained
    assert receiver.taken[0]["since_s"] == receiver.taken[1]["since_s"]
    keys = [headers["idempotency-key"] for _, headers, _ in receiver.calls]
    # The tries of one call are one call.
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys[3:]) - {keys[0]}) >= 1
    for _, headers, body in receiver.calls:
        assert headers["headrace-signature"] == signature(b"secret", body)
        assert json.loads(body)["replicator"] == "shop"
