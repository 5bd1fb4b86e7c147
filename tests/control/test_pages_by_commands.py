"""Commands for pages of one replicator: dumps, pace, dead letters, runtime, row changes, and the tap, by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.cli.output import console
from headrace.cli.server import Server
from headrace.errors import ControlUnavailable
from headrace.observe.tap.teaching import Bookmark
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.paths import StatePaths
from headrace.replicator.tap import bookmark_file, tap_file
from tests.control.asking import OPERATOR, TOKENS, VIEWER, Asking, served
from tests.control.letters import put_letter
from tests.control.planes import config_of, end_everything, environment
from tests.control.taps import row_line, told
from tests.requirements import req
from tests.waiting import until

SHOP = "/v1/contexts/default/replicators/shop"


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    """Give a control plane that commands find, as an operator; its replicator shop is deployed."""
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
    monkeypatch.setenv("HEADRACE_TOKEN", OPERATOR.secret)
    try:
        with served(tmp_path, tokens=TOKENS) as (found, url):
            monkeypatch.setenv("HEADRACE_SERVER", url)
            deploy(url)
            yield found
    finally:
        end_everything(tmp_path)


def deploy(url: str, **tap: Any) -> None:
    config = config_of(tap={"enabled": True, **tap})
    Asking(url, OPERATOR.secret)("PUT", SHOP, {"config": config})


def paths_of(plane: ControlPlane) -> StatePaths:
    row = plane.store.replicator("default", "shop")
    return StatePaths.of(plane.folders.of(row).config(row))


@pytest.fixture(autouse=True)
def a_wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by the environment, which is read once: by the first test of the process that draws something.
    monkeypatch.setattr(console, "_width", 200)


def call(*words: str, fails: bool = False) -> Result:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert (done.exit_code == 2) is fails, done.output
    return done


def shown(*words: str) -> Any:
    return json.loads(call(*words, "--json").stdout)


@req("C67", "C76")
def test_dead_letters_are_looked_after_by_the_replicators_name(plane: ControlPlane) -> None:
    assert call("dead-letters", "list", "shop").stdout == "no dead letter waits\n"
    first, second = (put_letter(paths_of(plane), scn) for scn in (81, 90))
    assert [one["letter"] for one in shown("dead-letters", "list", "shop")] == [first, second]
    assert shown("dead-letters", "list", "shop", "--table", "public.other") == []
    assert shown("dead-letters", "show", "shop", first)["error"]["name"] == "MissingBase"
    seen = call("dead-letters", "show", "shop", first).stdout
    assert f"{first} waiting: 1 change, MissingBase: a row is missing." in seen
    assert "next step: see to it." in seen
    assert "secret-of-a-row" not in seen
    (row,) = map(
        json.loads, call("dead-letters", "show", "shop", first, "--rows").stdout.splitlines()
    )
    assert row["row"]["c1"] == "secret-of-a-row"
    assert "replaying by request" in call("dead-letters", "replay", "shop", first).stdout
    assert "discarded" in call("dead-letters", "discard", "shop", second).stdout
    ended = shown("dead-letters", "list", "shop", "--all")
    assert [one["state"] for one in ended] == ["replaying", "discarded"]
    assert first in call("dead-letters", "replay", "shop", "--table", "public.orders").stdout
    refused = call("dead-letters", "discard", "shop", first, fails=True).output
    assert "is being replayed by request" in refused
    assert "no dead letter public.orders@1" in call(
        *("dead-letters", "show", "shop", "public.orders@1"), fails=True
    ).output.replace("\n", " ")


def test_who_may_only_look_steers_no_letter(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = put_letter(paths_of(plane), 81)
    monkeypatch.setenv("HEADRACE_TOKEN", VIEWER.secret)
    assert [one["letter"] for one in shown("dead-letters", "list", "shop")] == [letter]
    for verb in ("replay", "discard"):
        assert "NotAllowed" in call("dead-letters", verb, "shop", letter, fails=True).output


@req("C76", "H19")
def test_dumps_are_asked_for_shown_and_steered_by_the_replicators_name(plane: ControlPlane) -> None:
    """And are told as beside the file, which names the same ones."""
    row = plane.store.replicator("default", "shop")
    beside = str(plane.folders.of(row).write(row))

    def same(*words: str) -> Any:
        one, *rest = words[2:]
        assert one == "shop"
        told = shown(*words)
        there = shown(*words[:2], beside, *rest)
        for each in (told, there):
            for request in each if isinstance(each, list) else [each]:
                # To the microsecond by the one, and as it is by the other.
                request.pop("created_s", None)
        assert told == there
        return told

    assert call("dump", "list", "shop").stdout == "no request waits\n"
    orders = ("dump", "start", "shop", "--table", "public.orders")
    some = shown(*orders, "--where", "id > 3", "--priority", "5")
    assert (some["scope"], some["where"], some["priority"]) == ("PREDICATE", "id > 3", 5)
    keys = shown(*orders, "--keys", "7", "--keys", "8", "--delete-missing")
    assert (keys["scope"], keys["keys"], keys["delete_missing"]) == ("PRIMARY_KEYS", 2, True)
    whole = shown("dump", "start", "shop", "--table", "all")
    assert (whole["scope"], whole["table"], whole["cause"]) == ("ALL_TABLES", None, "ASKED")
    refused = call("dump", "start", "shop", "--table", "all", "--where", "true", fails=True).output
    assert "belong to one table" in refused
    assert [one["request"] for one in same("dump", "list", "shop")] == [
        one["request"] for one in (some, keys, whole)
    ]
    name = some["request"]
    # By the beginning of its name, as beside the file.
    paused = call("dump", "pause", "shop", name[:12])
    assert "paused" in paused.stdout
    assert "shop does not run, so no request is carried out: headrace start shop" in paused.stderr
    assert same("dump", "show", "shop", name)["state"] == "PAUSED"
    assert "resumed" in call("dump", "resume", "shop", name).stdout
    assert "priority 9" in call("dump", "prioritise", "shop", name, "9").stdout
    own = ("dump", "pace", "shop", "--request", name)
    assert shown(*own, "--rows-per-second", "50")["rows_per_s"] == 50
    assert "rows_per_s 50" in call(*own).stdout
    assert (same("dump", "show", "shop", name)["priority"]) == 9
    assert "cancelled" in call("dump", "cancel", "shop", name).stdout
    assert len(same("dump", "list", "shop")) == 2
    assert len(same("dump", "list", "shop", "--all")) == 3
    ended = call("dump", "resume", "shop", name, fails=True).output
    assert "CANCELLED" in ended
    seen = call("dump", "show", "shop", keys["request"]).stdout
    assert "2 keys of public.orders, deleting missing ones" in seen

    call("dump", "pace", "shop", "--load", "0.5", "--chunk-rows", "auto")
    assert same("dump", "pace", "shop")["load"] == 0.5
    assert "load               0.5  set" in call("dump", "pace", "shop").stdout
    call("dump", "pace", "shop", "--reset")
    assert same("dump", "pace", "shop")["load"] is None


@req("C76", "H19")
def test_the_log_is_held_back_and_kept_by_the_replicators_name(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("log", "pace", "shop", "--rows-per-second", "5000")
    ask = Asking(os.environ["HEADRACE_SERVER"], OPERATOR.secret)
    assert ask.one(f"{SHOP}/api/v1/pace")["log_rows_per_s"] == 5000
    assert "at most 5,000 rows/s" in call("log", "pace", "shop").stdout
    assert "kept for late readers: 1,073,741,824 bytes" in call("log", "retain", "shop").stdout
    kept = call("log", "retain", "shop", "--size", "4GiB", "--seconds", "60").stdout
    assert "4,294,967,296 bytes, and what is younger than 60 s" in kept
    call("start", "shop", "--wait")
    call("log", "pause", "shop")
    ask.reaches("PAUSED")
    assert ask.one(f"{SHOP}/api/v1/pace")["log_paused"] is True
    held = call("dump", "start", "shop", "--table", "all").stderr
    assert "log delivery is paused, and dumps wait with it: headrace resume shop" in held
    call("log", "resume", "shop")
    ask.reaches("RUNNING")
    monkeypatch.setenv("HEADRACE_TOKEN", VIEWER.secret)
    for words in (("log", "pause", "shop"), ("dump", "start", "shop", "--table", "all")):
        assert "NotAllowed" in call(*words, fails=True).output


@req("C76", "N05", "D45")
def test_what_is_looked_up_where_the_control_plane_runs_is_shown_as_it_is_written(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment is not that of the command, which must not fail on what it only shows once it has set a value."""
    monkeypatch.setenv("LOAD", "0.1")
    monkeypatch.setenv("KEPT", "2GiB")
    config = config_of(dump={"load": "${env:LOAD}"}, changelog={"retain": "${env:KEPT}"})
    url = os.environ["HEADRACE_SERVER"]
    assert Asking(url, OPERATOR.secret)("PUT", SHOP, {"config": config}).status == 200
    pace = call("dump", "pace", "shop", "--delay", "0.5").stdout
    assert "delay_s            0.5  set" in pace
    assert "${env:LOAD}  from the file" in pace
    kept = call("log", "retain", "shop", "--seconds", "60").stdout
    assert "kept for late readers: ${env:KEPT} bytes, and what is younger than 60 s" in kept
    assert "4,096 bytes" in call("log", "retain", "shop", "--size", "4KiB").stdout


@req("C76", "N05", "N07", "D45")
@pytest.mark.parametrize(
    ("words", "unasked"),
    [
        (("dump", "pace", "shop", "--delay", "0.5"), "replicators/shop"),
        (("log", "retain", "shop", "--seconds", "60"), "replicators/shop"),
        (("log", "pause", "shop"), "replicators/shop/api/v1/pace"),
    ],
)
def test_a_command_that_cannot_show_what_it_sets_has_not_set_it(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], unasked: str
) -> None:
    asked, within = [], Server.within

    def refusing(self: Server, method: str, path: str, *more: Any, **query: Any) -> Any:
        asked.append(method)
        if (method, path) == ("GET", unasked):
            raise ControlUnavailable("It does not answer.", next_step="try again.")
        return within(self, method, path, *more, **query)

    monkeypatch.setattr(Server, "within", refusing)
    assert "ControlUnavailable" in call(*words, fails=True).output
    assert asked == ["GET"]


RUNTIME = {
    "show": ("runtime", "queue.pendingRequests"),
    "health": ("runtime/health", "status"),
    "status": ("runtime/status", "requests.activeCount"),
    "schemas": ("runtime/schemas", "stateStoreConfigured"),
    "schema-issues": ("runtime/schema-issues", "fullDumpRequiredSignals"),
    "metrics": ("metrics", "runtimeMeasurement.chunking.rowsRead"),
}


@req("C76", "H19")
def test_each_page_of_the_runtime_has_a_command(plane: ControlPlane) -> None:
    for command, (page, seen) in RUNTIME.items():
        asked = json.loads(call("api", f"{SHOP}/api/v1/{page}").stdout)
        assert shown("runtime", command, "shop").keys() == asked.keys()
        assert seen in call("runtime", command, "shop").stdout
        assert "no replicator nobody" in call("runtime", command, "nobody", fails=True).output


@req("C76")
def test_row_changes_that_the_tap_told_are_shown_and_counted(plane: ControlPlane) -> None:
    file = tap_file(paths_of(plane).tap)
    file.parent.mkdir(parents=True)
    lines = [
        row_line(0, "cdc", "public.orders", "INSERT", "1"),
        row_line(1, "cdc", "public.items", "DELETE", "7"),
        row_line(2, "cdc", "public.orders", "UPDATE", "2"),
    ]
    file.write_text("".join(f"{line}\n" for line in lines))
    newest = shown("runtime", "events", "shop", "--limit", "2")["events"]
    assert [one["primaryKey"] for one in newest] == ["2", "7"]
    of_one = shown("runtime", "events", "shop", "--table", "public.orders")["events"]
    assert [one["primaryKey"] for one in of_one] == ["2", "1"]
    drawn = call("runtime", "events", "shop", "--table", "public.orders").stdout
    assert [line.split()[0] for line in drawn.splitlines()] == [
        "events",
        "stageLabel",
        *["SOURCE_LOG"] * 2,
    ]
    assert shown("runtime", "events", "shop", "--counts")["totalEvents"] == 3


@req("H20", "C76")
def test_a_tap_is_followed_by_the_replicators_name_and_its_lines_are_taken(
    plane: ControlPlane,
) -> None:
    assert shown("tap", "listeners", "shop")["mode"] == "record"
    deploy(os.environ["HEADRACE_SERVER"], teach=True)
    paths = paths_of(plane)
    file = tap_file(paths.tap)
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [told(seq) for seq in range(3)]
    file.write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "headrace.cli.main", "tap", "shop", "--raw", "--all"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert [process.stdout.readline().rstrip("\n") for _ in lines] == lines
        taken = Bookmark(bookmark_file(paths.tap))
        until(lambda: taken.get("run") == 2, "the last line is taken")
        (listener,) = shown("tap", "listeners", "shop")["listeners"]
        assert (listener["sent"], listener["dropped"]) == (3, 0)
    finally:
        process.kill()
        process.wait(30)
    assert "mode" in call("tap", "listeners", "shop").stdout
    assert "--once is for the file" in call("tap", "shop", "--once", fails=True).output
