"""docs/assessment.md says what assessment says: every kind, every field, and examples that run."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from headrace.replicator.assess.document import read_document
from headrace.replicator.assess.estimates import FIRST_COPY_ROWS_PER_S
from headrace.replicator.assess.forms import plugin_list
from headrace.replicator.assess.kinds import CATALOGUE
from headrace.replicator.assess.problems import Problem
from headrace.replicator.seed.plugins import plugins
from tests.cli.test_documents import blocks
from tests.fixtures_postgres import Sql, database, postgres_server, sql

__all__ = ["database", "postgres_server", "sql"]

NAME = "docs/assessment.md"
PAGE = (Path(__file__).parents[2] / NAME).read_text(encoding="utf-8")
GOLDEN = Path(__file__).parents[1] / "replicator" / "assess" / "golden"


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_kind_and_no_other_stands_on_the_page() -> None:
    rows = [line for line in section("Kinds of problems").splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{kind.name}` | {kind.group.value} | {kind.meaning} | {kind.impact} |"
        for kind in CATALOGUE.values()
    ]


def test_every_field_of_a_problem_stands_on_the_page() -> None:
    cells = re.findall(r"^\| (`.+?`) \|", section("A problem"), re.MULTILINE)
    named = [name.strip("` ") for cell in cells for name in cell.split(",")]
    assert named == list(Problem("no-key", "x", "y").to_json())


def test_fields_of_answers_and_estimates_are_those_of_the_golden_files() -> None:
    whole = json.loads((GOLDEN / "assessPipeline.json").read_text(encoding="utf-8"))
    shown = re.findall(r"^\| (`.+?`) \|", section("Estimates"), re.MULTILINE)
    named = {name.strip("` ") for cell in shown for name in cell.split(",")}
    assert named | {"logSampleSeconds"} == {*whole["estimates"], "bytes"}
    assert f"{FIRST_COPY_ROWS_PER_S:,.0f}" in section("Estimates")
    for name in ("listTables", "describeTable", "assessPipeline", "assessTable"):
        (row,) = [line for line in section("Shapes").splitlines() if line.startswith(f"| `{name}`")]
        answer = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
        for field in re.findall(r"`(\w+)(?:\[\])?`", row.rpartition(" | ")[2]):
            assert f'"{field}"' in json.dumps(answer), (name, field)
    plugin = plugin_list()[0]
    (row,) = [line for line in section("Shapes").splitlines() if line.startswith("| plugins")]
    assert set(re.findall(r"`(\w+)(?:\[\])?`", row.rpartition(" | ")[2])) == {
        *plugin,
        *plugin["properties"][0],
    }


def test_every_plugin_stands_on_the_page() -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| `plugin.name`")]
    sources, _, targets = row.partition("a target")
    assert set(re.findall(r"`(\w+)`", sources.partition("|")[2])) - {"plugin"} == {
        p.name for p in plugins() if p.side == "source"
    }
    assert set(re.findall(r"`(\w+)`", targets.partition(".")[0])) == {
        p.name for p in plugins() if p.side == "target"
    }


def test_the_document_in_the_designs_form_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    (text,) = blocks(NAME, "json")
    found = read_document(json.loads(text), tmp_path)
    assert found.problems == ()
    assert found.config is not None


@pytest.mark.postgres
def test_the_program_runs(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("CREATE TABLE orders (id int PRIMARY KEY)")
    source = f"{{type: postgres, url: '{database}', tables: ['public.*'], slot: nowhere}}"
    target = f"{{type: delta, path: {tmp_path}/lake}}"
    (tmp_path / "shop.yaml").write_text(f"name: shop\nsource: {source}\ntarget: {target}\n")
    monkeypatch.chdir(tmp_path)
    (text,) = blocks(NAME, "python")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(text, NAME, "exec"), {})
    assert said.getvalue().startswith("slot-missing ")
    assert "'rowsPerSecond': 50000.0" in said.getvalue()
    assert "'sourceName': 'id'" in said.getvalue()
