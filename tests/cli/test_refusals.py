"""Commands that the system refuses something: an exit code and a line, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from tests.faults.disks import FULL, on_a_full_disk


def called(*words: str, **where: object) -> subprocess.CompletedProcess[str]:
    """Run a command as people do."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment, **where}
    command = [sys.executable, "-m", "headrace.cli.main", *words]
    return subprocess.run(command, text=True, check=False, **given)  # type: ignore[call-overload]


@on_a_full_disk
@pytest.mark.parametrize("unbuffered", [{}, {"PYTHONUNBUFFERED": "1"}])
@pytest.mark.parametrize("words", [["--help"], ["version"], ["version", "--json"]])
def test_an_output_without_room_is_said_and_an_error(
    words: list[str], unbuffered: dict[str, str]
) -> None:
    with FULL.open("w", encoding="utf-8") as full:
        done = called(*words, stdout=full, env={**os.environ, **unbuffered})
    assert done.returncode == 2
    assert "There is no room for what the command writes" in done.stderr
    assert "next step" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@on_a_full_disk
def test_an_error_without_room_for_its_words_is_an_error_all_the_same() -> None:
    with FULL.open("w", encoding="utf-8") as full:
        assert called("status", "nowhere.yaml", stdout=full, stderr=full).returncode == 2


@pytest.mark.parametrize("words", ["version", "version --json", "--help"])
def test_an_output_that_is_closed_is_said_and_an_error(words: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m headrace.cli.main {words} >&-"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "The output of the command is closed" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_error_of_who_has_no_output_at_all_is_an_error_all_the_same() -> None:
    closed = f"exec {sys.executable} -m headrace.cli.main status nowhere.yaml >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", closed], check=False).returncode == 2


def test_a_reader_that_has_gone_ends_a_command_without_a_word() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = called("version", stdout=writes)
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("command", ["status", "metrics", "logs", "export"])
def test_a_file_in_the_place_of_the_state_is_named(command: str, file: Path) -> None:
    state = file.parent / "taken"
    state.touch()
    file.write_text(f"{file.read_text()}state: {{dir: {state}}}\n")
    words = [command, str(file), *(["--to", str(file.parent)] if command == "export" else [])]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 2
    assert f"StateError: {state}" in done.stderr
    assert "Not a directory" in done.stderr


def test_letters_that_the_output_lacks_are_shown_by_their_numbers(file: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = called("status", str(file), env=environment)
    assert done.returncode == 0, done.stderr
    assert "no tables yet \\xb7 behind not yet" in done.stdout


def test_a_namespace_that_is_no_text_is_no_label(file: Path) -> None:
    done = CliRunner().invoke(app, ["metrics", str(file), "--namespace", "\udcff"])
    assert done.exit_code == 2
    assert "--namespace: no text in UTF-8" in done.stderr


def test_a_folder_whose_name_is_no_text_is_written_and_told(file: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = called("export", str(file), "--to", f"{file.parent}/\udcff", env=environment)
    assert done.returncode == 0, done.stderr
    assert "\\udcff/default/shop/0/state.json" in done.stdout
    assert (file.parent / "\udcff" / "default" / "shop" / "0" / "state.json").exists()
