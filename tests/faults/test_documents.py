"""The page of errors says what tests prove."""

from __future__ import annotations

import re
from pathlib import Path

from headrace import errors, outputs
from headrace.client import errors as client_errors
from headrace.lake import errors as lake_errors
from headrace.spark.notes import NOTES
from tests.requirements import req

ROOT = Path(__file__).parents[2]

Case = list[str]
MODULES = (errors, lake_errors, client_errors, outputs)


def sections() -> dict[str, list[Case]]:
    """Return the rows of every table of the page, by heading."""
    found: dict[str, list[Case]] = {}
    heading = ""
    for line in (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| ") and not line.startswith("| what |"):
            found.setdefault(heading, []).append(
                [cell.strip() for cell in line.strip("|").split("|")]
            )
    return found


@req("C107")
def test_there_are_enough_cases_and_most_are_not_of_the_configuration() -> None:
    cases = sections()
    count = sum(map(len, cases.values()))
    assert count >= 30
    assert len(cases["The configuration"]) * 3 <= count
    assert sum(len(rows) for heading, rows in cases.items() if "while running" in heading) >= 10
    assert all(len(row) == 6 for rows in cases.values() for row in rows)


@req("C107")
def test_every_case_names_a_test_and_an_error_that_exist() -> None:
    for row in (row for rows in sections().values() for row in rows):
        path, _, name = row[-1].strip("`").partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.M), row[
            -1
        ]
        for error in re.findall(r"`([A-Z]\w+)`", row[1]):
            assert error in NOTES or any(hasattr(module, error) for module in MODULES), error
