"""What a draft would become, asked over HTTP of a real PostgreSQL."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from tests.control.asking import Asking, served
from tests.requirements import req

pytestmark = pytest.mark.postgres

NS = "/v1/contexts/default"
DRAFT = f"{NS}/drafts/d"


@pytest.fixture
def config(
    database: str, tmp_path: Path, sql: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Return a configuration whose URL is a secret as a whole."""
    monkeypatch.setenv("WHOLE_URL", database)
    sql(
        "CREATE TABLE orders (id int PRIMARY KEY, total numeric(10,2) NOT NULL, note text)",
        "CREATE TABLE notes (note text)",
    )
    return {
        "source": {"type": "postgres", "url": "${env:WHOLE_URL}", "tables": ["public.*"]},
        "target": {"type": "delta", "path": str(tmp_path / "lake")},
    }


@pytest.fixture
def ask(tmp_path: Path, config: dict[str, Any]) -> Iterator[Asking]:
    with served(tmp_path) as (_, url):
        asking = Asking(url)
        asking.does("PUT", DRAFT, {"config": config}, 201)
        yield asking


@req("C94")
def test_the_tables_of_a_draft_are_those_of_the_catalog(ask: Asking) -> None:
    tables = ask.does("POST", f"{DRAFT}/listTables", status=200)["tables"]
    assert [(one["schema"], one["table"], one["numColumns"]) for one in tables] == [
        ("public", "notes", 1),
        ("public", "orders", 3),
    ]


@req("C95")
def test_a_table_is_described_as_the_catalog_has_it(ask: Asking) -> None:
    asked = {"table": "orders", "schema": "public"}
    told = ask.does("POST", f"{DRAFT}/describeTable", asked, 200)
    assert told["primaryKey"] == ["id"]
    assert [(one["name"], one["type"], one["nullable"]) for one in told["columns"]] == [
        ("id", "integer", False),
        ("total", "numeric(10,2)", False),
        ("note", "text", True),
    ]
    missing = ask("POST", f"{DRAFT}/describeTable", {"table": "nothing"})
    assert (missing.status, missing.error["type"]) == (404, "UnknownTable")


@req("C96", "C97")
def test_a_draft_and_a_configuration_that_is_not_kept_are_assessed_alike(
    ask: Asking, config: dict[str, Any]
) -> None:
    whole = ask.does("POST", f"{DRAFT}/assessPipeline", status=200)
    named = {(problem["name"], problem["table"]) for problem in whole["features"]}
    assert any(table == "public.notes" for _, table in named), "it has no key"
    assert whole["connectivity"] == []
    again = ask.does("POST", f"{NS}/assessPipeline", {"config": config}, 200)
    assert again["features"] == whole["features"]

    table = ask.does("POST", f"{DRAFT}/assessTable", {"table": "orders"}, 200)
    assert [(one["sourceName"], one["support"]) for one in table["columns"]] == [
        ("id", "YES"),
        ("total", "YES"),
        ("note", "YES"),
    ]
    body = {"dBTable": {"table": "orders", "database": ""}, "deltaConfig": config}
    assert ask.does("POST", f"{NS}/assessTable", body, 200) == table
    assert ask.one(f"{NS}/drafts")[0]["config"] == config


@req("C-10")
def test_local_and_remote_assessment_agree(
    ask: Asking, config: dict[str, Any], tmp_path: Path
) -> None:
    """The command reads the file in its own process, the API in the control plane's."""
    file = tmp_path / "draft.json"
    file.write_text(json.dumps({"name": "draft", **config}))
    local = CliRunner().invoke(app, ["assess", str(file), "--json"], catch_exceptions=False)
    remote = ask.does("POST", f"{DRAFT}/assessPipeline", status=200)
    assert _timeless(json.loads(local.stdout)) == _timeless(remote)
    words = ["assess", str(file), "--table", "public.orders", "--json"]
    one = CliRunner().invoke(app, words, catch_exceptions=False)
    asked = {"table": "orders", "schema": "public"}
    assert json.loads(one.stdout) == ask.does("POST", f"{DRAFT}/assessTable", asked, 200)


def _timeless(assessed: dict[str, Any]) -> dict[str, Any]:
    """Leave out how fast the log grew while each of them looked."""
    measured = ("logBytesPerHour", "logSampleSeconds")
    estimates = {k: v for k, v in assessed["estimates"].items() if k not in measured}
    return {**assessed, "estimates": estimates}


@req("C-9")
def test_secrets_of_a_draft_are_resolved_while_it_is_assessed_and_at_no_other_time(
    ask: Asking, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = os.environ["WHOLE_URL"]
    monkeypatch.delenv("WHOLE_URL")
    draft = {**config, "description": "with ${macro} and ${secure(a.b)}"}
    put = ask.does("PUT", DRAFT, {"label": "shop", "config": draft}, 200)
    assert put["config"] == ask.one(DRAFT)["config"] == draft
    ask.does("PUT", DRAFT, {"label": "shop", "config": config}, 200)
    unset = ask("POST", f"{DRAFT}/assessPipeline").json
    problems = [p for name in ("features", "connectivity") for p in unset[name]]
    assert "secret-unresolved" in {problem["name"] for problem in problems}
    assert any("WHOLE_URL" in problem["description"] for problem in problems)
    monkeypatch.setenv("WHOLE_URL", secret)
    assert ask.does("POST", f"{DRAFT}/assessPipeline", status=200)["connectivity"] == []
    assert ask.one(DRAFT)["config"] == config
    for kept in (tmp_path / "state").rglob("*"):
        assert not kept.is_file() or secret.encode() not in kept.read_bytes()


@req("C96")
def test_a_source_that_is_away_is_a_problem_with_advice_and_without_its_secret(
    ask: Asking, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHOLE_URL", "postgresql://u:open-sesame@127.0.0.1:1/d?connect_timeout=2")
    answer = ask("POST", f"{DRAFT}/assessPipeline")
    assert answer.status == 200
    (problem,) = answer.json["connectivity"]
    assert problem["severity"] == "ERROR"
    assert problem["suggestion"]
    assert "open-sesame" not in answer.text


def test_what_does_not_read_is_found_before_anybody_is_asked(ask: Asking) -> None:
    found = ask.does("POST", f"{NS}/assessPipeline", {"config": {"source": {}}}, 200)
    assert found["tables"] == []
    refused = ask("POST", f"{NS}/drafts/other/listTables")
    assert refused.status == 404
    ask.does("PUT", f"{NS}/drafts/other", {"config": {}}, 201)
    unfinished = ask("POST", f"{NS}/drafts/other/listTables")
    assert (unfinished.status, unfinished.error["type"]) == (422, "ConfigError")
