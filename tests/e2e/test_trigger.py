"""A shop that is captured by triggers: copied, followed, compared, killed, and resynced, from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from headrace.demo import schema
from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.model.schema import TableId
from tests.e2e.pipeline import Pipeline
from tests.e2e.test_kill import TABLES, agree, busy_shop, strike
from tests.e2e.test_run_once import ON_POSTGRES
from tests.requirements import req

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture
def pipeline(tmp_path: Path, url: str, tables: Sequence[str], target: str) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, url, tables, target=target, kind="trigger")
    yield made
    made.close()


@req("D117", "D38", "D121", "C24")
def test_once_copies_then_follows_and_verify_agrees(url: str, pipeline: Pipeline) -> None:
    with psycopg.connect(url) as connection:
        schema.create(connection)
        rows = dict(schema.load(connection, 4_000))
    pipeline.succeed("preflight")
    pipeline.succeed("run", "--once")
    first = json.loads(pipeline.succeed("verify", "--json"))
    assert first["equal"]
    copied = {table["table"]: table["source_rows"] for table in first["tables"]}
    assert copied == {f"shop.{table}": count for table, count in rows.items()}

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in ON_POSTGRES.split(";"):
            connection.execute(statement)
    pipeline.succeed("run", "--once")
    second = json.loads(pipeline.succeed("verify", "--json"))
    assert second["equal"], second
    names = {
        table: DeltaTable(table_path(pipeline.config.lake, TableId("shop", table)))
        .snapshot()
        .schema.names
        for table in ("orders", "products")
    }
    assert "via" in names["orders"]
    assert "story" in names["products"]
    status = pipeline.status()
    assert {table["phase"] for table in status["tables"]} == {"live"}
    assert status["slot"]["status"] == "kept"
    said = pipeline.succeed("metrics")
    assert "headrace_fetch_rows_total" in said


@pytest.mark.parametrize("tables", [TABLES[:2]], ids=["two-kinds"])
@req("D117", "C12", "C13")
def test_kills_lose_and_repeat_nothing(url: str, pipeline: Pipeline) -> None:
    with busy_shop(url) as traffic:
        pipeline.start()
        # Those that apply know nothing of the kind of source.
        for victim in ("capture", "supervisor"):
            strike(pipeline, victim)
        agree(pipeline, traffic)


@pytest.mark.long
@req("D117")
def test_what_was_lost_with_a_trigger_comes_back_by_a_resync(url: str, pipeline: Pipeline) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.t (id int PRIMARY KEY, v text)")
        connection.execute("INSERT INTO shop.t SELECT g, 'old' FROM generate_series(1, 100) g")
        pipeline.succeed("run", "--once")
        connection.execute("ALTER TABLE shop.t DISABLE TRIGGER ALL")
        connection.execute("DELETE FROM shop.t WHERE id < 10")
        connection.execute("UPDATE shop.t SET v = 'new' WHERE id > 90")
        done = pipeline.command("run", "--once")
        assert done.returncode != 0
        assert "RESYNC NEEDED" in done.stdout + done.stderr + pipeline.logs()
        pipeline.succeed("resync")
        pipeline.succeed("run", "--once")
        assert json.loads(pipeline.succeed("verify", "--json"))["equal"]
