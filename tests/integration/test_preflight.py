"""``headrace preflight`` and ``headrace run``: what stands in the way is told before anything is begun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from tests.fixtures_postgres import Sql
from tests.requirements import req

pytestmark = pytest.mark.postgres


def written(database: str, folder: Path, **sections: Any) -> Path:
    path = folder / "shop.yaml"
    source = {"type": "postgres", "url": database, "tables": ["public.*"]}
    target = {"type": "delta", "path": str(folder / "lake")}
    path.write_text(json.dumps({"name": "shop", "source": source, "target": target, **sections}))
    return path


def told(command: str, file: Path) -> Result:
    return CliRunner().invoke(app, [command, str(file)])


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("no folder")
    return path


@req("C75")
@pytest.mark.parametrize("kind", ["delta", "parquet", "duckdb"])
def test_a_target_that_cannot_be_written_keeps_a_run_from_starting(
    database: str, sql: Sql, tmp_path: Path, blocked: Path, kind: str
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    place = blocked / "shop.duckdb" if kind == "duckdb" else blocked
    file = written(database, tmp_path, target={"type": kind, "path": str(place)})
    for command in ("preflight", "run"):
        shown = told(command, file)
        assert shown.exit_code == 1, command
        assert "target-not-writable" in shown.stdout
        assert "ready" not in shown.stdout
    with psycopg.connect(database) as connection:
        slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
        assert connection.execute(slots).fetchone() == (0,)


@req("C75")
def test_a_state_folder_that_cannot_be_made_keeps_a_run_from_starting(
    database: str, sql: Sql, tmp_path: Path, blocked: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    file = written(database, tmp_path, state={"dir": str(blocked / "state")})
    shown = told("preflight", file)
    assert shown.exit_code == 1
    assert "state-not-writable" in shown.stdout
    assert str(blocked) in shown.stdout


@req("C75", "C96")
def test_what_an_assessment_calls_an_error_is_not_ready(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql('CREATE TABLE t (id int PRIMARY KEY, v text, "V" text)')
    file = written(database, tmp_path)
    shown = told("preflight", file)
    assert shown.exit_code == 1
    assert shown.stdout.count("column-names-collide") == 1
    assert "ready" not in shown.stdout
    mapped = written(database, tmp_path, tables={"public.t": {"rename": {"V": "v_2"}}})
    ready = told("preflight", mapped)
    assert ready.exit_code == 0, ready.stdout
    assert "ready" in ready.stdout
