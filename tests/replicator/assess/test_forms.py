"""Sources and targets as data: enough to draw a form, and what a form gives is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace import __version__
from headrace.replicator.assess.document import read_document
from headrace.replicator.assess.forms import plugin_list
from headrace.replicator.seed.plugins import plugins
from tests.replicator.seed.cases import smallest
from tests.requirements import req


def properties(side: str, name: str) -> dict[str, dict[str, Any]]:
    (found,) = [p for p in plugin_list() if (p["type"], p["name"]) == (side, name)]
    return {one["name"]: one for one in found["properties"]}


@req("C71")
def test_plugins_are_listed_by_name_type_and_version_with_their_properties() -> None:
    listed = plugin_list()
    assert [(p["type"], p["name"]) for p in listed] == [
        ("cdcSource", "postgres"),
        ("cdcSource", "mysql"),
        ("cdcSource", "trigger"),
        ("cdcSource", "files"),
        ("cdcSource", "relay"),
        ("cdcTarget", "delta"),
        ("cdcTarget", "duckdb"),
        ("cdcTarget", "postgres"),
        ("cdcTarget", "mysql"),
        ("cdcTarget", "parquet"),
    ]
    for plugin in listed:
        assert plugin["artifact"] == {
            "name": "headrace",
            "version": __version__,
            "scope": "SYSTEM",
        }
        assert plugin["description"].endswith((".", "``."))
    assert json.loads(json.dumps(listed)) == listed


@req("C110", "C71")
@pytest.mark.parametrize("plugin", plugins(), ids=lambda p: f"{p.side} {p.name}")
def test_every_property_says_what_a_form_needs(plugin: Any) -> None:
    found = properties(plugin.type, plugin.name)
    assert set(plugin.fields) <= set(found)
    for name, one in found.items():
        assert one["label"], name
        assert one["description"], name
        text = json.dumps(one["schema"])
        assert "$ref" not in text, "a form needs nothing but what is here"
        assert {"type", "anyOf", "enum", "const"} & set(one["schema"]), name


@req("C110")
def test_secrets_needed_properties_choices_and_bounds_are_marked() -> None:
    source = properties("cdcSource", "postgres")
    assert [name for name, one in source.items() if one["required"]] == ["host", "database"]
    assert [name for name, one in source.items() if one["secret"]] == ["password", "url"]
    assert source["url"]["insteadOf"] == ["host", "port", "database", "user", "password"]
    assert source["watermark"]["schema"]["enum"] == ["message", "table"]
    assert source["heartbeat_s"]["label"] == "Heartbeat (seconds)"
    assert source["heartbeat_s"]["schema"]["exclusiveMinimum"] == 0
    target = properties("cdcTarget", "delta")
    assert [name for name, one in target.items() if one["required"]] == ["path"]
    assert target["vectors"]["schema"] == {"default": True, "type": "boolean"}
    store = target["store"]["schema"]["properties"]
    assert store["secret_access_key"]["anyOf"][0]["format"] == "password"
    relay = properties("cdcSource", "relay")
    # What a section has from another one is described there.
    assert relay["urls"]["description"].startswith("any of them;")
    assert relay["token"]["secret"]


@req("C110")
def test_what_a_form_gives_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every property with its default, as text where a form has text."""
    monkeypatch.setenv("SHOP_KEY", "swordfish")
    document = smallest()
    for stage in document["stages"]:
        plugin = stage["plugin"]
        for name, one in properties(plugin["type"], plugin["name"]).items():
            if "default" in one["schema"] and name not in plugin["properties"]:
                value = one["schema"]["default"]
                plugin["properties"][name] = value if value is None else _typed(value)
    assert read_document(document, tmp_path).problems == ()


def _typed(value: Any) -> Any:
    """Return a value as somebody types it."""
    if isinstance(value, bool):
        return str(value).lower()
    return (
        value
        if isinstance(value, dict)
        else ",".join(value)
        if isinstance(value, list)
        else str(value)
    )
