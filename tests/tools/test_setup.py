"""What the set-up remembers: a stamp that vouches for files which are still there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.spark.archive import archive_path
from tools import setup

JAVA = {"java": sys.executable, "java_file": setup.file_mark(sys.executable)}


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the set-up believe that this Python and a stamp of its own are the clone's."""
    monkeypatch.setattr(setup, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(setup, "STAMP", tmp_path / "stamp.json")


def test_an_archive_that_fits_is_kept_where_sessions_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands in for the program that prints the path of an archive which is there.
    there = tmp_path / "there.jsa"
    there.touch()
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntest $3 = --print && echo {there}\n")
    python.chmod(0o755)
    monkeypatch.setattr(setup, "PYTHON", python)
    old = {"java_file": "/java", "jars": ["a.jar"]}
    assert setup.make_class_archive("/java", ["a.jar"], old) == str(there)
    # Of another Java it is made anew, which this program refuses to do.
    assert setup.make_class_archive("/other", ["a.jar"], old) is None


def test_the_path_of_the_archive_is_the_one_of_the_sessions() -> None:
    asked = [sys.executable, "-m", "headrace.spark.archive", "--print"]
    assert setup._lines_of(asked) == [str(archive_path())]


def test_the_stamp_vouches_for_the_archive_as_long_as_it_is_there(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    archive.touch()
    setup.write_stamp({**JAVA, "jars": [], "archive": str(archive)})
    assert setup.is_ready(setup.read_stamp(), tests=False)
    archive.unlink()
    assert not setup.is_ready(setup.read_stamp(), tests=False)


def test_an_archive_that_could_not_be_made_is_not_missed(tmp_path: Path) -> None:
    setup.write_stamp({**JAVA, "jars": [], "archive": None})
    assert setup.is_ready(setup.read_stamp(), tests=False)


def test_a_java_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("old")
    proof = {"java": str(java), "java_file": setup.file_mark(str(java)), "archive": None}
    setup.write_stamp({**proof, "jars": []})
    assert setup.is_ready(setup.read_stamp(), tests=False)
    java.write_text("newer")
    assert not setup.is_ready(setup.read_stamp(), tests=False)
    java.unlink()
    assert not setup.is_ready(setup.read_stamp(), tests=False)


def test_the_object_store_of_the_tests_is_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands in for Go: makes the file that was asked for, and counts.
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho "$2" >> "$GOBIN/asked"\ntouch "$GOBIN/versitygw"\n')
    go.chmod(0o755)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setattr(setup, "VENV", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = str(programs / "versitygw")
    assert setup.find_or_build_object_store() == program
    assert setup.find_or_build_object_store() == program
    assert (programs / "asked").read_text().split() == [setup.OBJECT_STORE]
    # Another version is another program.
    monkeypatch.setattr(setup, "OBJECT_STORE", "other@v2")
    assert setup.find_or_build_object_store() == program
    assert (programs / "asked").read_text().split()[1:] == ["other@v2"]
    monkeypatch.setattr(setup, "OBJECT_STORE", "other@v3")
    go.write_text("#!/bin/sh\nexit 1\n")
    assert setup.find_or_build_object_store() is None
    go.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert setup.find_or_build_object_store() is None


def test_tests_need_their_servers_or_the_word_that_there_are_none() -> None:
    setup.write_stamp({**JAVA, "jars": [], "archive": None, "postgres": None})
    assert setup.is_ready(setup.read_stamp(), tests=False)
    assert not setup.is_ready(setup.read_stamp(), tests=True)
    setup.write_stamp(
        {
            **JAVA,
            "jars": [],
            "archive": None,
            "postgres": None,
            "mariadb": None,
            "mysql": None,
            "object_store": None,
        }
    )
    assert setup.is_ready(setup.read_stamp(), tests=True)
