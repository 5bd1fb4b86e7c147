"""Tables of a source, as its catalog has them."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.errors import ConfigError, SourceUnavailable, UnknownTable
from headrace.replicator.assess.document import (
    assess_document,
    configured,
    read_document,
    source_configured,
)
from headrace.replicator.assess.tables import describe_table, list_tables
from headrace.replicator.config import Config
from headrace.sources.description import Given
from tests.fixtures_postgres import Sql, name_of
from tests.replicator.assess.assessed import Doc, document
from tests.requirements import req
from tests.sources.postgres.kinds import KINDS, SETUP

pytestmark = pytest.mark.postgres

SHOP = (
    "CREATE SCHEMA shop",
    "CREATE TABLE shop.orders (id bigint, line int, total numeric(12,2), note text, PRIMARY KEY (line, id))",
    "CREATE TABLE shop.keyless (v int, w int NOT NULL)",
    "CREATE TABLE shop.parted (id int PRIMARY KEY, d int GENERATED ALWAYS AS (id) STORED) PARTITION BY RANGE (id)",
    "CREATE TABLE shop.parted_1 PARTITION OF shop.parted FOR VALUES FROM (0) TO (9)",
    'CREATE TABLE "Odd ""name""" (id int PRIMARY KEY)',
    "CREATE TABLE twin (id int PRIMARY KEY)",
    "CREATE SCHEMA other",
    "CREATE TABLE other.twin (id int PRIMARY KEY)",
    "CREATE VIEW shop.seen AS SELECT 1 AS x",
    "CREATE TEMP TABLE passing (id int)",
)


def config_of(url: str, folder: Path, *tables: str) -> Config:
    doc = document(url, folder, source={"tables": list(tables or ("shop.*",))})
    return configured(read_document(doc, folder))


@req("C94")
def test_the_tables_are_those_of_the_catalog(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(*SHOP)
    with psycopg.connect(database) as connection:
        catalog = connection.execute(
            "SELECT table_schema, table_name, count(*) FROM information_schema.columns "
            "WHERE table_schema IN ('shop', 'public', 'other') AND (table_schema, table_name) NOT IN "
            "(('shop', 'seen'), ('shop', 'parted_1')) GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall()
    found = list_tables(config_of(database, tmp_path), every=True).to_json()["tables"]
    assert [(one["schema"], one["table"], one["numColumns"]) for one in found] == catalog
    assert {one["database"] for one in found} == {name_of(database)}
    assert all(one["name"] == one["table"] for one in found)
    selected = list_tables(config_of(database, tmp_path)).to_json()["tables"]
    assert [one["table"] for one in selected] == ["keyless", "orders", "parted"]


@req("C95")
def test_a_table_is_described_as_the_catalog_has_it(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(*SHOP)
    config = config_of(database, tmp_path)
    orders = describe_table(config, "orders").to_json()
    assert (orders["database"], orders["schema"], orders["name"], orders["numColumns"]) == (
        name_of(database),
        "shop",
        "orders",
        4,
    )
    # In the key's order, not the table's.
    assert orders["primaryKey"] == ["line", "id"]
    assert [(c["name"], c["type"], c["nullable"]) for c in orders["columns"]] == [
        ("id", "bigint", False),
        ("line", "integer", False),
        ("total", "numeric(12,2)", True),
        ("note", "text", True),
    ]
    assert orders["columns"][2]["properties"] == {
        "standardType": "decimal(12,2)",
        "given": "exact",
        "captured": "true",
    }
    assert orders["features"] == []
    keyless = describe_table(config, "keyless", "shop").to_json()
    assert keyless["primaryKey"] == []
    assert [c["nullable"] for c in keyless["columns"]] == [True, False]
    assert [problem["name"] for problem in keyless["features"]] == ["no-key"]
    # One that is not selected, and one whose rows lie in partitions.
    assert describe_table(config, 'Odd "name"').to_json()["numColumns"] == 1
    parted = describe_table(config, "shop.parted")
    assert {problem.name for problem in parted.features} == {
        "generated-columns",
        "partition-maintenance",
    }


@req("C95")
@pytest.mark.parametrize(
    ("name", "schema", "asked", "found"),
    [
        ("orders", "", "", "shop.orders"),
        ("shop.orders", "", "", "shop.orders"),
        # For those to whom a schema is a database.
        ("orders", "", "shop", "shop.orders"),
        ("twin", "", "", "public.twin"),
        ("twin", "other", "", "other.twin"),
        ("twin", "", "DATABASE", "public.twin"),
        ("orders", "public", "", None),
        ("orders", "shop", "elsewhere", None),
        ("order", "", "", None),
        ("seen", "", "", None),
    ],
)
def test_a_table_is_found_by_what_people_call_it_or_not_at_all(
    database: str, sql: Sql, tmp_path: Path, name: str, schema: str, asked: str, found: str | None
) -> None:
    sql(*SHOP)
    config = config_of(database, tmp_path)
    asked = name_of(database) if asked == "DATABASE" else asked
    if found is None:
        with pytest.raises(UnknownTable, match="has no table"):
            describe_table(config, name, schema, asked)
    else:
        assert str(describe_table(config, name, schema, asked).table.table) == found


def test_a_name_that_is_several_tables_is_refused_and_a_near_miss_is_helped(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(*SHOP, "DROP TABLE twin", "CREATE TABLE shop.twin (id int)")
    config = config_of(database, tmp_path)
    with pytest.raises(UnknownTable, match="one in each of the schemas other, shop"):
        describe_table(config, "twin")
    with pytest.raises(UnknownTable) as caught:
        describe_table(config, "ordrs")
    assert caught.value.next_step.endswith("did you mean shop.orders?")


@req("C97")
def test_every_type_says_what_becomes_of_it(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(*SETUP)
    columns = ", ".join(f"c{n} {kind.name}" for n, kind in enumerate(KINDS))
    sql(f"CREATE TABLE kinds ({columns})")
    found = describe_table(config_of(database, tmp_path), "kinds").table.columns
    assert len(found) == len(KINDS) > 40
    for column, kind in zip(found, KINDS, strict=True):
        assert column.arrow == kind.arrow, kind.name
        exact = kind.arrow != "string" or column.given is Given.EXACT
        assert exact or column.given is Given.AS_TEXT
    own_texts = {c.source_type for c in found if c.arrow == "string" and c.given is Given.EXACT}
    assert {"text", "character varying(20)", "mood", "json", "name"} & own_texts
    assert not {"uuid", "jsonb", "numeric", "interval", "integer[]", "inet"} & own_texts


def test_a_source_that_is_not_reached_is_an_error_here(tmp_path: Path) -> None:
    nowhere = "postgresql://user:swordfish@127.0.0.1:1/db?connect_timeout=2"
    with pytest.raises(SourceUnavailable) as caught:
        list_tables(config_of(nowhere, tmp_path))
    assert "swordfish" not in str(caught.value)


def test_a_relay_knows_no_tables(tmp_path: Path) -> None:
    doc = document("", tmp_path)
    doc["source"] = {"type": "relay", "urls": ["http://127.0.0.1:1"]}
    with pytest.raises(ConfigError, match="reads its changes from a relay"):
        list_tables(configured(read_document(doc, tmp_path)))


@req("C94")
@pytest.mark.parametrize("form", ["ours", "design"])
def test_a_draft_needs_no_target_for_its_tables_to_be_listed(
    database: str, sql: Sql, tmp_path: Path, form: str
) -> None:
    sql(*SHOP)
    source = {"url": database, "tables": ["shop.*"]}
    stage = {
        "name": "db",
        "plugin": {"name": "postgres", "type": "cdcSource", "properties": source},
    }
    drafts: dict[str, Doc] = {
        "ours": {"name": "shop", "source": {"type": "postgres", **source}, "dump": {"load": 7}},
        "design": {"name": "shop", "stages": [stage]},
    }
    draft = read_document(drafts[form], tmp_path)
    assert draft.config is None
    found = list_tables(source_configured(draft)).to_json()["tables"]
    assert [one["table"] for one in found] == ["keyless", "orders", "parted"]
    # And what is wrong with the source is told beside what is missing.
    told = {problem.name for problem in assess_document(draft).errors}
    assert "no-key" in told
    assert told & {"configuration", "stages-unfit"}


def test_a_draft_without_a_source_says_so(tmp_path: Path) -> None:
    target = {"type": "delta", "path": "lake"}
    for draft in ({"name": "shop", "target": target}, {"name": "shop", "stages": []}, {}):
        with pytest.raises(ConfigError, match="source"):
            source_configured(read_document(draft, tmp_path))
    broken = {"name": "shop", "source": {"type": "postgres", "url": "ftp://x"}, "target": target}
    with pytest.raises(ConfigError, match="2 problems"):
        source_configured(read_document(broken, tmp_path))
