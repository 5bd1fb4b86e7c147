"""F2: golden windows, one text file each."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing.scenario import Player, Scenario
from tests.requirements import req
from tests.scenarios.crashing_log import open_log

FILES = sorted((Path(__file__).parent / "windows").glob("*.txt"))


def played(text: str, folder: Path) -> Player:
    log, lose = open_log(folder)
    player = Player(Scenario(text), folder, log)
    player.play()
    lose()
    return player


@req(
    "F2", "A-1", "A-2", "A-4", "A-6", "P35", "P43", "P44", "P45", "P46", "P53", "P54", "N14", "N16",
    "H02", "H03", "H04", "H06", "H28", "P18", "T6", "T11",
)  # fmt: skip
@pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])
def test_golden_window(file: Path, tmp_path: Path) -> None:
    player = played(file.read_text(), tmp_path)
    assert player.windows == player.scenario.expected


@req("P15", "P42")
def test_a_chunk_costs_one_select_and_two_marks(tmp_path: Path) -> None:
    player = played("rows 1..9\nchunk 3\n", tmp_path)
    chunks, end_mark = 3, 1
    assert player.source.statements == 3 * chunks + end_mark
