"""What commands say of a replicator that nobody runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli import dumps
from headrace.cli.main import app
from headrace.errors import StateError
from headrace.replicator.requests import Requests
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


@pytest.mark.timeout(60)
def test_a_dump_that_is_asked_for_says_that_nobody_carries_it_out(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = CliRunner().invoke(app, ["dump", "start", str(file), "--table", "public.t"])
    assert shown.exit_code == 0
    assert "nobody runs the replicator" in shown.stderr
    asked = shown.stdout.removeprefix("queued: request ").strip()
    paused = CliRunner().invoke(app, ["dump", "pause", str(file), asked])
    assert "nobody runs the replicator" in paused.stderr

    looks = iter(range(3))

    def wait(request: str, *, look: Callable[[], None], **_: object) -> None:
        for _look in looks:
            look()
        raise StateError(f"request {request}: enough", next_step="none.")

    monkeypatch.setattr(Requests, "wait", lambda _self, *args, **given: wait(*args, **given))
    monkeypatch.setattr(dumps, "_LOOK_S", 0.0)
    waiting = CliRunner().invoke(app, ["dump", "start", str(file), "--table", "all", "--wait"])
    assert waiting.exit_code == 2
    assert waiting.stderr.count("nobody runs the replicator") == 1, "said once"
