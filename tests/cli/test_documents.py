"""What the documents tell people to type exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from headrace import errors
from headrace.cli.main import app
from headrace.replicator.config import Config, MetricsConfig, ObjectiveConfig
from headrace.replicator.config_file import load, load_relay, load_serve
from headrace.replicator.observe_config import ActivityConfig, DropConfig

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/migration.md",
    "docs/operations.md",
    "docs/tap.md",
    "docs/targets.md",
    "docs/tutorial.md",
)
TYPED = (
    *(page for page in PAGES if page != "docs/targets.md"),
    "docs/consuming.md",
    "docs/serving.md",
    "docs/assessment.md",
    "docs/sources.md",
)


def blocks(page: str, language: str) -> list[str]:
    found: list[str] = []
    inside, wanted = False, False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("```"):
            inside = not inside
            wanted = inside and line.strip() == f"```{language}"
            if wanted:
                found.append("")
        elif wanted:
            found[-1] += line
    return found


def typed(page: str) -> list[str]:
    written = [*blocks(page, ""), *blocks(page, "sh")]
    lines = (line for block in written for line in block.splitlines())
    return [line.partition("#")[0].strip() for line in lines if line.startswith("headrace ")]


@pytest.mark.parametrize("page", TYPED)
def test_every_command_of_a_page_parses(page: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert typed(page)
    for line in typed(page):
        _, name, *arguments = shlex.split(line)
        command = group.commands[name]
        # A group with a default takes what is no command of it for an argument.
        while isinstance(command, TyperGroup) and arguments[0] in command.commands:
            name, *arguments = arguments
            command = command.commands[name]
        command.make_context(name, arguments, resilient_parsing=False).close()


@pytest.mark.parametrize("page", PAGES)
def test_every_configuration_of_a_page_loads(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    monkeypatch.setenv("SHOP", "postgresql://headrace@db.internal/shop")
    monkeypatch.setenv("WAREHOUSE", "postgresql://headrace@warehouse.internal/copies")
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "x")
    monkeypatch.setenv("STORE_KEY", "x")
    monkeypatch.setenv("STORE_SECRET", "x")
    monkeypatch.setenv("REPORTS_TOKEN", "x" * 16)
    monkeypatch.setenv("OPS_TOKEN", "y" * 16)
    monkeypatch.setenv("ALERTS_SECRET", "x")
    monkeypatch.setenv("UPSTREAM_TOKEN", "z" * 16)
    found = blocks(page, "yaml")
    assert found
    for text in found:
        path = tmp_path / "shop.yaml"
        path.write_text(text, encoding="utf-8")
        load_relay(path)


def test_the_file_of_tokens_of_the_page_about_serving_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ADA_TOKEN", "OTTO_TOKEN", "WALL_TOKEN"):
        monkeypatch.setenv(name, f"a-token-of-{name.lower()}")
    (text,) = blocks("docs/serving.md", "yaml")
    path = tmp_path / "people.yaml"
    path.write_text(text, encoding="utf-8")
    read = load_serve(path)
    assert [token.role for token in read.tokens] == ["admin", "operator", "viewer"]
    assert read.tls is not None
    assert read.tls.key == tmp_path / "serve.key"


def test_the_full_configuration_names_every_setting_and_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    monkeypatch.setenv("REPORTS_TOKEN", "x" * 16)
    monkeypatch.setenv("OPS_TOKEN", "y" * 16)
    monkeypatch.setenv("ALERTS_SECRET", "x")
    path = tmp_path / "shop.yaml"
    path.write_text(blocks("docs/operations.md", "yaml")[0], encoding="utf-8")
    written = load(path)

    assert set(written.model_fields_set) == set(Config.model_fields)
    for section in ("dump", "changelog", "apply", "spark", "tap"):
        found = getattr(written, section)
        assert found.model_fields_set == set(type(found).model_fields)
        assert found == type(found)(), f"the page shows other defaults of {section}"
    assert written.source.model_fields_set == set(type(written.source).model_fields)
    assert written.relay is not None
    assert written.relay.model_fields_set == set(type(written.relay).model_fields)
    assert written.metrics == MetricsConfig()
    assert written.objective is not None
    assert written.objective.model_fields_set == set(ObjectiveConfig.model_fields)
    unsaid = {"webhook": None, "secret": None}
    assert written.objective.model_copy(update=unsaid) == ObjectiveConfig()
    assert written.activity.drop is not None
    assert written.activity.drop.model_fields_set == set(DropConfig.model_fields)
    assert written.activity.drop.model_copy(update=unsaid) == DropConfig()
    assert written.activity.model_copy(update={"drop": None}) == ActivityConfig()
    shown = {"tls": None, "tokens": (), "routes": ()}
    assert written.relay.model_copy(update=shown) == type(written.relay)()


def test_every_error_of_the_operations_page_exists() -> None:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([A-Z]\w+)` \|", text, re.MULTILINE)
    assert len(named) > 8
    for name in named:
        assert issubclass(getattr(errors, name), errors.HeadraceError)
