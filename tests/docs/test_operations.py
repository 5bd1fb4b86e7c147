"""What docs/operations.md says of outages is what tests show."""

from __future__ import annotations

import re
from pathlib import Path

from tests.requirements import req

ROOT = Path(__file__).parents[2]


MIGRATIONS = {
    "`ADD COLUMN`": "tests/spark/test_apply.py::test_columns_are_added_and_widened",
    "`DROP COLUMN`": "tests/spark/test_apply.py::test_columns_are_renamed_and_dropped_with_their_values",
    "`RENAME COLUMN`": "tests/lake/test_column_mapping.py::test_two_columns_that_swap_their_names_keep_their_own_values",
    "a wider type": "tests/lake/sql/test_values.py::test_a_wider_type_keeps_every_value",
    "`DROP NOT NULL`": "tests/integration/test_every_change_of_shape.py::"
    "test_every_row_keeps_the_shape_it_was_written_in_and_old_and_new_readers_understand_it",
    "another type": "tests/e2e/test_policies.py::test_each_policy_is_followed_as_the_diff_said",
    "`DROP TABLE`": "tests/spark/test_dropped_tables.py::test_a_dropped_table_goes_by_policy_and_comes_back_by_itself",
    "`RENAME` of a table": "tests/spark/test_apply.py::"
    "test_a_renamed_table_leaves_the_frontier_and_says_its_new_name",
}
"""What the matrix of migrations begins its rows with, and where each is carried out."""


@req("C19")
def test_every_migration_of_the_matrix_is_carried_out_by_a_test() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("\n| at the source | at the target |\n")[2].partition("\n\n")[0]
    rows = [line.strip("| ") for line in section.splitlines()[1:]]
    assert len(rows) == len(MIGRATIONS)
    for row, (begin, test) in zip(rows, MIGRATIONS.items(), strict=True):
        assert row.startswith(begin)
        _exists(test)


def _exists(test: str) -> None:
    path, _, name = test.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.M), test


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
        _exists(test.strip("`"))
