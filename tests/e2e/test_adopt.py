"""``adopt`` on a real server: dumps made elsewhere, under a snapshot of their own, while everybody writes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.databases import each_source
from tests.e2e.pipeline import HEADRACE, Pipeline
from tests.e2e.sites import site_of
from tests.requirements import req

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]

STEPS = ("adopt.files_written", "adopt.after_commit", "adopt.after_request")


@pytest.fixture
def tables() -> Sequence[str]:
    return ("shop.*",)


@pytest.fixture
def pipeline(tmp_path: Path, shop_url: str) -> Iterator[Pipeline]:
    adopted = ", ".join(
        f'"shop.{name}": {{first_copy: adopted}}' for name in ("orders", "clicks", "late", "early")
    )
    made = Pipeline(tmp_path, shop_url, more=f"tables: {{{adopted}}}\n")
    yield made
    made.close()


@each_source(long=["mariadb", "mysql"])
@req("D34", "D79", "P17")
def test_a_dump_made_elsewhere_joins_the_stream_while_everybody_writes(
    kind: str, shop_url: str, pipeline: Pipeline, tmp_path: Path
) -> None:
    site = site_of(kind, shop_url)

    def adopted(table: str, files: Path, at: str, dies_at: str = "") -> int:
        words = [*HEADRACE, "adopt", str(pipeline.file), "--table", f"shop.{table}"]
        done = subprocess.run(
            [*words, "--files", str(files), "--at", at],
            env={**os.environ, "HEADRACE_FAILPOINT": dies_at},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert dies_at or done.returncode == 0, done.stdout + done.stderr + pipeline.logs()
        return done.returncode

    site.fill()
    pipeline.start()
    pipeline.running("the other table is live", lambda: pipeline.all_live(1))
    before_all = site.position()
    with site.writing():
        site.says("insert into shop.early values (2, 'before')")
        with site.snapshot() as (position, dumped):
            files = {t: dumped(t, tmp_path / t) for t in ("orders", "clicks", "late", "early")}
        site.says("insert into shop.late values (2, 'behind')")
        behind = site.position()
        phases = {t["name"]: (t["phase"], t["error"]) for t in pipeline.status()["tables"]}
        assert phases["shop.other"][0] == "live"
        assert phases["shop.orders"][0] == "waiting"
        assert "headrace adopt" in phases["shop.orders"][1]
        for step in STEPS:
            assert adopted("orders", files["orders"], position, step) == -9
        adopted("orders", files["orders"], position)
        adopted("clicks", files["clicks"], position)
        # One transaction too many in each of these, and one too few.
        adopted("late", files["late"], behind)
        adopted("early", files["early"], before_all)
        pipeline.running("all tables are live", lambda: pipeline.all_live(5))
    report = json.loads(pipeline.command("verify", "--json").stdout)
    equal = {table["table"]: table["equal"] for table in report["tables"]}
    assert equal == {
        "shop.orders": True,
        "shop.clicks": True,
        "shop.other": True,
        "shop.late": False,
        # A row that comes twice is one row where there is a key.
        "shop.early": kind == "mysql",
    }
    # Nothing was read of the adopted tables, and a restart goes on where they are.
    dumps = {r["table"]: r for r in json.loads(pipeline.succeed("dump list", "--all", "--json"))}
    assert dumps["shop.orders"]["cause"] == "ADOPTED"
    assert pipeline.stop() == 0
    before = pipeline.frontier()
    with site.writing(500_000):
        pipeline.start()
        pipeline.running("applied something", lambda: pipeline.frontier() > before)
    pipeline.running("idle", lambda: pipeline.status()["lag_changes"] == 0)
    report = json.loads(pipeline.command("verify", "--json").stdout)
    again = {table["table"]: table["equal"] for table in report["tables"]}
    assert again == equal
