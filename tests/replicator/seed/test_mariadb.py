"""A stage that names MariaDB, by either of its names, is the section of that source."""

from __future__ import annotations

import pytest

from headrace.replicator.seed.read import read_seed
from tests.replicator.seed.cases import smallest


@pytest.mark.parametrize("name", ["mysql", "MariaDB"])
def test_a_stage_of_mariadb_becomes_its_section(name: str) -> None:
    document = smallest()
    plugin = document["stages"][0]["plugin"]
    plugin["name"] = name
    plugin["properties"]["port"] = "3307"
    read = read_seed(document)
    assert [problem for problem in read.problems if problem.is_error] == []
    source = read.mapping["source"]
    assert source["type"] == "mysql"
    assert source["url"].startswith("mysql://headrace:${")
    assert source["url"].endswith("@db.internal:3307/shop")
    assert source["tables"] == ["*.*"]
