"""What docs/operations.md says of outages is what tests show."""

from __future__ import annotations

import re
from pathlib import Path

from tests.requirements import req

ROOT = Path(__file__).parents[2]


@req("C107")
def test_every_outage_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("\n## When something is down\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| ") and not line.startswith("| down |")
    ]
    assert len(rows) >= 15
    for down, meanwhile, back, test in rows:
        assert down
        assert meanwhile
        assert back
        path, _, name = test.strip("`").partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.M), test
