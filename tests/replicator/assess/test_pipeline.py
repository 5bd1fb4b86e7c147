"""A whole replicator and one table of it: shapes as golden files, all problems at once, and no secret in any answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.errors import UnknownTable
from headrace.model.schema import TableId
from headrace.replicator.assess.document import (
    assess_document,
    assess_table_of_document,
    configured,
    read_document,
)
from headrace.replicator.assess.estimates import sample_log
from headrace.replicator.assess.pipeline import assess_pipeline
from headrace.replicator.assess.tables import describe_table, list_tables
from headrace.sources.base import Severity
from headrace.sources.postgres import PostgresSource
from tests.fixtures_postgres import LOGIN, Sql, as_role, name_of
from tests.replicator.assess.assessed import Doc, assessed, document, unwatched
from tests.replicator.seed.cases import smallest
from tests.requirements import req

pytestmark = pytest.mark.postgres

GOLDEN = Path(__file__).parent / "golden"

ORDERS = (
    "CREATE TABLE shop.orders (id bigint PRIMARY KEY, total numeric(12,2) NOT NULL, weight numeric, "
    "tags text[], token uuid, mood shop.mood, at timestamptz, "
    'doubled bigint GENERATED ALWAYS AS (id * 2) STORED, "odd name" text)'
)
SHOP = (
    "CREATE SCHEMA shop",
    "CREATE TYPE shop.mood AS ENUM ('glad', 'sad')",
    ORDERS,
    "CREATE TABLE shop.keyless (v int)",
    "INSERT INTO shop.orders (id, total) SELECT g, 1 FROM generate_series(1, 5000) g",
    "VACUUM ANALYZE shop.orders",
    "ANALYZE shop.keyless",
)


def shop(url: str, folder: Path, **sections: Any) -> Doc:
    settings = {
        "shop.orders": {
            "rename": {"odd name": "odd_name"},
            "mask": {"tags": "'hidden'"},
            "compute": {"day": "date(att)"},
        }
    }
    return document(url, folder, source={"tables": ["shop.*"]}, tables=settings, **sections)


def golden(name: str, value: dict[str, Any], database: str) -> None:
    """Hold a value against a file; the name of the database is another one each time."""
    text = json.dumps(value, indent=2, ensure_ascii=False).replace(name_of(database), "shop_db")
    assert json.loads(text) == json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


@req("C94", "C95", "C96", "C97")
@pytest.mark.since(15)
def test_the_answers_have_the_shapes_of_the_golden_files(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(*SHOP)
    read = read_document(shop(database, tmp_path), tmp_path)
    config = configured(read)
    golden("listTables", list_tables(config).to_json(), database)
    golden("describeTable", describe_table(config, "orders", "shop").to_json(), database)
    whole = assess_document(read, sample=unwatched).to_json()
    # Pages depend on the server's version.
    assert whole["estimates"].pop("bytes") > 5_000 * 40
    for table in whole["estimates"]["tables"]:
        assert table.pop("bytes") >= 0
    golden("assessPipeline", whole, database)
    golden("assessTable", assess_table_of_document(read, "orders", "shop").to_json(), database)


@req("C22", "C96")
def test_everything_that_is_wrong_is_told_at_once(database: str, sql: Sql, tmp_path: Path) -> None:
    """Source, target, names and settings in one answer; each with what to do and what it costs."""
    sql(*SHOP)
    target = {"type": "postgres", "url": as_role(database, "nobody")}
    found = assessed(shop(database, tmp_path, target=target), tmp_path)
    assert {problem.name for problem in found.errors} == {
        "no-key",
        "target-database-unknown",
        "expression-column-unknown",
    }
    said = found.to_json()
    assert [p["name"] for p in said["connectivity"]] == ["target-database-unknown"]
    assert said["connectivity"] == said["connectivityProblems"]
    assert said["features"] == said["featureProblems"]
    every = [*said["features"], *said["connectivity"], *said["transformationIssues"]]
    assert all(p["description"] and p["suggestion"] and p["impact"] for p in every)


@req("C22", "C49")
def test_what_is_advised_leads_to_a_replicator_without_errors(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(*SHOP)
    doc = shop(database, tmp_path)
    (keyless,) = [p for p in assessed(doc, tmp_path).errors if p.name == "no-key"]
    sql(keyless.suggestion.partition("; or ")[2].partition(";")[0])
    doc["tables"]["shop.orders"]["compute"] = {"day": "date(at)"}
    found = assessed(doc, tmp_path)
    assert found.errors == ()
    findings = PostgresSource(database, ("shop.*",), name="shop").preflight()
    assert {finding.severity for finding in findings} == {Severity.WARNING}


@req("C-19", "C70", "C93")
def test_secrets_stay_unresolved_in_every_answer(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a library repeats what it was given: a host's name in its own message, here."""
    monkeypatch.setenv("HEADRACE_HOST", "swordfish.invalid")
    monkeypatch.setenv("HEADRACE_PASSWORD", "sword/fish@7")
    doc = document("postgresql://u:${urlenv:HEADRACE_PASSWORD}@${env:HEADRACE_HOST}/db", tmp_path)
    read = read_document(doc, tmp_path)
    said = json.dumps(
        [assess_document(read).to_json(), assess_table_of_document(read, "t").to_json()]
    )
    assert "source-host-unknown" in said
    assert "${env:HEADRACE_HOST}" in said
    for secret in ("swordfish", "sword/fish", "sword%2Ffish"):
        assert secret not in said
    assert read.mapping["source"]["url"] == doc["source"]["url"]
    assert "sword" not in repr(read)


@req("C68", "C-19")
def test_problems_of_the_designs_form_are_named_at_its_own_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "swordfish")
    doc = smallest()
    doc["stages"][0]["plugin"]["properties"] |= {"host": "127.0.0.1", "port": "1"}
    doc["stages"][1]["plugin"]["properties"]["path"] = "/dev/null/lake"
    found = assess_document(read_document(doc, tmp_path))
    assert {problem.name: problem.field for problem in found.problems} == {
        "source-unreachable": "stages[0].plugin.properties.host, port",
        "target-not-writable": "stages[1].plugin.properties.path",
    }


def test_the_log_is_looked_at_while_somebody_writes(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    config = configured(read_document(document(database, tmp_path), tmp_path))
    clock = iter([0.0, 2.0])

    def write(_seconds: float) -> None:
        sql("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 10000) g")

    found = assess_pipeline(
        config, sample=lambda written: sample_log(written, 2.0, wait=write, clock=clock.__next__)
    )
    assert found.estimates is not None
    assert found.estimates.log is not None
    assert found.estimates.log.seconds == 2.0
    assert 1_000_000 < found.estimates.log.bytes < 20_000_000


def test_estimates_come_from_the_statistics_and_not_from_the_rows(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (1000)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (1000) TO (2000)",
        "INSERT INTO p SELECT g, repeat('x', 500) FROM generate_series(0, 1999) g",
        "CREATE TABLE wide (id int PRIMARY KEY, v text)",
        "ALTER TABLE wide ALTER v SET STORAGE EXTERNAL",
        "INSERT INTO wide SELECT g, repeat('x', 10000) FROM generate_series(1, 100) g",
        "ANALYZE p1",
    )
    doc = document(database, tmp_path)
    before = assessed(doc, tmp_path).estimates
    assert before is not None
    assert [str(table) for table in before.unknown] == ["public.p", "public.wide"]
    sql("VACUUM ANALYZE p, wide", "DELETE FROM wide")
    found = assessed(doc, tmp_path).estimates
    assert found is not None
    rows = {str(table.table): table.rows for table in found.tables}
    assert rows == {"public.p": 2_000, "public.wide": 100}
    sizes = {str(table.table): table.bytes or 0 for table in found.tables}
    assert sizes["public.p"] > 2_000 * 500
    # Values that lie out of line count too.
    assert sizes["public.wide"] > 100 * 10_000


def test_warnings_about_a_column_can_be_switched_off_and_errors_cannot(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, token uuid, other uuid)")
    config = configured(read_document(document(database, tmp_path), tmp_path))
    quiet = {(TableId("public", "t"), "token")}
    (loud,) = assess_pipeline(config, sample=unwatched).tables
    (hushed,) = assess_pipeline(config, sample=unwatched, quiet=quiet).tables
    assert (loud.partially_supported, hushed.partially_supported) == (2, 1)


def test_one_table_is_assessed_before_it_is_selected_and_alone(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(*SHOP, "CREATE TABLE public.plain (id int PRIMARY KEY)")
    read = read_document(shop(database, tmp_path), tmp_path)
    plain = assess_table_of_document(read, "plain")
    assert plain.verdict is not None
    assert (plain.problems, len(plain.verdict.columns)) == (
        tuple(p for p in plain.problems if p.name == "statistics-missing"),
        1,
    )
    with pytest.raises(UnknownTable):
        assess_table_of_document(read, "nowhere")
    # What is wrong with other tables is not told here.
    names = {p.name for p in assess_table_of_document(read, "orders").problems}
    assert "no-key" not in names
    assert "expression-column-unknown" in names


def test_what_cannot_be_asked_is_told_for_one_table_too(tmp_path: Path) -> None:
    nowhere = "postgresql://user:swordfish@127.0.0.1:1/db?connect_timeout=2"
    found = assess_table_of_document(read_document(document(nowhere, tmp_path), tmp_path), "t")
    assert [problem.name for problem in found.problems] == ["source-unreachable"]
    assert found.to_json()["columns"] == []
    assert found.to_json()["connectivityProblems"][0]["impact"]


def test_a_role_that_may_only_connect_gets_an_answer(
    database: str, sql: Sql, role: str, tmp_path: Path
) -> None:
    sql(*SHOP)
    found = assessed(shop(as_role(database, role), tmp_path), tmp_path)
    assert {"no-select", "no-schema-usage", "role-not-replication"} <= {
        p.name for p in found.errors
    }
    assert len(found.tables) == 2
    assert LOGIN not in json.dumps(found.to_json())


def test_an_assessment_changes_nothing(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(*SHOP)
    facts = (
        "SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_publication), "
        "(SELECT count(*) FROM pg_replication_slots WHERE database = current_database()), "
        "(SELECT count(*) FROM pg_namespace)"
    )
    with psycopg.connect(database, autocommit=True) as connection:
        before = connection.execute(facts).fetchone()
        for target in (
            {"type": "delta", "path": str(tmp_path / "lake")},
            {"type": "duckdb", "path": str(tmp_path / "shop.duckdb")},
            {"type": "parquet", "path": str(tmp_path / "files")},
            {"type": "postgres", "url": database, "schema_prefix": "copy_"},
        ):
            doc = shop(database, tmp_path, target=target)
            doc["tables"] = {}
            assert len(assessed(doc, tmp_path).tables) == 2
        assert connection.execute(facts).fetchone() == before
    assert list(tmp_path.iterdir()) == []
