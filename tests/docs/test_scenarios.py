"""The scenarios across all sources: each is there, and some test names it."""

from __future__ import annotations

import re

from tests.requirements import req
from tools.check_requirements import TABLE, TESTS, collect

AWAITED = {"F5"}
"""Whose parts are not all there: consumers are routed once there is a bootstrap server."""


@req("C108")
def test_every_scenario_is_named_by_a_test() -> None:
    section = TABLE.read_text(encoding="utf-8").partition("\n## F: ")[2].partition("\n## ")[0]
    scenarios = re.findall(r"^\| (F\d+) \|", section, re.MULTILINE)
    assert scenarios == [f"F{number}" for number in range(1, 21)]
    named = {mark.id for mark in collect(TESTS)[0]}
    assert set(scenarios) - named <= AWAITED
