"""Files of lines whose writer is killed: at any step, and before and behind a rename."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.changelog.windows import TABLE, window
from tests.client.conftest import log, relay
from tests.client.logs import LogFolder
from tests.requirements import req

__all__ = ["log", "relay"]

ROOT = Path(__file__).parents[2]
WINDOWS, ROWS = 80, 3


def written(relay: str, folder: Path, at: str, lines: int | None = None) -> int:
    """Let the consumer write; kill it after so many steps. Return how it ended."""
    command = [sys.executable, "-m", "tests.outputs.lines_process", relay, str(folder)]
    environment = dict(os.environ, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    with subprocess.Popen(
        [*command, str(WINDOWS), at], stdout=subprocess.PIPE, cwd=ROOT, env=environment
    ) as process:
        assert process.stdout is not None
        for number, _ in enumerate(process.stdout):
            if number == lines:
                process.kill()
        return process.wait(60)


def renamed(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("changes-*.ndjson"))}


def told(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@req("H15", "D97")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_writer_that_is_killed_leaves_whole_files_that_never_change(
    log: LogFolder, relay, tmp_path, seed
):
    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, WINDOWS + 1)))
    rng = random.Random(seed)
    deaths = ["before", "behind", *["random"] * 4]
    rng.shuffle(deaths)
    for at in deaths:
        before = renamed(tmp_path)
        # Some windows of the eighty, so that each life has an end before its time.
        assert written(relay, tmp_path, at, rng.randrange(1, 40) if at == "random" else None) < 0
        assert before.items() <= renamed(tmp_path).items()
    assert written(relay, tmp_path, "random") == 0
    files = renamed(tmp_path)
    assert len(files) > 4
    last_of = {name: told(data)[-1] for name, data in files.items()}
    assert [line["end"] for line in last_of.values()] == [True] * len(files)
    assert [int(name[8:28]) for name in files] == [line["scn"] for line in last_of.values()]
    # No window is spread over two, and none comes again behind a file that has its name.
    scns = [{line["scn"] for line in told(data)} for data in files.values()]
    scns.append({line["scn"] for line in told((tmp_path / "changes.ndjson").read_bytes())})
    assert all(max(left) < min(right) for left, right in pairwise(scns) if right)
    found: Counter[tuple[int, int]] = Counter()
    for data in [*files.values(), (tmp_path / "changes.ndjson").read_bytes()]:
        found.update((line["scn"], line["ord"]) for line in told(data) if "ord" in line)
    assert set(found) == {(scn, n) for scn in range(1, WINDOWS + 1) for n in range(ROWS)}
    # A checkpoint each window: with each death at most one comes again.
    assert found.total() - len(found) <= ROWS * len(deaths)
