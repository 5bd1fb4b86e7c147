"""From PostgreSQL into each kind of warehouse, by the command line, over migrations; then both sides agree."""

from __future__ import annotations

import json

import psycopg
import pytest

from headrace.demo import schema
from headrace.testing.mariadb_server import MariadbServer
from tests.e2e.pipeline import Pipeline
from tests.e2e.test_run_once import ON_POSTGRES
from tests.requirements import req

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture(
    params=[
        pytest.param("duckdb", marks=pytest.mark.long),
        "postgres",
        pytest.param("mariadb", marks=[pytest.mark.mariadb, pytest.mark.long]),
    ]
)
def target(request: pytest.FixtureRequest) -> str:
    if request.param == "duckdb":
        return "{type: duckdb, path: ./shop.duckdb}"
    if request.param == "mariadb":
        server: MariadbServer = request.getfixturevalue("mariadb")
        return f"{{type: mysql, url: {json.dumps(server.url())}, schema_prefix: copy_}}"
    url = request.getfixturevalue("warehouse_url")
    return f"{{type: postgres, url: {json.dumps(url)}, schema_prefix: copy_}}"


@req("C08", "C24", "C45", "P31", "P66")
def test_once_copies_into_a_warehouse_and_follows_and_verify_agrees(
    url: str, pipeline: Pipeline
) -> None:
    with psycopg.connect(url) as connection:
        schema.create(connection)
        rows = dict(schema.load(connection, 1_000))
    pipeline.succeed("run", "--once")
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in ON_POSTGRES.split(";"):
            connection.execute(statement)
    changes = json.loads(pipeline.command("schema diff", "--json").stdout)
    kinds = {(table["table"], change["change"]) for table in changes for change in table["changes"]}
    assert {("shop.products", "rename"), ("shop.customers", "drop")} <= kinds
    pipeline.succeed("run", "--once")
    report = json.loads(pipeline.succeed("verify", "--json"))
    assert report["equal"], report
    compared = {table["table"]: table["target_rows"] for table in report["tables"]}
    assert compared["shop.products"] == rows["products"]
    assert compared.keys() == {f"shop.{table}" for table in rows}
    status = pipeline.status()
    assert {table["phase"] for table in status["tables"]} == {"live"}
