"""docs/sources.md and docs/targets.md: what is there and what is not, the places of further ones, and what is argued."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.replicator.assess.document import assess_document, read_document
from headrace.replicator.seed.plugins import Side, plugins
from headrace.sources import base
from tests.requirements import req

ROOT = Path(__file__).parents[2]
SOURCES, TARGETS = (
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("sources.md", "targets.md")
)


def kinds(page: str) -> set[str]:
    """Return the types in the page's first table."""
    return set(re.findall(r"^\| [^|]+ \| `(\w+)` \|", page, re.MULTILINE))


@req("C07", "C08", "C21", "C109")
@pytest.mark.parametrize(("page", "side"), [(SOURCES, "source"), (TARGETS, "target")])
def test_the_pages_name_what_is_there_and_nothing_else(page: str, side: Side) -> None:
    assert kinds(page) == {plugin.name for plugin in plugins() if plugin.side == side}


@req("C07", "C08")
@pytest.mark.parametrize(
    ("page", "side", "name"),
    [
        *((SOURCES, "source", name) for name in ("Oracle", "SQL Server")),
        *((TARGETS, "target", name) for name in ("BigQuery", "Spanner", "Redshift", "Snowflake")),
    ],
)
def test_what_is_not_there_is_said_and_assessed_by_name(page: str, side: str, name: str) -> None:
    assert name in page
    plugin = name.replace(" ", "").lower()
    plugins_of = {"source": "postgres", "target": "delta", side: plugin}
    stages: list[dict[str, Any]] = [
        {"name": at, "plugin": {"name": plugins_of[at], "type": f"cdc{at.title()}", "properties": {}}}
        for at in ("source", "target")
    ]
    document = {
        "name": "shop",
        "stages": stages,
        "connections": [{"from": "source", "to": "target"}],
    }
    found = assess_document(read_document(document, Path("/")))
    (problem,) = (one for one in found.errors if one.name == "plugin-unknown")
    assert plugin in problem.description


@req("P74", "D132", "C109")
def test_whoever_adds_a_source_is_led_to_every_port_there_is() -> None:
    ports = {
        f"headrace.sources.base.{name}"
        for name in base.__all__
        if getattr(getattr(base, name), "_is_protocol", False)
    }
    named = set(re.findall(r"^\| `(headrace\.sources\.base\.\w+)` \|", SOURCES, re.MULTILINE))
    # What a source is given is no part that it fills.
    assert named == ports - {"headrace.sources.base.SchemaStore"}
    for heading in ("Without one linear log", "Which agree only in the end"):
        section = SOURCES.partition(f"### {heading}\n")[2].partition("\n#")[0]
        assert "SCN" in section or "frontier" in section
        quoted = set(re.findall(r"`(\w+)`", section))
        assert quoted & {"LogReader", "ChunkReader", "preflight"}, heading


@req("D20")
def test_that_two_writes_do_not_keep_a_copy_is_shown_by_running_it() -> None:
    section = SOURCES.partition("## Why the log")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/sources.md", "exec"), names)  # noqa: S102 - our own page
    assert names["source"] != names["copy"]
    # In the log's order, whichever that is, the copy is the source.
    twice = names["written_twice"]
    for order in ([("id 1", "Ann"), ("id 1", "Bob")], [("id 1", "Bob"), ("id 1", "Ann")]):
        source, copy = twice(order, order)
        assert source == copy
