"""The way back: our configuration in the design's JSON, from which the same configuration comes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.replicator.assess.document import configured, read_document
from headrace.replicator.seed.read import read_seed
from headrace.replicator.seed.secrets import in_url, ours, theirs, theirs_of_url, variable_of
from headrace.replicator.seed.write import write_seed
from tests.cli.test_documents import PAGES, blocks
from tests.requirements import req

from hypothesis import given, strategies as st  # isort: skip

GOLDEN = Path(__file__).parent / "golden"

ENVIRONMENT = {
    "SHOP_PASSWORD": "x/y@z",
    "SHOP": "postgresql://headrace@db.internal/shop",
    "WAREHOUSE": "postgresql://headrace@warehouse.internal/copies",
    "WAREHOUSE_PASSWORD": "of-the-warehouse",
    "STORE_KEY": "swordfish-key",
    "STORE_SECRET": "swordfish-secret",
    "REPORTS_TOKEN": "x" * 16,
    "OPS_TOKEN": "y" * 16,
    "ALERTS_SECRET": "x" * 16,
    "UPSTREAM_TOKEN": "z" * 16,
    "KMS_KEY": "sword/fish@7",
}

OURS: list[dict[str, Any]] = [
    document
    for page in PAGES
    for text in blocks(page, "yaml")
    if "source" in (document := yaml.safe_load(text))
]
"""Every configuration of the documents."""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@req("C68")
@pytest.mark.parametrize("document", OURS, ids=lambda d: str(d.get("name")))
def test_every_configuration_of_the_documents_comes_back(
    document: dict[str, Any], tmp_path: Path
) -> None:
    before = read_document(document, tmp_path)
    written = write_seed(document)
    assert json.loads(json.dumps(written)) == written
    again = read_document(written, tmp_path)
    assert configured(again) == before.config
    # References are references still, and nothing is spelt out.
    said = json.dumps([written, again.mapping])
    assert [value for value in ENVIRONMENT.values() if "://" not in value and value in said] == []


@pytest.mark.parametrize("name", ["design", "full"])
def test_a_document_of_the_design_comes_back(name: str, tmp_path: Path) -> None:
    text = (GOLDEN / f"{name}.json").read_text(encoding="utf-8")
    first = read_document(json.loads(text), tmp_path)
    written = write_seed(first.mapping, first.about)
    again = read_document(written, tmp_path)
    assert configured(again) == configured(first)
    assert again.about == first.about
    # What is written once is written so again.
    assert write_seed(again.mapping, again.about) == written


def test_what_the_design_has_words_for_is_said_in_them() -> None:
    first = read_seed(json.loads((GOLDEN / "design.json").read_text(encoding="utf-8")))
    written = write_seed(first.mapping)
    source, target = written["stages"]
    assert source["plugin"]["properties"] == {
        "host": "db.internal",
        "port": "5432",
        "user": "repluser",
        "password": "${secure(KMS_KEY)}",
        "database": "shop",
    }
    assert (source["plugin"]["type"], target["plugin"]["type"]) == ("cdcSource", "cdcTarget")
    assert written["connections"] == [{"from": "source", "to": "target"}]
    tables = {
        "source": {
            "type": "postgres",
            "tables": ["s.a", "s.b"],
            "columns": {"s.a": {"include": ["x"]}},
        }
    }
    settings = {"s.a": {"rename": {"x": "y"}}, "s.b": {"where": "x > 1"}}
    said = write_seed({**tables, "target": {"type": "delta", "path": "x"}, "tables": settings})
    assert said["tables"] == [
        {"schema": "s", "table": "a", "columns": [{"name": "x"}]},
        {"schema": "s", "table": "b"},
    ]
    assert said["tableTransformations"] == [
        {
            "tableName": "s.a",
            "columnTransformations": [{"columnName": "x", "directive": "rename x y"}],
        }
    ]
    assert said["headrace"] == {"tables": {"s.b": {"where": "x > 1"}}}


NAMES = st.text(st.characters(codec="ascii", exclude_characters=")"), min_size=1, max_size=12)


@given(NAMES)
def test_each_secret_has_a_variable_that_a_shell_takes(name: str) -> None:
    assert variable_of(name).replace("_", "A").isalnum()
    assert not variable_of(name)[:1].isdigit()
    # Said in our words, a secret has the name that it has.
    assert variable_of(variable_of(name)) == variable_of(name)


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from(["${secure(a-b)}", "${env:X_1}"]))))
def test_parts_of_a_url_come_back(parts: list[str]) -> None:
    text = "".join(part.replace("$", "s") if "{" not in part else part for part in parts)
    if "${" in text.replace("${secure(a-b)}", "").replace("${env:X_1}", ""):
        return
    escaped = in_url(text)
    assert not set(escaped.replace("${urlenv:A_B}", "").replace("${urlenv:X_1}", "")) & set(
        "@/:?# "
    )
    assert ours(theirs_of_url(escaped)) == ours(text)


def test_references_are_replaced_at_any_depth() -> None:
    value = {"a": ["${secure(kms-key)}", {"b": "x ${secure( 1 )} y", "c": 7, "d": None}]}
    mine = {"a": ["${env:KMS_KEY}", {"b": "x ${env:_1} y", "c": 7, "d": None}]}
    assert ours(value) == mine
    assert ours(theirs(mine)) == mine
