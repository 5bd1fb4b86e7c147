"""``headrace assess`` and ``headrace tables``: for people, for programs, and for both forms of a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from tests.fixtures_postgres import Sql, database, name_of, postgres_server, sql
from tests.replicator.seed.cases import smallest
from tests.requirements import req

__all__ = ["database", "postgres_server", "sql"]

pytestmark = pytest.mark.postgres


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


@pytest.fixture
def file(database: str, sql: Sql, tmp_path: Path) -> Path:
    sql(
        "CREATE TABLE orders (id int PRIMARY KEY, token uuid, note text)",
        "INSERT INTO orders SELECT generate_series(1, 1000)",
        "ANALYZE orders",
    )
    path = tmp_path / "shop.json"
    source = {"type": "postgres", "url": database, "tables": ["public.*"]}
    target = {"type": "delta", "path": "lake"}
    path.write_text(json.dumps({"name": "shop", "source": source, "target": target}))
    return path


@req("C22", "C96")
def test_an_assessment_for_people_and_for_programs(file: Path, sql: Sql) -> None:
    good = call("assess", str(file), "--sample-seconds", "0.1")
    assert good.exit_code == 0
    words = " ".join(good.stdout.split())
    assert "public.orders 3 1 0" in words
    assert "about 1,000 rows in" in words
    assert "bytes of log an hour" in words
    assert "nothing stands in the way" in words
    sql("CREATE TABLE keyless (v int)")
    bad = call("assess", str(file), "--sample-seconds", "0")
    assert bad.exit_code == 1
    assert "error no-key public.keyless has no primary key" in " ".join(bad.stdout.split())
    assert "The replicator does not start while the table is captured." in bad.stdout
    assert "REPLICA IDENTITY FULL" in bad.stdout
    assert "1 to do first" in bad.stdout
    said = json.loads(call("assess", str(file), "--json", "--sample-seconds", "0").stdout)
    assert [table["table"] for table in said["tables"]] == ["keyless", "orders"]
    assert [problem["name"] for problem in said["features"]] == ["no-key", "statistics-missing"]
    assert said["estimates"]["logBytesPerHour"] is None


@req("C97")
def test_one_table_column_by_column(file: Path) -> None:
    shown = call("assess", str(file), "--table", "public.orders")
    assert shown.exit_code == 0
    assert "token uuid token string PARTIAL" in " ".join(shown.stdout.split())
    said = json.loads(call("assess", str(file), "--table", "orders", "--json").stdout)
    assert [column["support"] for column in said["columns"]] == ["YES", "PARTIAL", "YES"]
    unknown = call("assess", str(file), "--table", "public.order")
    assert unknown.exit_code == 2
    assert "UnknownTable" in unknown.stderr
    assert "did you mean public.orders?" in unknown.stderr


@req("C94", "C95")
def test_tables_are_listed_and_described(file: Path, sql: Sql, database: str) -> None:
    sql("CREATE SCHEMA other", "CREATE TABLE other.one (id int PRIMARY KEY)")
    assert call("tables", str(file)).stdout.split() == ["table", "columns", "public.orders", "3"]
    assert "other.one" in call("tables", str(file), "--every").stdout
    said = json.loads(call("tables", str(file), "--json").stdout)["tables"]
    assert said == [
        {
            "database": name_of(database),
            "schema": "public",
            "name": "orders",
            "table": "orders",
            "numColumns": 3,
        }
    ]
    shown = call("tables", str(file), "--table", "orders").stdout
    assert "id integer key" in " ".join(shown.split())
    described = json.loads(call("tables", str(file), "--table", "orders", "--json").stdout)
    assert described["primaryKey"] == ["id"]


@req("C68")
def test_the_designs_form_is_taken_from_a_file(file: Path, database: str, tmp_path: Path) -> None:
    document = smallest()
    source, target = (stage["plugin"]["properties"] for stage in document["stages"])
    source |= {"url": database, "watermark": "table"}
    target["path"] = str(tmp_path / "lake")
    for part in ("host", "port", "database", "user", "password"):
        del source[part]
    path = tmp_path / "design.json"
    path.write_text(json.dumps({"config": document}))
    shown = call("assess", str(path), "--sample-seconds", "0")
    assert shown.exit_code == 0, shown.output
    assert "public.orders" in call("tables", str(path)).stdout
    document["stages"][1]["plugin"]["name"] = "bigquery"
    path.write_text(json.dumps({"config": document}))
    refused = call("assess", str(path))
    assert refused.exit_code == 1
    assert "plugin-unknown" in refused.stdout
    # Tables are the source's, whatever the target is.
    assert "public.orders" in call("tables", str(path)).stdout


def test_a_file_that_does_not_read_is_told_whole(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text("name: shop\nsource: {type: postgres, url: '${env:HEADRACE_UNSET}'}\n")
    shown = call("assess", str(path))
    assert shown.exit_code == 1
    for kind in ("secret-unresolved", "configuration"):
        assert kind in shown.stdout
    assert "3 to do first" in shown.stdout
    refused = call("tables", str(path))
    assert refused.exit_code == 2
    assert "source.tables" in refused.stderr
    path.write_text("name: [\n")
    assert call("assess", str(path)).exit_code == 2
