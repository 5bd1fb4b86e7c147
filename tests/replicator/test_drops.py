"""A table whose operations fall suddenly is told once, and once when they are back."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headrace.cli.live import render
from headrace.lake.counts import TableCounts
from headrace.lake.frontier import Manifest, TableEntry
from headrace.outputs.webhook import Webhook, WebhookSettings, signature
from headrace.replicator.config_file import load
from headrace.replicator.drop_alert import BACK, DROPPED, DropAlerts
from headrace.replicator.drops import Drop, DropRule, DropWatch, drops, noted
from headrace.replicator.minutes import Active, MinuteKeeper
from headrace.replicator.picture import Observer, Picture, TablePicture
from headrace.replicator.watching import Watching
from headrace.state.minutes import HOUR_S, MINUTE_S, MinuteStore
from tests.outputs.receiver import receiving
from tests.requirements import req
from tests.waiting import until

BEGIN = 28_000_020
RULE = DropRule(to=0.2, over_s=600, against=6, least=100)
T = "public.t"
EMPTY = Picture((), 0, 0, 0, 0, None, 0, 0, {})


def minutes(pace: Callable[[int], int], upto: int, table: str = T) -> list[Active]:
    """Return minutes with as many updates as the pace has for each."""
    counts = ((minute, TableCounts(updates=pace(minute))) for minute in range(upto))
    return [Active(BEGIN + minute, table, of) for minute, of in counts if of.updates]


def fallen(
    pace: Callable[[int], int], upto: int, held: dict[str, Drop] | None = None, began: int = 0
) -> dict[str, Drop]:
    now_s = (BEGIN + upto) * MINUTE_S + 59.0
    return drops(minutes(pace, upto + 1), now_s, RULE, {T}, held or {}, (BEGIN + began) * MINUTE_S)


@req("P69")
@pytest.mark.parametrize(
    ("pace", "told"),
    [
        (lambda minute: 50, False),
        (lambda minute: 50 if minute < 70 else 0, True),
        (lambda minute: 50 if minute < 70 else 9, True),
        (lambda minute: 50 if minute < 70 else 10, False),
        # Nine operations in ten minutes are too few to say anything about.
        (lambda minute: 9 if minute < 70 else 0, False),
        # A load once an hour, a single one, and one that has only begun.
        (lambda minute: 9_000 if minute % 60 == 5 else 0, False),
        (lambda minute: 90_000 if minute == 40 else 50, False),
        (lambda minute: 50 if minute > 55 else 0, False),
        # Slowly less, as in an evening.
        (lambda minute: max(0, 100 - minute), False),
    ],
)
def test_a_sudden_drop_is_one_against_what_was_usual_before(
    pace: Callable[[int], int], told: bool
) -> None:
    found = fallen(pace, 80)
    assert (T in found) == told
    if told:
        # The minute that is not over yet does not count.
        drop = found[T]
        assert (drop.usual, drop.seen) == (500, sum(pace(minute) for minute in range(70, 80)))
        assert drop.since_s == (BEGIN + 70) * MINUTE_S


def test_rows_that_a_dump_reads_are_no_operations() -> None:
    found = [Active(BEGIN + n, T, TableCounts(copied=900, rows=900)) for n in range(60)]
    assert not drops(found, (BEGIN + 75) * MINUTE_S, RULE, {T}, {}, 0)


@req("P69")
def test_a_drop_lasts_until_the_operations_are_as_many_as_they_were() -> None:
    """However long that takes: what is usual by then is nothing."""
    held: dict[str, Drop] = {}

    def pace(minute: int) -> int:
        return 50 if minute < 70 or minute >= 1_000 else 0

    states = []
    for minute in range(70, 1_020):
        held = fallen(pace, minute, held)
        states.append(T in held)
    assert states == [False] * 9 + [True] * 923 + [False] * 18
    # Of a table that is gone nobody waits for anything.
    held = fallen(pace, 90)
    assert not drops(minutes(pace, 91), (BEGIN + 91) * MINUTE_S, RULE, set(), held, 0)


def test_a_time_in_which_nobody_brought_changes_forward_is_no_drop() -> None:
    assert not fallen(lambda minute: 50 if minute < 70 else 0, 80, began=71)
    assert fallen(lambda minute: 50 if minute < 70 else 0, 81, began=71)


class Life:
    """A replicator's minutes, on a clock of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.minute = 0
        self.updates = 0
        self.start()

    def start(self) -> None:
        self.keeper = MinuteKeeper(self.path, None, {MINUTE_S: 86_400, HOUR_S: 86_400})
        self.watch = DropWatch(self.path, RULE, self.now_s)

    def stop(self) -> None:
        self.keeper.close()
        self.watch.close()

    @property
    def now_s(self) -> float:
        return (BEGIN + self.minute) * MINUTE_S + 1.0

    def minutes(self, count: int, pace: int, *, paused: bool = False) -> set[str]:
        fallen: set[str] = set()
        for _ in range(count):
            self.updates += pace
            at_us = int(self.now_s * 1e6)
            entry = TableEntry(1, 5, 1, "live", counts=TableCounts(updates=self.updates))
            frontier = Manifest(at_us, at_us, {T: entry}, at_us)
            if pace:
                self.keeper.take(frontier)
            self.minute += 1
            fallen = set(self.watch.take(self.now_s, frontier, {T}, paused=paused))
        return fallen


@req("P69")
def test_a_restart_forgets_no_drop_and_makes_none(tmp_path: Path) -> None:
    life = Life(tmp_path / "activity.db")
    assert not life.minutes(70, 50)
    assert not life.minutes(7, 0)
    life.stop()
    # Nobody was there for half an hour.
    life.minute += 30
    life.start()
    assert not life.minutes(5, 0)
    assert not life.minutes(70, 50)
    assert life.minutes(9, 0) == {T}
    life.stop()
    life.start()
    assert life.minutes(1, 0) == {T}
    store = MinuteStore(life.path)
    assert noted(store).keys() == {T}
    store.close()
    assert life.minutes(200, 0) == {T}
    assert not life.minutes(3, 50)
    life.stop()


def test_changes_that_people_hold_back_are_no_drop(tmp_path: Path) -> None:
    life = Life(tmp_path / "activity.db")
    life.minutes(70, 50)
    assert not life.minutes(60, 0, paused=True)
    assert not life.minutes(5, 0)
    life.stop()


@req("P69")
def test_the_webhook_is_told_of_each_table_once_and_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "activity.db"
    one, other = (Drop(f"public.{name}", 500.0, 3, 600, 1_700_000_000) for name in "ab")
    with receiving() as receiver:
        settings = WebhookSettings(receiver.url, b"secret", pause_s=0.01)

        def tell(*news: Drop, calls: int) -> None:
            alerts = DropAlerts("shop", Webhook(settings), path)
            alerts.take({drop.table: drop for drop in news})
            until(lambda: len(receiver.taken) >= calls, "the calls", 20)
            # It is noted behind the answer, which the end waits for only a moment.
            with contextlib.closing(MinuteStore(path)) as store:
                until(
                    lambda: (
                        json.loads(store.get("drops told") or "{}").keys()
                        == {drop.table for drop in news}
                    ),
                    "the note",
                    20,
                )
            alerts.close()

        receiver.answers = [503, "cut"]
        tell(one, calls=1)
        # Another process goes on from what was told.
        tell(one, other, calls=2)
        tell(one, other, calls=2)
        tell(other, calls=3)
        tell(calls=4)
    said = [(call["activity"], call["table"]) for call in receiver.taken]
    assert said == [
        (DROPPED, "public.a"),
        (DROPPED, "public.b"),
        (BACK, "public.a"),
        (BACK, "public.b"),
    ]
    first = receiver.taken[0]
    assert (first["replicator"], first["usual"], first["seen"]) == ("shop", 500.0, 3)
    keys = [headers["idempotency-key"] for _, headers, _ in receiver.calls]
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys)) == 4
    for _, headers, body in receiver.calls:
        assert headers["headrace-signature"] == signature(b"secret", body)
        assert json.loads(body)["replicator"] == "shop"


@req("P69")
def test_a_run_notices_a_drop_and_everybody_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        monkeypatch.setenv("HOOK", receiver.url)
        path = tmp_path / "shop.yaml"
        path.write_text(
            "name: shop\n"
            "source: {type: postgres, url: 'postgresql:///shop', tables: ['public.*']}\n"
            "target: {type: delta, path: lake}\n"
            "activity: {drop: {webhook: '${env:HOOK}'}}\n"
        )
        config = load(path)
        now_s = [float(BEGIN * MINUTE_S)]
        table = TablePicture(T, "live", 0, 0, 0, 0)
        pictures = [replace(EMPTY, tables=(table,))]
        with Watching(config, lambda: pictures[0], lambda: now_s[0]) as watching:
            for minute in range(120):
                updates = 50 * min(minute, 100)
                counts = TableCounts(updates=updates)
                at_us = int(now_s[0] * 1e6)
                entry = TableEntry(1, 5, 1, "live", counts=counts)
                pictures[0] = replace(pictures[0], frontier=Manifest(5, at_us, {T: entry}, at_us))
                watching.take(pictures[0])
                now_s[0] += MINUTE_S
            until(lambda: receiver.taken, "the call", 20)
    (call,) = receiver.taken
    assert (call["activity"], call["table"], call["usual"]) == (DROPPED, T, 500.0)
    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()
    assert picture.drops is not None
    (drop,) = picture.drops
    assert picture.to_json()["drops"] == [drop.to_json()]
    out = Console(width=120, record=True, file=io.StringIO())
    out.print(render("shop", picture))
    said = f"{T}: activity dropped, {drop.seen} operations in the last 10 min, usually 500"
    assert said in out.export_text()
