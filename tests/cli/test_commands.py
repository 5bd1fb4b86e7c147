"""The command line: help that teaches, exit codes, errors without tracebacks or secrets."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import asdict
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from headrace import __version__
from headrace.cli.behind_view import behind_line
from headrace.cli.main import app
from headrace.errors import ControlUnavailable, PreflightFailed, ScnNotFound, SlotLost
from headrace.observe.status import ProcessState, ProcessStatus, StatusFile, describe_error
from headrace.replicator import config_file, lock, runner
from headrace.replicator.paths import StatePaths
from headrace.replicator.requests import Requests, Shown
from headrace.replicator.resync import Resync
from headrace.replicator.run import note_end
from headrace.state.store import RequestState, Scope, StateStore
from headrace.testing.standing import standing
from tests.requirements import req

COMMANDS = (
    "demo",
    "tables",
    "assess",
    "preflight",
    "run",
    "relay",
    "tail",
    "consume",
    "status",
    "dump",
    "log",
    "schema",
    "verify",
    "resync",
    "maintain",
    "export",
    "tap",
    "serve",
    "deploy",
    "start",
    "stop",
    "pause",
    "resume",
    "rewind",
    "delete",
    "replicators",
    "logs",
    "audit",
    "draft",
    "namespace",
    "dead-letters",
    "group",
    "version",
)
STEERING = (
    *(f"dump {name}" for name in ("start", "list", "show", "pause", "resume", "cancel")),
    *(f"dead-letters {name}" for name in ("list", "show", "replay", "discard")),
    "dump prioritise",
    "dump pace",
    "log pause",
    "log resume",
    "log pace",
    "log retain",
    "schema diff",
    *(f"draft {name}" for name in ("put", "list", "show", "tables", "assess", "delete")),
    *(f"namespace {name}" for name in ("list", "make", "delete")),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(
        "name: shop\n"
        "source: {type: postgres, tables: ['public.*'],\n"
        # Port 1 of this machine: nobody answers there.
        "  url: 'postgresql://user:swordfish@127.0.0.1:1/db?connect_timeout=2'}\n"
        "target: {type: delta, path: ./lake}\n"
    )
    return path


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_help_lists_every_command() -> None:
    shown = call("--help")

    assert shown.exit_code == 0
    for command in COMMANDS:
        assert command in shown.stdout


@pytest.mark.parametrize("command", [*(c for c in COMMANDS if c != "version"), *STEERING])
def test_each_command_shows_an_example(command: str) -> None:
    shown = call(*command.split(), "--help")

    assert shown.exit_code == 0
    assert "Example" in shown.stdout
    assert f"headrace {command}" in shown.stdout


def test_paragraphs_of_help_end_where_the_terminal_does() -> None:
    runner = CliRunner(env={"COLUMNS": "60", "TERMINAL_WIDTH": "60"})
    for words in (["run"], ["dump", "start"], ["source", "triggers", "install"]):
        shown = runner.invoke(app, [*words, "--help"]).output.partition("Options")[0]
        said = [line.rstrip() for line in shown.splitlines() if line.startswith(" ")]
        for line, following in pairwise(said):
            if line.strip() and following[1:2].strip() and line[1:2].strip():
                # The next word would not have had room.
                assert len(line) + 1 + len(following.split()[0]) >= 59, line


def test_version_is_listed_behind_all_groups() -> None:
    shown = call("--help").stdout
    groups = [shown.index(f"│ {name} ") for name in ("dump", "log", "schema", "tap")]
    assert shown.index("│ version ") > max(groups)
    assert shown.index("│ demo ") < min(groups)


@pytest.mark.parametrize("word", ["version", "--version"])
def test_version(word: str) -> None:
    assert f"headrace {__version__}" in call(word).stdout


def test_versions_of_what_is_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = metadata.version

    def light(package: str) -> str:
        if package == "pyspark":
            raise metadata.PackageNotFoundError(package)
        return installed(package)

    monkeypatch.setattr(metadata, "version", light)
    shown = call("version", "--json")
    assert shown.exit_code == 0
    assert {"headrace", "pyarrow"} <= json.loads(shown.stdout).keys()
    assert "pyspark" not in shown.stdout


def test_a_rewind_takes_a_file_of_any_name(file: Path) -> None:
    shown = call("rewind", str(file.rename(file.with_name("shop.conf"))), "--to", "5")
    assert shown.exit_code == 2
    assert "No frontier is kept" in shown.stderr


def test_a_comparison_of_no_table_is_not_called_equal(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = SimpleNamespace(tables=list)
    monkeypatch.setattr(runner, "open_database", lambda _config: empty)
    shown = call("verify", str(file), "--json")
    assert shown.exit_code == 2
    assert "source.tables matches no table" in shown.stderr
    assert not shown.stdout


@req("C75")
@pytest.mark.parametrize("command", ["preflight", "run", "status", "verify"])
def test_a_bad_file_is_an_error_with_a_next_step(command: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: shop\nsourse: {}\n")

    shown = call(command, str(bad))

    assert shown.exit_code == 2
    assert "ConfigError" in shown.stderr
    assert "did you mean source?" in shown.stderr
    assert "next step" in shown.stderr
    assert "Traceback" not in shown.output


@req("C70")
@pytest.mark.parametrize("command", ["preflight", "run", "verify"])
def test_an_unreachable_server_is_named_without_the_password(command: str, file: Path) -> None:
    shown = call(command, str(file))

    assert shown.exit_code == 2
    assert "SourceUnavailable" in shown.stderr
    assert "next step" in shown.stderr
    assert "swordfish" not in shown.output


def test_debug_shows_the_error_whole(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DEBUG", "1")
    file.write_text("name: shop\n")

    with pytest.raises(Exception, match="problems"):
        call("status", str(file))


def test_status_works_before_anything_ran(file: Path) -> None:
    shown = call("status", str(file), "--json")

    assert shown.exit_code == 0
    value = json.loads(shown.stdout)
    assert (value["name"], value["tables"], value["frontier_scn"]) == ("shop", [], 0)


def test_status_of_what_was_never_started_says_how_to(file: Path) -> None:
    said = " ".join(call("status", str(file)).stdout.split())
    assert said.endswith(f"never started; headrace run {file} starts it")
    assert "starting" not in said
    paths = StatePaths.of(config_file.load(file))
    with lock.held(paths.lock("run"), "headrace run"):
        StatusFile(paths.status("run"), "run").write(ProcessState.RUNNING)
        said = call("status", str(file)).stdout
        assert "never started" not in said
        assert "without a word" not in said
    # As a run leaves it that was killed before it had begun a process.
    said = " ".join(call("status", str(file)).stdout.split())
    assert said.endswith(f"before its processes began; headrace run {file} starts it again")


def test_status_says_of_what_a_run_failed_before_it_had_processes(file: Path) -> None:
    error = PreflightFailed("wal_level is replica.", next_step="set it to logical.")
    note_end(config_file.load(file), error)
    said = " ".join(call("status", str(file)).stdout.split())
    assert "run: PreflightFailed: wal_level is replica." in said
    assert "next step: set it to logical." in said


def test_status_does_not_count_failing_tables_as_up_to_date(file: Path) -> None:
    standing(config_file.load(file))
    said = " ".join(call("status", str(file)).stdout.split())
    assert "behind 0.0 s, 0 changes, failing tables unknown" in said


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ([], ""),
        ([(35.2, 12), (7.0, 3)], ", failing tables 35.2 s, 15 changes"),
        ([(35.2, 12), (None, 0)], ", failing tables at least 35.2 s, 12 changes"),
        ([(0.0, 0)], ", failing tables unknown"),
    ],
)
def test_failing_tables_are_behind_by_themselves(
    failing: list[tuple[float | None, int]], said: str
) -> None:
    assert behind_line(0.0, 0, failing, is_heard=True) == f"behind 0.0 s, 0 changes{said}"


def test_status_shows_what_a_process_failed_of(file: Path) -> None:
    paths = StatePaths.of(config_file.load(file))
    error = SlotLost("slot s is gone.", next_step="resync.")
    StatusFile(paths.status("capture"), "capture").write(
        ProcessState.FAILED, error=describe_error(error), force=True
    )

    assert "SlotLost: slot s is gone." in call("status", str(file)).stdout
    role = json.loads(call("status", str(file), "--json").stdout)["roles"]["capture"]
    assert role["error"]["next_step"] == "resync."


def test_status_says_when_a_process_is_gone_and_for_how_long(file: Path) -> None:
    """What a killed process said last is not how things are: nobody holds its lock."""
    config = config_file.load(file)
    standing(config)
    paths = StatePaths.of(config)
    said = {**asdict(ProcessStatus("capture", 7, ProcessState.RUNNING, 0)), "state": "running"}
    said["updated_us"] = time.time_ns() // 1000 - 3 * 3_600_000_000
    paths.status("capture").write_text(json.dumps(said))

    shown = call("status", str(file)).stdout
    assert "behind at least 0.0 s" in shown
    assert "capture is not running: it ended without a word, and spoke last 3 h ago" in shown
    assert "apply is not running" in shown
    told = json.loads(call("status", str(file), "--json").stdout)
    assert {name: role["state"] for name, role in told["roles"].items()} == {
        "capture": "gone",
        "apply": "gone",
    }
    assert "3 h ago" in told["unheard"]
    with lock.held(paths.lock("capture"), "capture"):
        assert "capture runs, and spoke last 3 h ago" in call("status", str(file)).stdout


def test_an_error_with_arguments_of_its_own_survives_the_status_file() -> None:
    from headrace.observe.status import restore_error

    restored = restore_error(describe_error(ScnNotFound(5, 10, 20)))

    assert isinstance(restored, ScnNotFound)
    assert "SCN 5" in restored.message


def test_a_dump_that_is_queued_is_told_of_where_it_cannot_be_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Requests, request: str) -> Shown:
        raise ControlUnavailable(f"No answer of {request}.", next_step="none.")

    words = ("--table", "public.orders", "--json")
    with monkeypatch.context() as patched:
        patched.setattr(Requests, "show", away)
        refused = call("dump", "start", str(file), *words)
    assert refused.exit_code == 2
    queued = json.loads(call("dump", "list", str(file), "--json").stdout)
    assert f"queued: request {queued[0]['request']}" in refused.stderr


def asked(file: Path, *words: str) -> str:
    """Ask for a dump and return the request's name."""
    shown = call("dump", "start", str(file), *words)
    assert shown.exit_code == 0, shown.output
    return shown.stdout.removeprefix("queued: request ").strip()


@req("N02", "P56")
def test_a_dump_request_waits_in_the_state(file: Path) -> None:
    asked(file, "--table", "public.orders", "--keys", "17,1", "--keys", '"a,b",2')

    with closing(StateStore(StatePaths.of(config_file.load(file)).database)) as state:
        (request,) = state.requests()
    assert request.scope is Scope.PRIMARY_KEYS
    assert request.keys == (("17", "1"), ("a,b", "2"))
    assert request.state is RequestState.QUEUED


@pytest.mark.parametrize(
    "words",
    [
        ("--table", "public.orders", "--keys", "\udcff"),
        ("--table", "public.orders", "--where", "v = '\udcff'"),
        ("--table", "public.\udcff"),
    ],
)
def test_what_is_no_text_is_asked_of_no_database(file: Path, words: tuple[str, ...]) -> None:
    """Capture could not send it, and would end with it at each start."""
    shown = call("dump", "start", str(file), *words)
    assert shown.exit_code == 2
    assert "no text in UTF-8" in shown.stderr
    assert json.loads(call("dump", "list", str(file), "--all", "--json").stdout) == []


def test_keys_of_all_tables_are_refused(file: Path) -> None:
    shown = call("dump", "start", str(file), "--table", "all", "--keys", "1")

    assert shown.exit_code == 2
    assert "name the table" in shown.stderr


def test_an_empty_condition_is_refused(file: Path) -> None:
    """As of a variable that is not set: the whole table would be read."""
    shown = call("dump", "start", str(file), "--table", "public.orders", "--where", " ")
    assert shown.exit_code == 2
    assert "the condition is empty" in shown.stderr
    assert json.loads(call("dump", "list", str(file), "--all", "--json").stdout) == []


def test_a_priority_below_zero_is_no_option(file: Path) -> None:
    asked_for = asked(file, "--table", "public.orders")
    assert "priority -9" in call("dump", "prioritise", str(file), asked_for, "-9").stdout


@pytest.mark.parametrize(
    "words",
    [
        "activity",
        "activity --hours 3",
        "lineage",
        "logs --process apply",
        "dead-letters list",
        "dead-letters replay",
        "dead-letters discard",
    ],
)
def test_a_table_that_a_replicator_does_not_have_is_refused_with_the_nearest(
    file: Path, words: str
) -> None:
    *command, first = words.split(" --")[0].split()
    options = words.split()[len(command) + 1 :]
    asked = (*command, first, str(file), *options, "--table")
    # Nobody knows its tables before it has any.
    assert call(*asked, "public.order").exit_code == 0
    standing(config_file.load(file))
    assert call(*asked, "public.orders").exit_code == 0
    for name in ("public.order", "orders"):
        refused = call(*asked, name)
        assert refused.exit_code == 2
        assert f"UnknownTable: Replicator shop has no table {name}." in refused.stderr
        assert "did you mean public.orders" in refused.stderr


def test_what_is_held_back_and_kept_of_the_log_is_shown(file: Path) -> None:
    assert "log delivery: no limit\n" in call("log", "pace", str(file)).stdout
    call("log", "pace", str(file), "--rows-per-second", "5000")
    call("log", "pause", str(file))
    assert "at most 5,000 rows/s, paused" in call("log", "pace", str(file)).stdout
    told = json.loads(call("log", "pace", str(file), "--json").stdout)
    assert told == {"log_rows_per_s": 5000, "log_paused": True}
    kept = json.loads(call("log", "retain", str(file), "--seconds", "60", "--json").stdout)
    assert kept == {"retain_bytes": 1 << 30, "retain_s": 60}


@req("N08", "P08", "F7")
def test_requests_are_steered_and_shown(file: Path) -> None:
    first = asked(file, "--table", "public.orders")
    second = asked(file, "--table", "public.items", "--where", "qty > 1", "--priority", "4")

    assert f"paused: request {first}" in call("dump", "pause", str(file), first[:8]).stdout
    assert f"priority 9: request {second}" in (
        call("dump", "prioritise", str(file), second, "9").stdout
    )
    listed = json.loads(call("dump", "list", str(file), "--json").stdout)
    assert [(r["request"], r["state"], r["priority"], r["where"]) for r in listed] == [
        (first, "PAUSED", 0, None),
        (second, "QUEUED", 9, "qty > 1"),
    ]
    plain = call("dump", "list", str(file)).stdout
    assert "PAUSED" in plain
    assert "public.items where qty > 1" in plain

    assert f"resumed: request {first}" in call("dump", "resume", str(file), first).stdout
    cancelled = call("dump", "cancel", str(file), first).stdout
    assert f"cancelled: request {first}" in cancelled
    assert "incomplete: public.orders" in cancelled
    shown = call("dump", "show", str(file), first).stdout
    assert "CANCELLED" in shown
    assert (
        json.loads(call("dump", "show", str(file), first, "--json").stdout)["state"] == "CANCELLED"
    )
    assert first not in call("dump", "list", str(file)).stdout
    assert first in call("dump", "list", str(file), "--all").stdout
    late = call("dump", "pause", str(file), first)
    assert late.exit_code == 2
    assert "it has ended" in late.stderr


@req("N05", "N06", "P57", "F7")
def test_the_pace_of_dumps_is_set_shown_and_given_back(file: Path) -> None:
    shown = call("dump", "pace", str(file))
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["chunk_rows", "auto", "from", "the", "file"],
        ["chunk_s", "0.25", "from", "the", "file"],
        ["load", "0.25", "from", "the", "file"],
        ["delay_s", "0.0", "from", "the", "file"],
        ["rows_per_s", "no", "limit", "from", "the", "file"],
    ]
    call("dump", "pace", str(file), "--chunk-rows", "500", "--load", "0.1", "--delay", "0.2")
    more = call("dump", "pace", str(file), "--rows-per-second", "20000", "--json")
    assert json.loads(more.stdout) == {
        "chunk_rows": 500,
        "chunk_s": None,
        "load": 0.1,
        "delay_s": 0.2,
        "rows_per_s": 20_000,
    }
    assert ["load", "0.1", "set"] in [
        line.split() for line in call("dump", "pace", str(file)).stdout.splitlines()
    ]
    reset = call("dump", "pace", str(file), "--reset", "--chunk-rows", "auto", "--json")
    assert json.loads(reset.stdout) == {
        "chunk_rows": 0,
        "chunk_s": None,
        "load": None,
        "delay_s": None,
        "rows_per_s": None,
    }


@req("H19")
def test_the_pace_of_one_request_is_set_shown_and_given_back(file: Path) -> None:
    words = ("dump", "pace", str(file), "--request", asked(file, "--table", "all"))
    assert "as the others" in call(*words).stdout
    shown = call(*words, "--chunk-rows", "500", "--delay", "0.2")
    assert "chunk_rows 500, delay_s 0.2" in shown.stdout
    more = call(*words, "--rows-per-second", "20", "--json")
    assert json.loads(more.stdout) == {"chunk_rows": 500, "delay_s": 0.2, "rows_per_s": 20}
    assert json.loads(call(*words, "--reset", "--json").stdout)["chunk_rows"] is None
    refused = call(*words, "--load", "0.5")
    assert refused.exit_code == 2
    assert "leave --request out" in refused.stderr
    assert call("dump", "pace", str(file), "--request", "none").exit_code == 2


@pytest.mark.parametrize(
    "words", [("--chunk-rows", "many"), ("--chunk-rows", "0"), ("--load", "2")]
)
def test_a_pace_that_is_none_is_refused(file: Path, words: tuple[str, ...]) -> None:
    shown = call("dump", "pace", str(file), *words)
    assert shown.exit_code == 2
    assert "ConfigError" in shown.stderr
    assert "next step" in shown.stderr


@req("N07", "N08")
def test_log_delivery_is_paused_and_throttled_and_status_says_so(file: Path) -> None:
    call("dump", "list", str(file))
    assert "the source keeps its log" in call("log", "pause", str(file)).stdout
    assert "log delivery paused" in call("status", str(file)).stdout
    assert json.loads(call("status", str(file), "--json").stdout)["log_paused"] is True
    call("log", "resume", str(file))
    call("log", "pace", str(file), "--rows-per-second", "5000")
    assert "at most 5,000 rows/s" in call("status", str(file)).stdout
    call("log", "pace", str(file), "--rows-per-second", "0")
    assert "log delivery" not in call("status", str(file)).stdout


def test_the_demo_clears_no_folder_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()

    shown = call("demo", "--dir", str(tmp_path))

    assert shown.exit_code == 2
    assert (tmp_path / "precious").exists()


def test_a_resync_of_nothing_is_refused_and_an_order_is_kept_and_shown(file: Path) -> None:
    refused = call("resync", str(file))
    assert refused.exit_code == 2
    assert "captured nothing yet" in refused.output
    config = config_file.load(file)
    with closing(StateStore(StatePaths.of(config).database)) as store:
        store.write([lambda w: w.set("incarnation", "7/1")])
    for _ in range(2):
        assert "ordered" in call("resync", str(file)).stdout
    assert json.loads(call("status", str(file), "--json").stdout)["resync"]["state"] == "ordered"
    assert "resync ordered" in call("status", str(file)).stdout


@pytest.mark.parametrize("state", [ProcessState.RUNNING, ProcessState.STOPPED])
def test_a_resync_that_nothing_asks_for_is_refused_unless_it_is_forced(
    file: Path, state: ProcessState
) -> None:
    paths = StatePaths.of(config_file.load(file))
    paths.create()
    with closing(StateStore(paths.database)) as store:
        store.write([lambda w: w.set("incarnation", "7/1")])
    said = StatusFile(paths.status("capture"), "capture")
    said.write(state, force=True)
    with lock.held(paths.lock("capture"), "capture"):
        refused = call("resync", str(file))
        assert refused.exit_code == 2
        assert f"is {state.value} without an error" in refused.stderr
        assert json.loads(call("status", str(file), "--json").stdout)["resync"] == {}
        assert "ordered" in call("resync", str(file), "--force").stdout
        # Once it is ordered it may be ordered again.
        assert call("resync", str(file)).exit_code == 0


def test_a_resync_is_ordered_where_capture_needs_it_or_was_killed(file: Path) -> None:
    paths = StatePaths.of(config_file.load(file))
    paths.create()
    with closing(StateStore(paths.database)) as store:
        store.write([lambda w: w.set("incarnation", "7/1")])
    said = StatusFile(paths.status("capture"), "capture")
    for state in (ProcessState.RUNNING, ProcessState.FAILED):
        said.write(state, force=True)
        assert "ordered" in call("resync", str(file)).stdout
        with closing(StateStore(paths.database)) as store:
            store.write([Resync.done])


def test_status_says_resync_needed_and_what_the_slot_keeps(file: Path) -> None:
    paths = StatePaths.of(config_file.load(file))
    paths.create()
    slot = {"slot": "headrace_shop", "text": "slot headrace_shop keeps 1.0 GiB", "warning": ""}
    StatusFile(paths.status("capture"), "capture").write(
        ProcessState.FAILED,
        {"slot": slot},
        error=describe_error(SlotLost("Slot gone.", next_step="run `headrace resync FILE`")),
    )
    told = json.loads(call("status", str(file), "--json").stdout)
    assert told["resync"]["state"] == "needed"
    assert told["slot"] == slot
    shown = call("status", str(file)).stdout
    assert "RESYNC NEEDED: run `headrace resync FILE`" in shown
    assert "keeps 1.0 GiB" in shown


def test_status_says_that_spark_answers_nothing(file: Path) -> None:
    paths = StatePaths.of(config_file.load(file))
    paths.create()
    with lock.held(paths.lock("apply"), "apply"):
        StatusFile(paths.status("apply"), "apply").write(ProcessState.RUNNING, {"silent_s": 120.0})
        shown = call("status", str(file)).stdout
        told = json.loads(call("status", str(file), "--json").stdout)
    assert "Spark has answered nothing for 2 min" in shown
    assert told["held_up"].startswith("Spark has answered nothing for 2 min")


@req("D45")
def test_what_a_log_retains_is_shown_changed_and_given_back(file: Path) -> None:
    def said(*words: str) -> str:
        done = call("log", "retain", str(file), *words)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "1,073,741,824 bytes, and what is younger than 0 s" in said()
    assert "4,294,967,296 bytes" in said("--size", "4GiB")
    assert "4,294,967,296 bytes, and what is younger than 60 s" in said("--seconds", "60")
    assert "100 bytes, and what is younger than 0 s" in said("--reset", "--size", "100")
    assert "1,073,741,824 bytes" in said("--reset")
    for words, named in (
        (("--size", "much"), "--size: 'much' is no size"),
        (("--seconds", "-1"), "changelog.retain_s must lie between 0 and 1,000,000,000."),
        (("--size", "9000TiB"), "changelog.retain must lie between"),
    ):
        refused = call("log", "retain", str(file), *words)
        assert refused.exit_code == 2
        assert named in refused.stderr
    refused = call("log", "pace", str(file), "--rows-per-second", "-1")
    assert "rows per second of the log (log_rows_per_s) must lie between" in refused.stderr
    refused = call("dump", "pace", str(file), "--chunk-seconds", "61")
    assert "dump.chunk_s must lie between 0.001 and 60." in refused.stderr
