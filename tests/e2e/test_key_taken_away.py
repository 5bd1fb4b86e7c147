"""A table under REPLICA IDENTITY FULL loses its key and gets it back: its target table is one of rows meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.databases import said
from tests.e2e.pipeline import Pipeline
from tests.requirements import req

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(1200),
]

GONE, BACK = (
    "ALTER TABLE shop.t DROP CONSTRAINT t_pkey",
    "ALTER TABLE shop.t ADD PRIMARY KEY (id)",
)
STEPS = (
    (GONE, "INSERT INTO shop.t VALUES (5, 'twin')"),
    ("DELETE FROM shop.t WHERE id = 5 AND v <> 'twin'", BACK),
    ("UPDATE shop.t SET v = 'x' WHERE id = 6",),
    (f"{GONE}; UPDATE shop.t SET id = id + 1; {BACK}",),
)
"""What is done between two runs."""


@pytest.fixture(
    params=["{type: delta, path: ./lake}", "{type: duckdb, path: ./shop.duckdb}"],
    ids=["delta", "duckdb"],
)
def pipeline(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, url, target=request.param)
    yield made
    made.close()


@req("A-11", "C45")
def test_source_and_target_agree_after_every_step(pipeline: Pipeline, url: str) -> None:
    said(
        url,
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.t (id int PRIMARY KEY, v text)",
        "ALTER TABLE shop.t REPLICA IDENTITY FULL",
        "INSERT INTO shop.t SELECT n, 'v' || n FROM generate_series(1, 20) n",
    )
    pipeline.succeed("run", "--once")
    for step in STEPS:
        said(url, *step)
        pipeline.succeed("run", "--once")
        report = json.loads(pipeline.succeed("verify", "--json"))
        assert report["equal"], (step, report)
