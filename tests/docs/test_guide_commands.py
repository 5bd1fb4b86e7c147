"""The commands of the operator's guide and its neighbours, run one after the other beside a real source."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.lake.frontier import FrontierStore
from headrace.replicator.paths import StatePaths
from headrace.testing.postgres import EmbeddedPostgres
from tests.cli.test_documents import typed
from tests.control.letters import put_letter
from tests.requirements import req

PAGES = ("docs/assessment.md", "docs/sources.md", "docs/operations.md")
TABLES = """
create table orders (id int primary key, placed_at timestamptz not null default now());
create table items (order_id int, line int, primary key (order_id, line));
insert into orders select n from generate_series(1, 100) n;
insert into items values (17, 1), (17, 2);
"""
FILE = """
name: shop
source: {type: postgres, url: "${env:SHOP}", tables: ["public.*"]}
target: {type: delta, path: ./lake}
spark: {driver_memory: 1g}
"""
ELSEWHERE = {
    "headrace run shop.yaml": "tests/e2e/test_kill.py",
    "headrace relay shop.yaml billing.yaml": "tests/replicator/test_relaying.py",
    "headrace tap shop.yaml": "tests/cli/test_tap.py",
    "headrace resync shop.yaml": "tests/e2e/test_resync.py",
    "headrace adopt": "tests/e2e/test_adopt.py",
}
"""Commands that run until somebody ends them, or that need a disaster first, by their beginnings; where they are run."""


class Operator:
    """Somebody at a terminal beside the files."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SHOP": url, "COLUMNS": "200"}

    def types(self, line: str) -> str:
        """Run a command of a page, as it stands there but for what only the reader knows."""
        words = [self._meant(word) for word in shlex.split(line)[1:] if word != "--wait"]
        done = subprocess.run(
            [sys.executable, "-m", "headrace.cli.main", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def _meant(self, word: str) -> str:
        if word == "3f2a":
            waiting: list[dict[str, Any]] = json.loads(self.types("headrace dump list shop.yaml --json"))
            return str(waiting[-1]["request"])
        if word == "81":
            return str(json.loads(self.types("headrace status shop.yaml --json"))["frontier_scn"])
        if re.match(r"\d{4}-\d\d-\d\dT", word):
            # What is behind the newest commit that the tables show is refused.
            newest = FrontierStore(self.folder / "lake", "shop").latest()
            assert newest is not None
            return dt.datetime.fromtimestamp(newest.commit_us / 1e6, dt.UTC).isoformat()
        return str(self.folder / "exported") if word == "/srv/delta" else word


def elsewhere(line: str) -> bool:
    return line in ELSEWHERE or any(
        line.startswith(f"{begin} ") for begin in ELSEWHERE if begin.count(" ") == 1
    )


@req("N32", "H24", "F16")
@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_every_command_of_the_guide_does_what_it_says(tmp_path: Path) -> None:
    with EmbeddedPostgres() as server:
        url = server.create_database("guide")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLES.encode())
        (tmp_path / "shop.yaml").write_text(FILE)
        operator = Operator(tmp_path, url)
        operator.types("headrace run shop.yaml --once")
        run = [line for page in PAGES for line in typed(page) if not elsewhere(line)]
        assert len(run) > 30
        letters = run.index("headrace dead-letters list shop.yaml")
        for line in run[:letters]:
            operator.types(line)
        # Only now: a run to the end says that they are there, as an error.
        for scn in (81, 90):
            put_letter(StatePaths(tmp_path / ".headrace" / "shop"), scn)
        for line in run[letters:]:
            operator.types(line)
    assert list((tmp_path / "exported").rglob("state.json"))


@req("N32", "H24")
def test_what_runs_elsewhere_is_run_there() -> None:
    root = Path(__file__).parents[2]
    every = [line for page in PAGES for line in typed(page)]
    for begin, file in ELSEWHERE.items():
        assert any(line == begin or line.startswith(f"{begin} ") for line in every), begin
        text = (root / file).read_text(encoding="utf-8")
        assert begin.split()[1] in text, file
