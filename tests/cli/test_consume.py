"""``headrace consume``: a consumer as a process, its place, its failures, and a window that never works."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.client import read_dead_letters
from headrace.testing.relay import served
from tests.changelog.windows import TABLE, coverage, window
from tests.client.logs import LogFolder
from tests.faults.disks import FULL, into_full, on_a_full_disk
from tests.outputs.receiver import receiving
from tests.requirements import req
from tests.waiting import until

Write = Callable[[str], str]

CONSUMER = """
import json, os, pathlib
from headrace.client import Consumer, Result

class Lines(Consumer):
    def on_start(self):
        self.file = open("lines", "a", buffering=1)
    def on_stop(self):
        self.file.close()
    def on_data_event(self, event):
        if str(event.scn) in os.environ.get("POISON", "").split(","):
            with open("tries", "a") as tries:
                tries.write(f"{event.scn} ")
            raise ValueError("a secret value")
        self.file.write(f"{event.scn}:{event.ord}\\n")

class Fatal(Consumer):
    def on_data_event(self, event):
        return Result.ERROR_FATAL

class Needy(Consumer):
    def __init__(self, needed):
        pass

def made():
    return Lines()

thing = Lines()
other = 5
"""

_numbers = itertools.count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Put a module of its own name into the folder that commands are called in; return that name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(text: str) -> str:
        name = f"consumers_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def consume(*words: object, env: dict[str, str] | None = None) -> Result:
    called = ["consume", *map(str, words)]
    return CliRunner().invoke(app, called, catch_exceptions=False, env=env)


def simple(log: LogFolder, *scns: int) -> None:
    log.register(TABLE)
    log.append(*(window(scn) for scn in scns))


def written(folder: Path) -> list[str]:
    return (folder / "lines").read_text().split()


UP = ("--upto", "newest")
QUICK = (*UP, "--retries", "1")


@pytest.mark.parametrize("member", ["Lines", "made", "thing"])
def test_a_consumer_of_this_folder_gets_everything_and_goes_on_at_its_checkpoint(
    log, relay, module, tmp_path, member
):
    simple(log, 1, 2)
    what = f"{module(CONSUMER)}:{member}"
    words = (what, relay, *UP, "--checkpoint", "place")
    assert consume(*words).exit_code == 0
    assert written(tmp_path) == ["1:0", "1:1", "2:0", "2:1"]
    simple(log, 3)
    done = consume(*words)
    assert done.exit_code == 0
    assert written(tmp_path)[4:] == ["3:0", "3:1"]
    assert json.loads((tmp_path / "place").read_text())["place"] == "3"
    assert "1 window, 2 rows" in done.stderr


@req("D96", "D122")
def test_a_window_that_never_works_suspends_and_can_be_put_aside(log, relay, module, tmp_path):
    simple(log, 1, 2, 3, 4)
    what = f"{module(CONSUMER)}:Lines"
    poison = {"POISON": "2,4"}
    words = (what, relay, *QUICK, "--checkpoint", "place")

    stuck = consume(*words, env=poison)
    assert stuck.exit_code == 3
    assert (tmp_path / "tries").read_text().split() == ["2", "2"]
    assert "--skip-window 2 --dead-letters FOLDER" in stuck.stderr
    assert "secret" not in stuck.output
    assert stuck.stderr.lower().count("suspended") == 1
    assert written(tmp_path) == ["1:0", "1:1"]

    other = consume(*words, "--dead-letters", "aside", "--skip-window", "4", env=poison)
    assert other.exit_code == 3, "no window is passed but the one that was named"
    assert not (tmp_path / "aside").exists()

    skipping = ("--dead-letters", "aside", "--skip-window", "2")
    further = consume(*words, *skipping, env=poison)
    assert further.exit_code == 3, "only the window that was named is passed"
    assert "--skip-window 4 --dead-letters FOLDER" in further.stderr
    assert written(tmp_path)[2:] == ["3:0", "3:1"]
    assert [path.name for path in (tmp_path / "aside").iterdir()] == ["shop-2.blocks"]
    (block,) = read_dead_letters(tmp_path / "aside" / "shop-2.blocks")
    assert block.bodies[0].batch.num_rows == 2

    repaired = consume(*words)
    assert repaired.exit_code == 0, "the same command resumes"
    assert written(tmp_path)[4:] == ["4:0", "4:1"]


def test_a_suspension_is_said_once_by_the_command_as_people_start_it(log, relay, module, tmp_path):
    simple(log, 1, 2)
    name = module(CONSUMER)
    done = subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", "consume", f"{name}:Lines", relay, *QUICK],
        env=os.environ | {"POISON": "2"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3
    assert done.stderr.lower().count("suspended") == 1
    # Why it was delivered again, and why it ended.
    assert done.stderr.count("on_data_event of the consumer failed at 2:0") == 2


def test_a_window_that_works_after_all_is_not_put_aside(log, relay, module, tmp_path):
    simple(log, 1, 2)
    words = (f"{module(CONSUMER)}:Lines", relay, *QUICK)
    done = consume(*words, "--dead-letters", "aside", "--skip-window", "2")
    assert done.exit_code == 0
    assert written(tmp_path) == ["1:0", "1:1", "2:0", "2:1"]
    assert not (tmp_path / "aside").exists()


def test_a_consumer_that_wants_an_end_gets_it(log, relay, module):
    simple(log, 1)
    done = consume(f"{module(CONSUMER)}:Fatal", relay)
    assert done.exit_code == 2
    assert "FatalResult" in done.stderr


def test_who_fell_off_is_suspended_with_the_next_step(log, relay, module, tmp_path):
    simple(log, 5)
    (tmp_path / "place").write_text('{"place": "999"}')
    module(CONSUMER)
    done = consume("noop", relay, "--checkpoint", "place", "--patience", 0.2)
    assert done.exit_code == 3
    assert "ScnNotFound" in done.stderr
    assert "next step" in done.stderr
    assert "--skip-window" not in done.stderr


def test_a_consumer_that_keeps_its_own_place_is_asked_for_it(log, relay, module, tmp_path):
    simple(log, 1, 2)
    name = module(
        CONSUMER
        + """
from headrace.client import SqlCheckpoints
class Own(Lines):
    def __init__(self):
        self.checkpoints = SqlCheckpoints("sqlite:///own.db", "own")
"""
    )
    assert consume(f"{name}:Own", relay, *UP).exit_code == 0
    simple(log, 3)
    assert consume(f"{name}:Own", relay, *UP).exit_code == 0
    assert written(tmp_path) == [f"{scn}:{n}" for scn in (1, 2, 3) for n in (0, 1)]
    refused = consume(f"{name}:Own", relay, *UP, "--checkpoint", "place")
    assert refused.exit_code == 2
    assert "--checkpoint" in refused.stderr


@req("H18")
def test_outputs_are_known_by_name(log, relay, module, tmp_path):
    simple(log, 1, 2)
    module(CONSUMER)
    assert consume("noop", relay, *UP).exit_code == 0
    # Nothing is discarded because somebody forgot to say where to.
    assert consume(relay, *UP).exit_code == 2
    ndjson = consume("ndjson", relay, *UP, "--to", "changes", "--checkpoint", "place")
    assert ndjson.exit_code == 0
    lines = [json.loads(line) for line in (tmp_path / "changes").read_text().splitlines()]
    assert [(line["scn"], line.get("ord")) for line in lines] == [
        *((1, 0), (1, 1), (1, None), (2, 0), (2, 1), (2, None))
    ]


@req("H16")
def test_rows_are_there_for_sql_after_one_command(log, relay, module, tmp_path):
    simple(log, 1, 2)
    module(CONSUMER)
    environment = {"COPY": "duckdb:copy.duckdb"}
    sql = consume("sql", relay, *UP, "--to", "env:COPY", env=environment)
    assert sql.exit_code == 0, sql.output
    import duckdb

    with duckdb.connect("copy.duckdb") as connection:
        table = f'"{TABLE.table.schema}"."{TABLE.table.name}"'
        assert connection.execute(f"SELECT k FROM {table} ORDER BY k").fetchall() == [(0,), (1,)]
        places = connection.execute("SELECT consumer, place FROM headrace.places").fetchall()
        assert places == [("shop-copy", "2")]
    sqlite = consume("sql", relay, *UP, "--to", "sqlite:copy.sqlite")
    assert sqlite.exit_code == 0, sqlite.output
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect("copy.sqlite")) as file:
        assert file.execute(f'SELECT k FROM "{TABLE.table}" ORDER BY k').fetchall() == [(0,), (1,)]


def test_a_webhook_is_signed_with_the_secret_of_the_environment(log, relay, module, tmp_path):
    simple(log, 1)
    module(CONSUMER)
    with receiving() as hook:
        secret = {"HEADRACE_WEBHOOK_SECRET": "shared"}
        done = consume("http", relay, *UP, "--to", hook.url, env=secret)
        assert done.exit_code == 0, done.output
        ((_, headers, _),) = hook.calls
    assert headers["headrace-signature"].startswith("sha256=")
    assert "shared" not in done.output


def test_state_and_lag_are_said_while_it_runs_and_a_signal_ends_it(log, relay, tmp_path):
    simple(log, 1)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "headrace.cli.main", "consume", "ndjson", relay),
            *("--report", "0.1", "--checkpoint", str(tmp_path / "place")),
        ],
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "said").open("w"),
        text=True,
    )

    def said() -> str:
        return (tmp_path / "said").read_text()

    until(lambda: "up to date with SCN 1" in said(), "the first window")
    log.append(coverage(40))
    until(lambda: "up to date with SCN 40" in said(), "the coverage")
    process.send_signal(signal.SIGTERM)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [json.loads(line)["scn"] for line in shown.splitlines()] == [1, 1, 1]
    assert said().startswith("started") or "\nstarted" in said()
    assert said().splitlines()[-1].startswith("shutdown")
    assert json.loads((tmp_path / "place").read_text())["place"] == "40"


def test_lines_go_on_when_nobody_reads_any_more_what_is_said_beside_them(log, relay, tmp_path):
    simple(log, 1)
    reads, writes = os.pipe()
    with (tmp_path / "lines").open("w") as lines:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "headrace.cli.main", "consume", "ndjson", relay),
                *("--report", "0.1", "--checkpoint", str(tmp_path / "place")),
            ],
            stdout=lines,
            stderr=writes,
        )
    os.close(writes)
    with os.fdopen(reads) as said:
        until(lambda: "up to date with SCN 1" in said.readline(), "the first window")
    # Where it speaks to once it has met that.
    spoken = Path(f"/proc/{process.pid}/fd/2")
    until(lambda: not spoken.parent.exists() or spoken.readlink() == Path(os.devnull), "a report")
    simple(log, 2)
    until(lambda: json.loads((tmp_path / "place").read_text())["place"] == "2", "the second")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    shown = (tmp_path / "lines").read_text().splitlines()
    assert [json.loads(line)["scn"] for line in shown] == [1, 1, 1, 2, 2, 2]


@on_a_full_disk
def test_a_suspension_ends_it_where_there_is_no_room_to_say_so(log, relay, module, tmp_path):
    simple(log, 1)
    called = ["consume", f"{module(CONSUMER)}:Lines", relay, "--report", "0.1"]
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "headrace.cli.main", *called],
            env=os.environ | {"POISON": "1"},
            cwd=tmp_path,
            stderr=full,
            timeout=60,
            check=False,
        )
    assert done.returncode == 3


@on_a_full_disk
def test_an_output_says_itself_why_it_failed(log, relay, tmp_path):
    simple(log, 1)
    words = ["ndjson", relay, *QUICK, "--checkpoint", str(tmp_path / "place")]
    done = into_full("consume", *words)
    assert done.returncode == 3
    assert "TargetUnwritable: The standard output cannot be written: No space left" in done.stderr
    assert "next step make room on its file system" in done.stderr


def test_who_was_started_without_a_standard_error_consumes_all_the_same(log, relay, tmp_path):
    simple(log, 1)
    words = ["ndjson", relay, *UP, "--checkpoint", str(tmp_path / "place")]
    command = [sys.executable, "-m", "headrace.cli.main", "consume", *words]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *command],
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)


def test_a_relay_that_went_away_is_said(log, tmp_path):
    simple(log, 1)
    with served({"shop": log.folder}, heartbeat_s=0.1) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "consume", "noop", url, "--report", "0.1"],
            stderr=(tmp_path / "said").open("w"),
        )
        until(lambda: "up to date" in (tmp_path / "said").read_text(), "everything")
    try:
        until(lambda: "no relay answers" in (tmp_path / "said").read_text(), "the lost relay")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{}:Nobody",), "no 'Nobody'"),
        (("{}:Needy",), "raised TypeError"),
        (("{}:other",), "is no headrace.client.Consumer"),
        (("{}_nowhere:Lines",), "cannot be imported"),
        (("kafka",), "'kafka' is none of ndjson, http, sql, noop"),
        (("http",), "needs to know where"),
        (("sql",), "needs to know where"),
        (("sql", "--to", "oracle://u:swordfish@h/d"), "neither an SQLite file, nor a DuckDB file"),
        (("sql", "--to", "env:NOT_SET"), "NOT_SET"),
        (("noop", "--to", "x"), "--to says nothing"),
        (("{}:Lines", "--to", "x"), "--to says nothing"),
        (("noop", "--skip-window", "5"), "--dead-letters"),
        (("noop", "--on-lost", "cry"), "--on-lost"),
        (("noop", "--from", "yesterday"), "--from"),
    ],
)
def test_what_cannot_be_run_is_an_error_with_a_next_step(log, relay, module, words, said):
    simple(log, 1)
    what, *rest = (word.format(module(CONSUMER)) for word in words)
    done = consume(what, relay, *UP, *rest)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "next step" in done.stderr
    assert "swordfish" not in done.output
    assert "Traceback" not in done.output


def test_a_module_that_is_broken_is_told_by_the_kind_of_its_fault_alone(log, relay, module):
    simple(log, 1)
    done = consume(
        f"{module('raise ValueError(chr(115) + chr(119) + chr(111) + chr(114))')}:A", relay
    )
    assert done.exit_code == 2
    assert "raised ValueError" in done.stderr
    assert "swor" not in done.output
