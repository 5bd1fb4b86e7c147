"""Bounds that a data file's log entry gives of its texts."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headrace.lake.statistics import statistics_of

LAST = "\U0010ffff"


@pytest.mark.parametrize(
    ("rest", "above"),
    [
        ("", ""),
        ("b", LAST),
        (LAST, LAST * 2),
        (LAST + "z", LAST * 2),
        (LAST * 3 + "z" + LAST, LAST * 4),
    ],
)
def test_no_text_lies_outside_the_bounds_that_are_cut(rest: str, above: str) -> None:
    text = "a" * 32 + rest
    found = json.loads(statistics_of(pa.table({"k": [text, None]})))

    low, high = found["minValues"]["k"], found["maxValues"]["k"]
    assert low.encode() <= text.encode() <= high.encode()
    assert (low, high) == ("a" * 32, "a" * 32 + above)
