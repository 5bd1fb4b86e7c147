"""What is wanted becomes what runs: started, paused, ended, adopted, restarted, given up, removed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from headrace.observe.status import ProcessState, ProcessStatus, StatusFile
from headrace.replicator import lock
from headrace.replicator.api.opened import opened
from headrace.replicator.control import processes, reconcile
from headrace.replicator.control.lifecycle import Command, Desired, State
from headrace.replicator.control.processes import find
from headrace.replicator.control.reconcile import Limits
from headrace.replicator.paths import StatePaths
from headrace.replicator.retries import RestartPolicy
from headrace.replicator.roles import read_role
from headrace.state.store import StateStore
from tests.control.planes import Hand, alive, end_everything, environment, running
from tests.requirements import req
from tests.waiting import until


def adopted(hand: Hand, name: str, pid: int) -> bool:
    return hand.pid(name) == pid


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hand]:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
    try:
        with running(tmp_path) as found:
            yield found
    finally:
        end_everything(tmp_path)


@req("C16")
def test_start_pause_resume_and_stop(hand: Hand) -> None:
    pid = hand.started()
    paused = hand.state() / "state.db"

    hand.command(Command.PAUSE)
    hand.reaches(State.PAUSED)
    assert StateStore(paused).pace().log_paused
    hand.command(Command.RESUME)
    hand.reaches(State.RUNNING)
    assert not StateStore(paused).pace().log_paused
    assert hand.pid() == pid
    hand.command(Command.STOP)
    hand.reaches(State.STOPPED)

    assert not alive(pid)
    assert [word for word, *_ in hand.journal()] == ["began", "ended"]


def test_a_pause_is_noted_when_the_capture_has_heard_of_it(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def looked_at(paths: StatePaths, name: str) -> ProcessStatus | None:
        asked.append(name)
        return read_role(paths, name)

    monkeypatch.setattr(reconcile, "read_role", looked_at)
    hand.started()
    paths = hand.plane.folders.of(hand.row()).state
    capture = StatusFile(paths.status("capture"), "capture")
    with lock.held(paths.lock("capture"), "to be a capture"):
        capture.write(ProcessState.RUNNING, {"doing": "streaming"}, force=True)
        hand.command(Command.PAUSE)
        until(lambda: len(asked) >= 3, "a capture that has not heard is looked at again")
        assert StateStore(hand.state() / "state.db").pace().log_paused
        assert hand.row().state is State.RUNNING
        capture.write(ProcessState.RUNNING, {"doing": "log paused"}, force=True)
        hand.reaches(State.PAUSED)


def test_a_pause_that_is_taken_back_before_it_was_noted_leaves_nothing_paused(hand: Hand) -> None:
    hand.started()
    paths, pace = hand.plane.folders.of(hand.row()).state, StateStore(hand.state() / "state.db")
    capture = StatusFile(paths.status("capture"), "capture")
    with lock.held(paths.lock("capture"), "to be a capture"):
        capture.write(ProcessState.RUNNING, {"doing": "streaming"}, force=True)
        hand.command(Command.PAUSE)
        until(lambda: pace.pace().log_paused, "that the pause is on its way")
        hand.command(Command.RESUME)
        until(lambda: not pace.pace().log_paused, "that it is taken back", 10)
        hand.reaches(State.RUNNING)


def test_a_pause_does_not_wait_for_a_capture_that_was_killed(hand: Hand) -> None:
    hand.started()
    paths = hand.plane.folders.of(hand.row()).state
    capture = StatusFile(paths.status("capture"), "capture")
    capture.write(ProcessState.RUNNING, {"doing": "streaming"}, force=True)
    hand.command(Command.PAUSE)
    hand.reaches(State.PAUSED)


def test_one_that_is_paused_before_it_has_begun_begins_paused(hand: Hand) -> None:
    hand.deploy()
    hand.command(Command.START)
    hand.command(Command.PAUSE)
    hand.reaches(State.PAUSED)
    assert StateStore(hand.state() / "state.db").pace().log_paused


def test_a_killed_process_comes_back_and_says_why(hand: Hand) -> None:
    pid = hand.started()
    os.kill(pid, signal.SIGKILL)
    # In this order: the state is that of the first one until it is buried.
    until(lambda: hand.pid() not in (0, pid) and hand.row().state is State.RUNNING, "another")
    assert [word for word, *_ in hand.journal()] == ["began", "began"]


def test_one_that_crashes_again_and_again_is_given_up_with_its_last_words(hand: Hand) -> None:
    hand.deploy(fault="crash")
    hand.command(Command.START)
    row = hand.reaches(State.FAILED)
    assert "ended 3 times in a row" in row.reason
    assert "exit code 70" in row.reason
    assert "simulated: the last words" in row.reason
    assert row.desired is Desired.STOPPED
    assert len(hand.journal()) == 3


@req("C-2")
def test_an_error_for_a_person_is_not_tried_again(hand: Hand) -> None:
    hand.deploy(fault="fail")
    hand.command(Command.START)
    row = hand.reaches(State.FAILED)
    assert row.reason == "simulated: the slot is gone. Next step: resync."
    assert len(hand.journal()) == 1

    hand.deploy()
    hand.command(Command.START)
    assert hand.reaches(State.RUNNING).reason == ""


@req("C-3")
def test_an_error_that_time_heals_is_tried_without_end(hand: Hand) -> None:
    hand.deploy(fault="retry")
    hand.command(Command.START)
    until(lambda: len(hand.journal()) > 5, "many tries")
    row = hand.row()
    assert row.state is State.STARTING
    assert "started again: simulated: the server is away" in row.reason
    hand.command(Command.STOP)
    hand.reaches(State.STOPPED)
    tries = len(hand.journal())
    assert hand.pid() == 0
    hand.command(Command.START)
    until(
        lambda: len(hand.journal()) > tries, "the next try, which does not wait for what was before"
    )


@req("C10")
def test_an_error_that_time_heals_is_tried_for_as_long_as_was_asked_for(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = [0.0]
    monkeypatch.setattr(hand.plane.reconciler, "_clock", lambda: time.monotonic() + passed[0])
    hand.deploy(fault="retry", retry={"for_s": 3_600})
    hand.command(Command.START)
    until(lambda: len(hand.journal()) > 2, "some tries")
    assert hand.row().state is State.STARTING
    passed[0] = 3_600.0
    row = hand.reaches(State.FAILED)
    assert row.desired is Desired.STOPPED
    assert "(retry.for_s is 3600); last: simulated: the server is away." in row.reason

    hand.deploy(retry={"for_s": 3_600})
    hand.command(Command.START)
    assert hand.reaches(State.RUNNING).reason == ""


@req("C-3")
def test_a_stop_ends_what_waits_for_its_next_attempt_at_once(tmp_path: Path) -> None:
    patient = Limits(RestartPolicy(first_s=3_600, longest_s=3_600), stop_s=3_600)
    try:
        with running(tmp_path, limits=patient) as hand:
            hand.deploy(fault="retry")
            hand.command(Command.START)
            until(lambda: "started again" in hand.row().reason, "the first attempt")
            hand.command(Command.STOP)
            row = hand.reaches(State.STOPPED)
            assert row.reason == ""
            assert len(hand.journal()) == 1
            # A start does not wait for the rest of the pause either.
            hand.command(Command.START)
            until(lambda: len(hand.journal()) == 2, "the second attempt")
    finally:
        end_everything(tmp_path)


def test_one_that_does_not_hear_is_killed_in_time(tmp_path: Path) -> None:
    try:
        with running(tmp_path, limits=Limits(stop_s=0.5)) as hand:
            pid = hand.started(fault="deaf")
            hand.command(Command.STOP)
            hand.reaches(State.STOPPED)
            assert not alive(pid)
    finally:
        end_everything(tmp_path)


@req("C-6")
def test_a_new_configuration_is_taken_up_by_the_next_process(hand: Hand) -> None:
    first = hand.started()
    before = hand.row()
    StateStore(hand.state() / "state.db").set_pace(delay_s=7.0)
    hand.deploy(apply={"trigger_s": 2})
    until(
        lambda: hand.row().state is State.RUNNING and hand.pid() not in (0, first),
        "the next process",
    )
    assert [(word, revision) for word, _, revision in hand.journal()] == [
        ("began", "1"),
        ("ended", "1"),
        ("began", "2"),
    ]
    assert (hand.row().generation, hand.row().revision) == (1, 2), "its place is the same"
    root = hand.state().parent
    assert [path.name for path in root.glob("config-*")] == ["config-2.json"]
    # Generation, folder and what is kept in it are those of before.
    assert (hand.row().generation, hand.row().revision) == (before.generation, before.revision + 1)
    assert StateStore(hand.state() / "state.db").pace().delay_s == 7.0
    assert json.loads((root / "config-2.json").read_text())["apply"] == {"trigger_s": 2}


@req("C104", "C80")
def test_each_generation_has_a_folder_of_its_own(hand: Hand) -> None:
    hand.deploy()
    row = hand.row()
    folder = hand.plane.folders.of(row)
    assert folder.root == hand.plane.settings.state / "replicators" / "default" / "shop" / "1"
    with hand.plane.writing() as writer:
        writer.put_namespace("sales")
        other, _ = writer.deploy("sales", "shop", {}, "/")
    assert hand.plane.folders.of(other).root != folder.root


@req("C17")
def test_a_deleted_one_leaves_nothing_and_its_successor_starts_clean(hand: Hand) -> None:
    pid = hand.started()
    root = hand.state().parent
    hand.command(Command.DELETE, leave_source=True)
    until(hand.gone, "its end")
    assert not alive(pid)
    assert not root.exists()
    assert not (hand.plane.folders.replicators / "default").exists()

    row = hand.deploy()
    assert row.generation == 2
    assert row.state is State.DEPLOYED
    hand.command(Command.START)
    hand.reaches(State.RUNNING)
    assert len(hand.journal()) == 1


def test_one_whose_source_is_away_stays_until_people_let_go_of_it(hand: Hand) -> None:
    """Its slot would keep the source's log for ever, so it is not forgotten in silence."""
    hand.deploy(
        source={
            "type": "postgres",
            "url": "postgresql://u@127.0.0.1:1/x?connect_timeout=2",
            "tables": ["a.*"],
        }
    )
    hand.command(Command.START)
    hand.reaches(State.RUNNING)
    (hand.state() / "changelog").mkdir()
    hand.command(Command.DELETE)
    until(lambda: hand.row().reason, "the reason")
    assert hand.row().state is State.DELETING
    hand.command(Command.DELETE, leave_source=True)
    until(hand.gone, "its end")


def test_one_that_never_ran_goes_whoever_has_asked_for_its_requests(hand: Hand) -> None:
    """Nothing is at its source, which may not even be reached."""
    away = "postgresql://u@127.0.0.1:1/x?connect_timeout=2"
    hand.deploy(source={"type": "postgres", "url": away, "tables": ["a.*"]})
    with opened(hand.plane, "default", "shop") as requests:
        assert requests.all() == []
    hand.command(Command.DELETE)
    until(hand.gone, "its end")


def test_a_process_of_a_generation_that_is_gone_is_ended(hand: Hand) -> None:
    pid = hand.started()
    file = hand.plane.folders.of(hand.row()).file(1)
    left = hand.state().parent.parent / "7"
    left.mkdir()
    stray = processes.start(
        hand.plane.settings.launch(file), left, 1, left / "run.log", environment()
    )
    until(lambda: not stray.lives(), "its end")
    assert alive(pid)
    assert hand.row().state is State.RUNNING


def test_replicators_that_another_database_knows_are_left_alone(tmp_path: Path) -> None:
    """Somebody who names the wrong database must not end what runs."""
    try:
        with running(tmp_path) as hand:
            pid = hand.started()
        with running(tmp_path, f"sqlite:///{tmp_path / 'other.db'}") as hand:
            other = hand.started("other")
            until(lambda: hand.plane.reconciler._foreign, "a look at all processes")
            hand.command(Command.STOP, "other")
            hand.reaches(State.STOPPED, "other")
            assert not alive(other)
            assert alive(pid)
    finally:
        end_everything(tmp_path)


def test_a_control_plane_that_ends_leaves_its_replicators_and_the_next_one_adopts_them(
    tmp_path: Path,
) -> None:
    try:
        with running(tmp_path) as hand:
            pids = {name: hand.started(name) for name in ("a", "b")}
        assert all(map(alive, pids.values()))
        with running(tmp_path) as hand:
            for name, pid in pids.items():
                until(partial(adopted, hand, name, pid), "the adoption")
                assert [word for word, *_ in hand.journal(name)] == ["began"]
            # One that was adopted is looked after like a child.
            hand.command(Command.STOP, "a")
            hand.reaches(State.STOPPED, "a")
            os.kill(pids["b"], signal.SIGKILL)
            until(lambda: len(hand.journal("b")) == 2, "the restart")
            hand.reaches(State.RUNNING, "b")
    finally:
        end_everything(tmp_path)


def test_one_that_was_stopped_while_nobody_looked_is_ended_by_the_next(tmp_path: Path) -> None:
    """What is wanted is in the database; whoever comes next does it."""
    try:
        with running(tmp_path) as hand:
            pid = hand.started()
            hand.plane._stop.set()
            hand.plane._wake.set()
            hand.plane._threads[1].join()
            hand.command(Command.STOP)
            assert alive(pid)
        with running(tmp_path) as hand:
            hand.reaches(State.STOPPED)
            assert not alive(pid)
    finally:
        end_everything(tmp_path)


def test_one_that_nobody_can_look_after_holds_no_other_up(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = hand.plane.reconciler._launch

    def broken(file: Path) -> Sequence[str]:
        if file.parent.parent.name == "a":
            raise RuntimeError("nobody foresaw this")
        return launch(file)

    monkeypatch.setattr(hand.plane.reconciler, "_launch", broken)
    for name in ("a", "b"):
        hand.deploy(name)
        hand.command(Command.START, name)
    hand.reaches(State.RUNNING, "b")
    until(lambda: hand.row("a").reason, "the reason")
    assert hand.row("a").reason == "an unexpected RuntimeError"
    monkeypatch.undo()


def test_a_reason_goes_with_what_was_in_the_way(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.started()

    def fails(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(reconcile, "shorten", fails)
    until(lambda: "Input/output error" in hand.row().reason, "the reason")
    version = hand.row().version
    monkeypatch.undo()
    until(lambda: not hand.row().reason, "that it goes")
    assert hand.row().state is State.RUNNING
    assert hand.row().version == version + 1


def test_no_more_than_some_load_at_the_same_time(tmp_path: Path) -> None:
    try:
        with running(tmp_path, limits=Limits(starting=2)) as hand:
            for name in ("a", "b", "c", "d"):
                hand.deploy(name, "mute")
                hand.command(Command.START, name)
            root = hand.plane.folders.replicators
            until(lambda: len(find(root)) == 2, "two")
            with hand.plane.writing() as writer:
                for name in ("a", "b"):
                    writer.command("default", name, Command.STOP)
            until(lambda: len(hand.journal("c") + hand.journal("d")) == 2, "the others")
            assert len(find(root)) <= 2
    finally:
        end_everything(tmp_path)
