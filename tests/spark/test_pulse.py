"""A Spark whose process stands still is noticed, said, and ended; one that works for hours is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.errors import ApplyInterrupted
from headrace.spark.pulse import Pulse
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import Log

LIMIT_S = 0.3
LONG_S = 60.0


class Process:
    """Answers, or stands still until it is ended."""

    def __init__(self) -> None:
        self.goes = threading.Event()
        self.goes.set()
        self.ended = threading.Event()
        self.asked = 0
        self.told: list[float] = []
        self.enough = threading.Event()

    def ask(self) -> None:
        self.asked += 1
        if self.asked > 100:
            self.enough.set()
        self.goes.wait()

    def end(self) -> None:
        self.ended.set()
        self.goes.set()

    def pulse(self) -> Pulse:
        return Pulse(self.ask, self.end, self.told.append, LIMIT_S)


def test_a_process_that_stands_still_is_ended_and_named() -> None:
    process = Process()
    process.goes.clear()

    def wait_for_it() -> None:
        with process.pulse():
            assert process.ended.wait(LONG_S)
            raise ConnectionError

    with pytest.raises(ApplyInterrupted, match=r"answered nothing for 0\.3 s") as caught:
        wait_for_it()
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert max(process.told) >= LIMIT_S
    assert process.told == sorted(process.told), "it grows until the end"


def test_a_process_that_answers_is_left_alone_for_as_long_as_it_works() -> None:
    process = Process()
    with process.pulse():
        # More than three times the limit.
        assert process.enough.wait(LONG_S)
    assert not process.ended.is_set()
    assert max(process.told) < LIMIT_S


def test_an_answer_that_comes_late_begins_the_count_anew() -> None:
    process = Process()
    process.goes.clear()
    late = threading.Event()

    def take(open_s: float) -> None:
        process.told.append(open_s)
        if open_s >= LIMIT_S / 2:
            process.goes.set()
        if process.goes.is_set() and not open_s:
            late.set()

    with Pulse(process.ask, process.end, take, LIMIT_S):
        assert late.wait(LONG_S)
    assert not process.ended.is_set()


def test_one_that_is_gone_is_nobodys_news_here() -> None:
    def ask() -> None:
        raise ConnectionError

    process = Process()
    told = threading.Event()

    def take(open_s: float) -> None:
        process.told.append(open_s)
        if len(process.told) > 40:
            told.set()

    with Pulse(ask, process.end, take, LIMIT_S):
        assert told.wait(LONG_S)
    assert not process.ended.is_set()
    assert set(process.told) == {0.0}


@pytest.mark.spark
@req("C60")
def test_a_frozen_spark_ends_the_job_by_name_in_the_middle_of_a_batch(
    log: Log, tmp_path: Path
) -> None:
    log.write(table_of(3), "+I(1,a,b)")
    program = [sys.executable, "-m", "tests.spark.frozen_job", str(tmp_path)]
    found = subprocess.run(program, capture_output=True, text=True, timeout=200, check=True)
    assert found.stdout.splitlines() == [
        "silent in a batch",
        "TIMED: Spark's process answered nothing for 6 s, and was ended.",
    ]


def java_that_stops(folder: Path) -> Path:
    """Return a home of Java whose command stands still instead of becoming Spark's process."""
    real = shutil.which("java")
    assert real is not None
    command = folder / "java" / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f'#!/bin/sh\ncase "$*" in *launcher.Main*) exec {real} "$@";; esac\nkill -STOP $$\n'
    )
    command.chmod(0o755)
    return folder / "java"


@pytest.mark.spark
@req("C60")
@pytest.mark.parametrize("when", ["no JVM yet", "a JVM without a session"])
def test_a_spark_that_freezes_while_it_starts_ends_the_job_by_name(
    tmp_path: Path, when: str
) -> None:
    java = {"JAVA_HOME": str(java_that_stops(tmp_path))} if when == "no JVM yet" else {}
    found = subprocess.run(
        [sys.executable, "-m", "tests.spark.frozen_start", str(tmp_path), when],
        env=os.environ | java,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert found.stdout.splitlines() == [
        "TIMED: Spark's process answered nothing for 3 s, and was ended."
    ]
