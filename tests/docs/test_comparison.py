"""The paper's comparison table for our own ways of reading a table: every cell has its test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from headrace.replicator.config import PostgresConfig
from tests.docs.test_links import _TEST
from tests.requirements import req

PAGE = (Path(__file__).parents[2] / "docs" / "paper_map.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## The comparison table\n")[2].partition("\n## ")[0]


@req("P72")
def test_each_cell_of_rows_a_to_f_has_its_test() -> None:
    head, _, *rows = (line for line in SECTION.splitlines() if line.startswith("|"))
    modes = [cell.strip().strip("`") for cell in head.strip("|").split("|")][2:]
    assert modes == list(get_args(PostgresConfig.model_fields["watermark"].annotation))
    assert [re.match(r"\| \((\w)\)", row)[1] for row in rows] == list("abcdef")  # type: ignore[index]
    for row in rows:
        _, _, *cells = row.strip("|").split("|")
        assert len(cells) == len(modes)
        for cell in cells:
            assert re.match(r" (yes|no)[;:,. ]", cell), cell
            # That the tests exist is what `tests/docs/test_links.py` looks at.
            assert _TEST.search(cell), cell
