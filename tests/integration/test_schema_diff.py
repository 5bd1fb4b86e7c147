"""``headrace schema diff``: what the next change of each table will do to its target, told without doing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.replicator import config_file, runner
from headrace.replicator.databases import open_database
from headrace.spark.targets.tables import DeltaTables
from tests.fixtures_postgres import Sql
from tests.requirements import req

pytestmark = pytest.mark.postgres


@pytest.fixture
def file(database: str, tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    source = {"type": "postgres", "url": database, "tables": ["public.*"]}
    target = {"type": "delta", "path": str(tmp_path / "lake")}
    path.write_text(json.dumps({"name": "shop", "source": source, "target": target}))
    return path


def copied(file: Path) -> DeltaTables:
    """Make the targets of what the source has now, as their dumps would."""
    config = config_file.load(file)
    targets = DeltaTables(config.lake, config.name, vectors=True)
    for schema in open_database(config).tables():
        targets.evolve(schema)
    return targets


@req("C30")
def test_each_column_is_told_what_will_happen_to_it_and_then_it_does(file: Path, sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, a text, b int, c text, d numeric(6,2))",
        "CREATE TABLE same (id int PRIMARY KEY)",
    )
    targets = copied(file)
    sql(
        "ALTER TABLE t RENAME a TO label",
        "ALTER TABLE t ALTER b TYPE bigint",
        "ALTER TABLE t DROP c",
        "ALTER TABLE t ADD more date",
        "CREATE TABLE fresh (id int PRIMARY KEY)",
    )
    shown = CliRunner().invoke(app, ["schema", "diff", str(file), "--json"])
    assert shown.exit_code == 0
    told = {table["table"]: table for table in json.loads(shown.stdout)}
    assert {name: table["state"] for name, table in told.items()} == {
        "public.t": "changes",
        "public.same": "same",
        "public.fresh": "new",
    }
    assert {(c["change"], c["column"], c["detail"]) for c in told["public.t"]["changes"]} == {
        ("rename", "a", "to label"),
        ("widen", "b", "from int32 to int64"),
        ("drop", "c", "older versions keep it"),
        ("add", "more", "date"),
    }
    shown = CliRunner().invoke(app, ["schema", "diff", str(file)])
    assert "rename" in shown.stdout
    assert "1 of 3 tables have the same columns" in shown.stdout

    config = config_file.load(file)
    (schema,) = (s for s in open_database(config).tables() if s.table.name == "t")
    targets.evolve(schema)
    held = DeltaTable(table_path(config.lake, schema.table)).snapshot()
    assert sorted(held.schema.names) == ["b", "d", "id", "label", "more"]
    (after,) = (t for t in runner.schema_diff(config) if t.table == "public.t")
    assert after.state == "same"


@req("C30")
def test_a_change_that_will_be_refused_is_named_and_ends_with_one(file: Path, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, a text)")
    copied(file)
    sql("ALTER TABLE t ALTER a TYPE int USING 1")
    shown = CliRunner().invoke(app, ["schema", "diff", str(file)])
    assert shown.exit_code == 1
    assert "from string to int32" in shown.stdout
    assert "such a table waits" in shown.stdout


@req("C30")
def test_a_name_that_the_target_does_not_take_is_refused_before_the_table_comes(
    file: Path, sql: Sql
) -> None:
    sql(
        'CREATE TABLE fresh (id int PRIMARY KEY, v text, "V" text)',
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
    )
    (table,) = (s for s in open_database(config_file.load(file)).tables() if s.table.name == "t")
    config = config_file.load(file)
    DeltaTables(config.lake, config.name, vectors=True).evolve(table)
    sql('ALTER TABLE t ADD "V" text')
    shown = CliRunner().invoke(app, ["schema", "diff", str(file), "--json"])
    assert shown.exit_code == 1
    told = {one["table"]: one for one in json.loads(shown.stdout)}
    assert told["public.fresh"]["state"] == "new"
    for one in told.values():
        assert [(c["change"], c["column"]) for c in one["changes"]] == [("refused", "V")]
