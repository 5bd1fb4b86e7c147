"""The command line: help that teaches, exit codes, errors without tracebacks or secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace import __version__
from headrace.cli.main import app
from headrace.errors import ScnNotFound, SlotLost
from headrace.observe.status import ProcessState, StatusFile, describe_error
from headrace.replicator import config_file
from headrace.replicator.paths import StatePaths
from tests.requirements import req

COMMANDS = ("demo", "preflight", "run", "status", "dump", "verify", "tap", "version")


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


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "version"])
def test_each_command_shows_an_example(command: str) -> None:
    shown = call(command, "--help")

    assert shown.exit_code == 0
    assert "Example" in shown.stdout
    assert f"headrace {command}" in shown.stdout


def test_version() -> None:
    assert f"headrace {__version__}" in call("version").stdout


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


def test_status_shows_what_a_process_failed_of(file: Path) -> None:
    paths = StatePaths.of(config_file.load(file))
    error = SlotLost("slot s is gone.", next_step="resync.")
    StatusFile(paths.status("capture"), "capture").write(
        ProcessState.FAILED, error=describe_error(error), force=True
    )

    assert "SlotLost: slot s is gone." in call("status", str(file)).stdout
    role = json.loads(call("status", str(file), "--json").stdout)["roles"]["capture"]
    assert role["error"]["next_step"] == "resync."


def test_an_error_with_arguments_of_its_own_survives_the_status_file() -> None:
    from headrace.observe.status import restore_error

    restored = restore_error(describe_error(ScnNotFound(5, 10, 20)))

    assert isinstance(restored, ScnNotFound)
    assert "SCN 5" in restored.message


def test_a_dump_request_waits_in_the_state(file: Path) -> None:
    shown = call(
        "dump", str(file), "--table", "public.orders", "--keys", "17,1", "--keys", '"a,b",2'
    )

    assert shown.exit_code == 0
    assert "queued: request" in shown.stdout

    from headrace.state.store import Scope, StateStore

    (request,) = StateStore(StatePaths.of(config_file.load(file)).database).requests()
    assert request.scope is Scope.PRIMARY_KEYS
    assert request.keys == (("17", "1"), ("a,b", "2"))


def test_keys_of_all_tables_are_refused(file: Path) -> None:
    shown = call("dump", str(file), "--table", "all", "--keys", "1")

    assert shown.exit_code == 2
    assert "name the table" in shown.stderr


def test_the_demo_clears_no_folder_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()

    shown = call("demo", "--dir", str(tmp_path))

    assert shown.exit_code == 2
    assert (tmp_path / "precious").exists()
