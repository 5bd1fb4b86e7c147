"""docs/tutorial.md from its first line to its last, as a newcomer types it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.testing.postgres import EmbeddedPostgres
from tests.requirements import req

pytestmark = [
    pytest.mark.long,
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.timeout(900),
]

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedPostgres() as server:
        yield server.create_database("tutorial")


def steps() -> Iterator[tuple[str, str, str]]:
    """Yield name, language and text of each step, in the page's order."""
    for match in re.finditer(r"<!-- tutorial: (\w+) -->\n```(\w+)\n(.*?)```", PAGE, re.DOTALL):
        yield match[1], match[2], match[3]


@req("N32", "H24", "F16")
def test_a_newcomer_gets_to_the_end(url: str, tmp_path: Path) -> None:
    (config,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "shop.yaml").write_text(config)
    environment = {**os.environ, "SHOP": url, "COLUMNS": "200"}
    said: dict[str, str] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for name, language, text in steps():
            if language == "sql":
                for statement in text.split(";\n"):
                    if statement.strip():
                        connection.execute(statement.encode())
                continue
            for line in text.splitlines():
                said[line] = typed(line, tmp_path, environment)
            assert name
    assert "nothing stands in the way" in said["headrace assess shop.yaml"]
    assert "masked" in said["headrace lineage shop.yaml"]
    assert "shop.returns" in said["headrace status shop.yaml"]
    assert "headrace_inserts_total" in said["headrace metrics shop.yaml"]
    assert (tmp_path / "lake" / "shop" / "returns").exists()
    assert (tmp_path / "lineage.ndjson").exists()


def typed(line: str, folder: Path, environment: dict[str, str]) -> str:
    """Run one line of the page; return what it says."""
    first, *words = shlex.split(line)
    assert first == "headrace"
    done = subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return done.stdout


def test_every_block_of_the_page_is_a_step_or_the_file() -> None:
    every = re.findall(r"^```(\w+)\n", PAGE, re.MULTILINE)
    assert len(every) == len(list(steps())) + 2, "the file, and the line that sets the environment"
