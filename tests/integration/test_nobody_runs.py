"""What commands say of a replicator that nobody runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from tests.fixtures_postgres import Sql

pytestmark = pytest.mark.postgres


@pytest.fixture
def file(database: str, sql: Sql, tmp_path: Path) -> Path:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    path = tmp_path / "shop.yaml"
    source = {"type": "postgres", "url": database, "tables": ["public.*"]}
    target = {"type": "delta", "path": str(tmp_path / "lake")}
    path.write_text(json.dumps({"name": "shop", "source": source, "target": target}))
    return path


@pytest.mark.timeout(30)
def test_verify_ends_at_once_and_says_why(file: Path) -> None:
    shown = CliRunner().invoke(app, ["verify", str(file), "--json"])
    assert shown.exit_code == 1
    assert "public.t: nobody runs the replicator" in shown.stderr
    assert [table["state"] for table in json.loads(shown.stdout)["tables"]] == ["copying"]
