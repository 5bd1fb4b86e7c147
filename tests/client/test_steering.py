"""What people do with a subscription, and what it does by itself when a consumer fails."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headrace.client import (
    Consumer,
    NoCheckpoints,
    Result,
    State,
    Subscription,
    read_dead_letters,
)
from headrace.client.errors import BudgetExceeded, CallbackFailed, FatalResult, Suspended
from headrace.client.start import Start, resolve
from headrace.errors import ConfigError, HeadraceError, StateError
from headrace.testing.notation import table_of
from headrace.wire.place import Place
from tests.changelog.windows import TABLE, commit_us, coverage, joined, window
from tests.client.conftest import QUICK, running, suspended
from tests.client.logs import LogFolder, random_blocks, told_by
from tests.client.recording import Recorder
from tests.relay.server.asking import ask
from tests.requirements import req
from tests.waiting import until


def windows_of(log: LogFolder, *scns: int, rows: int = 2) -> None:
    log.register(TABLE, table_of(2, name="other"))
    log.append(*(window(scn, rows) for scn in scns))


class FailsAt(Recorder):
    """Fails whenever one window ends, until it is repaired."""

    def __init__(self, scn: int, how: Result | None = None) -> None:
        super().__init__()
        self.scn, self.broken, self.how = scn, True, how
        self.tries = 0

    def on_end_window(self, window):
        super().on_end_window(window)
        if self.broken and window.scn == self.scn:
            self.tries += 1
            if self.how is None:
                raise ValueError("value 4711 is bad")
            return self.how
        return None


@req("D96", "D122", "D89")
def test_retries_end_in_a_state_that_people_see_and_resume(log, relay):
    windows_of(log, 1, 2, 3, 4)
    consumer = FailsAt(3)
    subscription = Subscription(relay, "shop", consumer, settings=replace(QUICK, retries=2))
    with running(subscription):
        suspended(subscription)
        status = subscription.status
        assert consumer.tries == 3
        assert (status.stored, status.rollbacks) == (Place(2), 2)
        assert isinstance(status.error, CallbackFailed)
        assert "4711" not in str(status.error)
        assert [type(error) for error in consumer.errors] == [CallbackFailed]
        consumer.broken = False
        subscription.resume()
        until(lambda: subscription.status.stored == Place(4), "the rest")
        assert subscription.status.state is State.RESUMED
    assert subscription.status.state.value == "shutdown"
    assert [told[0] for told in consumer.told] == [1, 1, 2, 2, 3, 3, 4, 4]


@req("D92", "D89")
@pytest.mark.parametrize(
    ("how", "error"), [(Result.ERROR, CallbackFailed), (Result.ERROR_FATAL, FatalResult)]
)
def test_error_is_tried_again_and_fatal_ends_at_once(log, relay, how, error):
    windows_of(log, 1, 2, 3)
    consumer = FailsAt(2, how)
    settings = replace(QUICK, retries=1)
    subscription = Subscription(relay, "shop", consumer, settings=settings, on_suspended="raise")
    with pytest.raises(error):
        subscription.run()
    assert consumer.tries == (1 if error is FatalResult else 2)
    assert subscription.status.state is State.SHUTDOWN
    assert isinstance(consumer.errors[0], error)
    assert [name for name, _ in consumer.log][-2:] == ["on_error", "on_stop"]
    assert subscription.status.stored == Place(1)


@req("D92")
def test_success_goes_on_as_no_answer_does(log, relay):
    windows_of(log, 1, 2, 3)
    consumer = FailsAt(2, Result.SUCCESS)
    subscription = Subscription(relay, "shop", consumer, upto=3, settings=QUICK)
    subscription.run()
    assert consumer.tries == 1
    assert consumer.windows == [1, 2, 3]
    assert (subscription.status.rollbacks, subscription.status.stored) == (0, Place(3))


@req("D93", "B-5")
def test_a_callback_that_takes_too_long_has_failed(log, relay):
    windows_of(log, 1, 2)
    # Its own clock: by that of a busy machine any callback may take too long.
    now = [0.0]

    class Sleeper(Recorder):
        def on_data_event(self, event):
            if event.scn == 2 and not now[0]:
                now[0] = 0.2
            return super().on_data_event(event)

    consumer = Sleeper()
    settings = replace(QUICK, budget_s=0.1)
    subscription = Subscription(
        relay, "shop", consumer, upto=2, settings=settings, clock=lambda: now[0]
    )
    subscription.run()
    assert consumer.rollbacks == 1
    assert isinstance(subscription.status.error, BudgetExceeded)
    assert [told[0] for told in consumer.told] == [1, 1, 2, 2]


@req("D122")
def test_a_poison_window_is_put_aside_whole_and_passed(log, relay, tmp_path):
    log.append(*random_blocks(3, steps=80))
    scns = sorted({int(scn) for block in log.blocks for scn in block.index["scn"]})
    poison = scns[len(scns) // 2]
    consumer = FailsAt(poison)
    subscription = Subscription(
        relay,
        "shop",
        consumer,
        settings=replace(QUICK, retries=0, merge_windows=True),
        dead_letters=tmp_path / "dead",
    )
    # Merged, windows end elsewhere; the one that holds the poison fails.
    consumer.on_end_window = lambda w: (  # type: ignore[method-assign]
        Result.ERROR if w.first_scn <= poison <= w.scn else Recorder.on_end_window(consumer, w)
    )
    with running(subscription):
        suspended(subscription)
        assert subscription._delivery is not None
        first, last = subscription._delivery.poison or (0, 0)
        subscription.skip_window()
        end = log.blocks[-1].covered_scn
        until(lambda: (subscription.status.stored or Place(0)).scn >= end, "the rest")
    put_aside = [
        block for path in sorted((tmp_path / "dead").iterdir()) for block in read_dead_letters(path)
    ]
    everything = told_by(log.blocks)
    assert told_by(put_aside) == [told for told in everything if first <= told[0] <= last]
    delivered = sorted(consumer.told, key=lambda told: told[:2])
    assert delivered == [told for told in everything if not first <= told[0] <= last]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "dead").iterdir())


@req("D122")
@pytest.mark.parametrize("merged", [False, True])
def test_the_window_to_blame_is_found_however_rare_checkpoints_are(log, relay, tmp_path, merged):
    """A consumer that writes when it is asked for a checkpoint meets the poison windows later."""
    log.register(TABLE)
    blocks = [window(scn) for scn in range(1, 10)]
    log.append(*([joined(blocks)] if merged else blocks))

    class Writing(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[int] = []
            self.sizes: list[int] = []

        def on_data_event(self, event):
            self.kept.append(event.scn)
            return super().on_data_event(event)

        def on_rollback(self, place):
            self.kept.clear()
            return super().on_rollback(place)

        def on_checkpoint(self, place):
            if 4 in self.kept:
                return Result.ERROR
            self.sizes.append(len(set(self.kept)))
            self.kept.clear()
            return super().on_checkpoint(place)

    consumer = Writing()
    settings = replace(
        QUICK, retries=1, checkpoint_every=7, idle_checkpoint_s=3600, merge_windows=merged
    )
    subscription = Subscription(
        relay, "shop", consumer, settings=settings, dead_letters=tmp_path / "dead"
    )
    with running(subscription):
        suspended(subscription)
        assert subscription.status.failed_scn == 4
        subscription.skip_window()
        until(lambda: subscription.status.place == Place(9), "the windows behind it")
        log.append(*(window(scn) for scn in range(10, 20)))
        until(lambda: subscription.status.place == Place(19), "what comes later")
    assert [path.name for path in (tmp_path / "dead").iterdir()] == ["shop-4.blocks"]
    assert {told[0] for told in consumer.held} >= {*range(1, 15)} - {4}
    # One by one as far as the failure was seen, then rarely again.
    assert consumer.sizes[:3] == [1, 1, 1]
    assert max(consumer.sizes) >= 7


@pytest.mark.parametrize("across", [False, True])
def test_a_worker_that_fails_later_than_its_window_names_that_window(log, relay, across):
    windows_of(log, *range(1, 8))
    later = threading.Event()

    class Late(Consumer):
        def on_data_event(self, event):
            if event.scn == 2:
                later.wait(5)
                return Result.ERROR
            return None

        def on_end_window(self, window):
            if window.scn == 5:
                later.set()

    settings = replace(
        QUICK, retries=1, checkpoint_every=7, workers=2, across_windows=across, budget_s=60
    )
    subscription = Subscription(relay, "shop", Late(), settings=settings)
    with running(subscription):
        if not across:
            later.set()
        suspended(subscription)
    assert subscription.status.failed_scn == 2


def test_windows_are_merged_again_when_a_failure_lies_behind(log, relay):
    log.register(TABLE)
    log.append(joined(window(scn) for scn in range(1, 10)))
    failures = iter([True])
    seen: list[tuple[int, int]] = []

    class Merging(Consumer):
        def on_end_window(self, window):
            seen.append((window.first_scn, window.scn))

        def on_checkpoint(self, place):
            return Result.ERROR if next(failures, False) else None

    settings = replace(QUICK, merge_windows=True)
    subscription = Subscription(relay, "shop", Merging(), settings=settings)
    with running(subscription):
        until(lambda: subscription.status.stored == Place(9), "everything")
        log.append(joined(window(scn) for scn in range(10, 20)))
        until(lambda: subscription.status.stored == Place(19), "what comes later")
    assert (1, 1) in seen
    assert seen[-1][0] < seen[-1][1]


def test_what_a_consumer_keeps_back_is_not_overtaken_by_a_skipped_window(log, relay, tmp_path):
    windows_of(log, 1, 2, 3, 4, 5)

    class Buffering(Consumer):
        def on_end_window(self, window):
            return Result.ERROR if window.scn == 4 else Result.SKIP_CHECKPOINT

    checkpoints = NoCheckpoints()
    settings = replace(QUICK, retries=0)
    subscription = Subscription(
        relay, "shop", Buffering(), checkpoints, settings=settings, dead_letters=tmp_path / "dead"
    )
    with running(subscription):
        suspended(subscription)
        subscription.skip_window()
        until(lambda: subscription.status.place == Place(5), "the window behind it")
    assert checkpoints.load() == Place(0)


def test_a_window_that_worked_after_all_is_in_nobodys_way(log, relay):
    windows_of(log, 1, 2, 3)
    failures = iter([True])

    def fail(name, number):
        if name == "on_data_event" and consumer.grammar.scn == 2 and next(failures, False):
            raise RuntimeError

    consumer = Recorder(fail)
    subscription = Subscription(relay, "shop", consumer, upto=3, settings=QUICK)
    subscription.run()
    assert consumer.rollbacks == 1
    assert subscription.status.failed_scn is None


def test_nothing_is_skipped_without_a_window_in_the_way_or_a_place_for_it(log, relay, tmp_path):
    windows_of(log, 1)
    with pytest.raises(ConfigError, match="place to put it"):
        Subscription(relay, "shop", Recorder()).skip_window()
    with pytest.raises(Suspended):
        Subscription(relay, "shop", Recorder(), dead_letters=tmp_path).skip_window()


def test_a_pause_holds_everything_back_until_it_is_over(log, relay):
    windows_of(log, 1)
    consumer = Recorder()
    subscription = Subscription(relay, "shop", consumer, settings=QUICK)
    with running(subscription):
        until(lambda: consumer.windows == [1], "the first window")
        subscription.pause()
        until(lambda: subscription.status.state is State.PAUSED, "paused")
        log.append(window(2), window(3))
        threading.Event().wait(0.3)
        assert consumer.windows == [1]
        subscription.resume()
        until(lambda: consumer.windows == [1, 2, 3], "the rest")
        assert subscription.status.state is State.RESUMED


@req("D08", "D31")
def test_a_rewind_delivers_the_exact_suffix(log, relay):
    windows_of(log, *range(10, 100, 10))
    consumer = Recorder()
    subscription = Subscription(relay, "shop", consumer, settings=QUICK)
    with running(subscription):
        until(lambda: consumer.windows and consumer.windows[-1] == 90, "all")
        suffixes: list[tuple[Start | int, list[int]]] = [
            (Place(40), [50, 60, 70, 80, 90]),
            (65, [70, 80, 90]),
            (datetime.fromtimestamp((1_000_000 + 30) / 1e6, UTC), [30, 40, 50, 60, 70, 80, 90]),
            ("newest", []),
        ]
        for to, expected in suffixes:
            consumer.windows.clear()
            rollbacks = consumer.rollbacks
            subscription.rewind(to)

            def arrived(before: int = rollbacks, wanted: list[int] = expected) -> bool:
                return consumer.rollbacks == before + 1 and consumer.windows == wanted

            until(arrived, f"the windows behind {to}")
            until(lambda: subscription.status.stored == Place(90), "the checkpoint")


@req("D08")
@pytest.mark.parametrize("to", [45, "newest", 95])
def test_a_rewind_into_what_has_no_checkpoint_yet_loses_nothing(log, relay, to):
    """The consumer forgets at the rollback what it kept for a checkpoint, also what lies ahead of the place."""
    windows_of(log, *range(10, 100, 10))
    settings = replace(QUICK, checkpoint_every=100, idle_checkpoint_s=3600)
    consumer = Recorder()
    subscription = Subscription(relay, "shop", consumer, settings=settings)
    with running(subscription):
        until(lambda: consumer.windows and consumer.windows[-1] == 90, "all")
        subscription.rewind(to)
        until(lambda: consumer.rollbacks == 1, "the rewind")
        log.append(window(100))
        until(lambda: consumer.windows[-1] == 100, "what comes later")
    assert sorted({told[0] for told in consumer.told}) == [*range(10, 110, 10)]


@req("D08")
def test_a_rewind_into_what_a_consumer_keeps_back_loses_nothing(log, relay):
    windows_of(log, *range(10, 100, 10))

    class Keeping(Recorder):
        def on_end_window(self, window):
            super().on_end_window(window)
            return Result.SKIP_CHECKPOINT

        def on_checkpoint(self, place):
            return Result.SKIP_CHECKPOINT

    consumer = Keeping()
    subscription = Subscription(relay, "shop", consumer, settings=QUICK)
    with running(subscription):
        until(lambda: consumer.windows and consumer.windows[-1] == 90, "all")
        subscription.rewind(45)
        until(lambda: consumer.windows.count(90) == 2, "all again")
    assert consumer.rollbacks == 1
    assert sorted({told[0] for told in consumer.told}) == [*range(10, 100, 10)]


@req("D08")
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (datetime(1960, 1, 1, tzinfo=UTC), [10, 30, 40]),
        (datetime.fromtimestamp((1_000_000 + 20) / 1e6, UTC), [30, 40]),
    ],
)
def test_a_time_is_the_same_place_for_whoever_wants_a_part(log, relay, start, expected):
    """The transaction of that time may be another one's, and clocks go back behind it."""
    other = table_of(2, name="other")
    windows_of(log, 10)
    log.append(window(20, tables=(other,)))
    early = window(30)
    early.index["commit_us"] = commit_us(15)
    log.append(early, window(40))
    consumer = Recorder()
    wanted = {"tables": [str(TABLE.table)]}
    Subscription(relay, "shop", consumer, filter=wanted, start=start, upto=40, settings=QUICK).run()
    assert consumer.windows == expected


@req("D08")
def test_where_to_rewind_to_is_asked_when_nobody_receives_any_more(log, relay, monkeypatch):
    """Both go over the same connection."""
    windows_of(log, 10, 20)
    consumer, receiving = Recorder(), list[bool]()
    # What other tests left behind is not asked about.
    before = set(threading.enumerate())

    def watched(*args):
        now = set(threading.enumerate()) - before
        receiving.append(any(thread.name == "headrace-fetch" for thread in now))
        return resolve(*args)

    monkeypatch.setattr("headrace.client.subscription.resolve", watched)
    subscription = Subscription(relay, "shop", consumer, settings=QUICK)
    with running(subscription):
        until(lambda: consumer.windows == [10, 20], "all")
        subscription.rewind("newest")
        until(lambda: consumer.rollbacks == 1, "the rewind")
    assert receiving == [False, False]


@req("D09")
def test_a_restart_delivers_everything_again(log, relay):
    log.append(*random_blocks(5))
    end = log.blocks[-1].covered_scn
    consumer = Recorder()
    checkpoints = NoCheckpoints()
    subscription = Subscription(relay, "shop", consumer, checkpoints, settings=QUICK)
    with running(subscription):
        until(lambda: checkpoints.load() == Place(end), "all")
        subscription.restart()
        until(lambda: consumer.rollbacks == 1 and checkpoints.load() == Place(end), "all again")
    assert sorted(consumer.told, key=lambda told: told[:2]) == told_by(log.blocks)
    assert consumer.deliveries > len(consumer.told)


def test_a_suspended_subscription_can_be_rewound_past_what_is_in_the_way(log, relay):
    windows_of(log, 1, 2, 3)
    consumer = FailsAt(2)
    subscription = Subscription(relay, "shop", consumer, settings=replace(QUICK, retries=0))
    with running(subscription):
        suspended(subscription)
        subscription.rewind(2)
        until(lambda: consumer.windows[-1] == 3, "what lies behind")


def test_a_suspended_subscription_can_be_stopped(log, relay):
    windows_of(log, 1, 2)
    consumer = FailsAt(2)
    subscription = Subscription(relay, "shop", consumer, settings=replace(QUICK, retries=0))
    with running(subscription) as join:
        suspended(subscription)
        subscription.stop()
        join()
    assert subscription.status.stored == Place(1)


@pytest.mark.parametrize("rewound", [False, True])
def test_an_end_or_another_beginning_is_heard_before_any_relay_answers(rewound):
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()
                    asked.set()

        threading.Thread(target=refuse, daemon=True).start()
        places = NoCheckpoints()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        subscription = Subscription(address, "shop", Recorder(), places, settings=QUICK)
        with running(subscription) as join:
            assert asked.wait(60)
            if rewound:
                subscription.rewind(7)
                until(lambda: places.load() == Place(7), "it stands where it was told to")
            subscription.stop()
            join()
    assert subscription.status.state is State.SHUTDOWN


def test_two_runs_of_one_subscription_are_refused(log, relay):
    windows_of(log, 1)
    consumer = Recorder()
    subscription = Subscription(relay, "shop", consumer, settings=QUICK)
    with running(subscription):
        until(lambda: consumer.windows, "the first window")
        with pytest.raises(StateError):
            subscription.run()


@req("D99")
def test_checkpoints_come_every_n_windows_and_at_the_end(log, relay):
    windows_of(log, *range(1, 11))
    consumer = Recorder()
    settings = replace(QUICK, checkpoint_every=4, idle_checkpoint_s=1e9)
    Subscription(relay, "shop", consumer, upto=10, settings=settings).run()
    assert consumer.checkpoints == [Place(4), Place(8), Place(10)]


@req("D87", "D99")
def test_a_consumer_may_ask_for_a_checkpoint_or_refuse_it(log, relay):
    windows_of(log, *range(1, 8))

    class Chooser(Recorder):
        def on_end_window(self, window):
            super().on_end_window(window)
            return {2: Result.CHECKPOINT, 5: Result.CHECKPOINT}.get(window.scn)

        def on_checkpoint(self, place):
            if place == Place(5):
                self.log.append(("refused", place))
                return Result.SKIP_CHECKPOINT
            return super().on_checkpoint(place)

    stored = []

    class Stores(NoCheckpoints):
        def store(self, place):
            stored.append(place)
            super().store(place)

    consumer, checkpoints = Chooser(), Stores()
    settings = replace(QUICK, checkpoint_every=100, idle_checkpoint_s=1e9)
    subscription = Subscription(relay, "shop", consumer, checkpoints, upto=7, settings=settings)
    subscription.run()
    assert ("refused", Place(5)) in consumer.log
    assert stored == [Place(0), Place(2), Place(7)]


def test_a_consumer_that_keeps_windows_back_is_not_overtaken_by_coverage(log, relay):
    windows_of(log, 1, 2)

    class Buffering(Consumer):
        def on_end_window(self, window):
            return Result.SKIP_CHECKPOINT

    checkpoints = NoCheckpoints()
    subscription = Subscription(relay, "shop", Buffering(), checkpoints, settings=QUICK)
    with running(subscription):
        until(lambda: subscription.status.windows == 2, "both windows")
        log.append(coverage(50))
        until(lambda: subscription.status.place == Place(50), "the coverage")
    assert checkpoints.load() == Place(0)


@req("B-8", "T17", "D63")
@pytest.mark.parametrize("merge", [False, True])
def test_a_filter_that_leaves_nothing_moves_the_checkpoint(log, relay, merge):
    windows_of(log, *range(1, 20))
    consumer, checkpoints = Recorder(), NoCheckpoints()
    subscription = Subscription(
        relay,
        "shop",
        consumer,
        checkpoints,
        filter={"tables": ["nobody.*"]},
        settings=replace(QUICK, merge_windows=merge),
    )
    with running(subscription):
        until(lambda: checkpoints.load() == Place(19), "the checkpoint")
        log.append(window(20), window(21))
        until(lambda: checkpoints.load() == Place(21), "the checkpoint once more")
    assert consumer.told == []
    assert consumer.windows == []


@pytest.mark.parametrize("rows", [1, 50, 10_000])
def test_a_checkpoint_inside_a_huge_window_is_gone_on_from(log, relay, rows):
    log.register(TABLE)
    log.append(window(1), *(window(2, 40, first=40 * i, last=i == 9) for i in range(10)), window(3))
    calm = Recorder()
    Subscription(relay, "shop", calm, upto=3, settings=QUICK).run()

    def fail(name, number):
        if name == "on_data_event" and consumer.deliveries == 300:
            raise RuntimeError

    consumer = Recorder(fail)
    checkpoints = NoCheckpoints()
    settings = replace(QUICK, checkpoint_rows=rows)
    Subscription(relay, "shop", consumer, checkpoints, upto=3, settings=settings).run()
    assert consumer.told == calm.told
    inside = [place for place in consumer.checkpoints if not place.whole]
    assert len(inside) == {1: 9, 50: 4, 10_000: 0}[rows]
    again = [argument for name, argument in consumer.log if name == "on_start_window"][2]
    rolled_back_to = next(place for name, place in consumer.log if name == "on_rollback")
    assert again.resumed_after == (-1 if rolled_back_to.whole else rolled_back_to.ord)
    assert rolled_back_to.whole == (rows == 10_000)


@req("D98")
def test_no_checkpoint_inside_a_window_passes_one_that_the_consumer_keeps_back(log, relay):
    log.register(TABLE)
    log.append(window(1), window(2, 4, last=False), window(2, 4, first=4))

    class KeepsBack(Consumer):
        def on_end_window(self, window):
            return Result.SKIP_CHECKPOINT

    places = NoCheckpoints()
    settings = replace(QUICK, checkpoint_rows=1)
    Subscription(relay, "shop", KeepsBack(), places, upto=2, settings=settings).run()
    assert places.load() == Place(0)


def test_merged_windows_tell_the_same_changes_in_the_same_order_per_table(log, relay):
    log.append(*random_blocks(11))
    end = log.blocks[-1].covered_scn
    calm, merged = Recorder(), Recorder()
    Subscription(relay, "shop", calm, upto=end, settings=QUICK).run()
    settings = replace(QUICK, merge_windows=True)
    Subscription(relay, "shop", merged, upto=end, settings=settings).run()
    assert len(merged.windows) < len(calm.windows)
    assert sorted(merged.told) == sorted(calm.told)
    for table in {told[3] for told in calm.told}:
        assert [t for t in merged.told if t[3] == table] == [t for t in calm.told if t[3] == table]
    transactions = [w.transactions for name, w in merged.log if name == "on_start_window"]
    assert sum(transactions) == len(calm.windows)


def test_what_was_not_begun_yet_begins_at_the_newest_and_misses_nothing_later(log, relay):
    windows_of(log, 1, 2)
    consumer, checkpoints = Recorder(), NoCheckpoints()
    subscription = Subscription(
        relay, "shop", consumer, checkpoints, start="newest", settings=QUICK
    )
    with running(subscription):
        until(lambda: subscription.status.state is State.STARTED, "started")
        assert checkpoints.load() == Place(2)
        log.append(window(3))
        until(lambda: consumer.windows == [3], "the next window")


@pytest.mark.parametrize(
    "wrong",
    [{"buffer_bytes": 0}, {"checkpoint_every": 0}, {"workers": 0}, {"budget_s": 0.0}],
)
def test_settings_that_cannot_be_used_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Subscription("http://h:1", "shop", settings=replace(QUICK, **wrong))


def test_a_word_that_is_no_place_is_refused(log, relay):
    with pytest.raises(HeadraceError, match="begin"):
        Subscription(relay, "shop", start="yesterday").run()  # type: ignore[arg-type]


@req("D123")
def test_a_burst_is_delivered_whole_while_lag_rises_and_falls(log, relay):
    windows_of(log, 1)
    gate = threading.Event()
    gate.set()

    class Gated(Recorder):
        def on_start_window(self, window):
            gate.wait(30)
            return super().on_start_window(window)

    consumer = Gated()
    subscription = Subscription(relay, "shop", consumer, settings=QUICK)

    def lag() -> int:
        (source,) = ask(relay, "/sources").json["sources"]
        return int(source["covered_scn"]) - (subscription.status.place or Place(0)).scn

    with running(subscription):
        until(lambda: lag() == 0, "the first window")
        gate.clear()
        log.append(*(window(scn) for scn in range(2, 300)))
        until(lambda: lag() == 298, "lag")
        gate.set()
        until(lambda: lag() == 0, "everything")
        # The place moves before the end of the window is told, its time afterwards.
        until(
            lambda: subscription.status.last_commit_us == 1_000_000 + 299, "the last window's end"
        )
    assert consumer.windows == list(range(1, 300))
