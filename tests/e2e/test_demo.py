"""The demo, small: every act is played and the promise on its last line holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.demo.place import Place
from headrace.demo.show import python_snippet
from tests.e2e.pipeline import HEADRACE
from tests.requirements import req

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(600)]


@req("H13", "F16")
@pytest.mark.parametrize(
    "source",
    [
        "postgres",
        pytest.param("mariadb", marks=[pytest.mark.mariadb, pytest.mark.long]),
        pytest.param("mysql", marks=[pytest.mark.mysql, pytest.mark.long]),
    ],
)
def test_the_demo_plays_to_its_end_and_its_snippet_works(source: str, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = subprocess.run(
        [
            *(*HEADRACE, "demo", "--seconds", "20", "--rate", "100"),
            *("--rows", "20000", "--dir", str(folder), "--source", source),
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for milestone in ("loaded", "preflight", "converged", "while writes go on", "after the writes"):
        assert milestone in done.stdout
    assert "source = target after" in done.stdout
    assert "alter table shop.orders add column" in done.stdout
    # Only the tables stay.
    assert {path.name for path in folder.iterdir()} == {".headrace-demo", "lake"}

    snippet = python_snippet(Place(folder))
    shown = subprocess.run(
        [sys.executable, "-c", snippet], capture_output=True, text=True, timeout=60, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert "shipped" in shown.stdout
