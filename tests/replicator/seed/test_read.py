"""The design's JSON: what it says in our words, and that nothing of it is dropped without a word."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.replicator.assess.document import configured, load_document, read_document
from headrace.replicator.config import PostgresConfig
from headrace.replicator.config_file import load
from headrace.replicator.seed.read import is_seed, read_seed
from headrace.sources.base import Severity
from tests.replicator.seed.cases import CASES, Case, Doc, smallest
from tests.requirements import req

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOP_KEY", "A_B", "KMS_KEY"):
        monkeypatch.setenv(name, "sword/fish@7")


@req("F13", "C68", "C22", "C-19")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind} {case.field}")
def test_each_set_up_is_caught(case: Case, tmp_path: Path) -> None:
    found = read_document(case.document(), tmp_path)
    named = [p for p in found.problems if p.name == case.kind and p.field == case.field]
    assert named, [(p.name, p.field, p.description) for p in found.problems]
    problem = named[0]
    assert problem.severity.value == case.severity
    assert case.says in f"{problem.description} {problem.suggestion}"
    assert "swordfish" not in str(found.problems)
    assert "sword/fish" not in str(found.problems)


@req("C68")
def test_the_smallest_document_reads_without_a_word(tmp_path: Path) -> None:
    document = read_document(smallest(), tmp_path)
    assert document.problems == ()
    config = configured(document)
    assert isinstance(config.source, PostgresConfig)
    url = config.source.url.get_secret_value()
    assert url == "postgresql://headrace:sword%2Ffish%407@db.internal:5432/shop"
    assert config.source.tables == ("*.*",)
    # The secret is where it was: in the environment alone.
    assert document.mapping["source"]["url"] == (
        "postgresql://headrace:${urlenv:SHOP_KEY}@db.internal:5432/shop"
    )


@req("C68", "C71")
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("cdcSource", "cdcTarget"),
        ("CDCSource", "CDCTarget"),
        ("cdc-origin", "cdc-destination"),
        ("cdc_source", "cdc_target"),
    ],
)
def test_every_spelling_of_the_types_is_taken(source: str, target: str, tmp_path: Path) -> None:
    document = smallest()
    for stage, type_ in zip(document["stages"], (source, target), strict=True):
        stage["plugin"]["type"] = type_
    assert read_document(document, tmp_path).problems == ()


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda doc: doc,
        lambda doc: {"config": doc},
        lambda doc: {"name": "shop", "label": "Shop", "config": doc},
        lambda doc: {"dBTable": {"table": "t"}, "deltaConfig": doc},
        lambda doc: {"artifact": {"name": "delta-app"}, "config": doc},
    ],
)
def test_every_envelope_is_opened(wrapped: Any, tmp_path: Path) -> None:
    document = wrapped(smallest())
    assert is_seed(document)
    assert read_document(document, tmp_path).problems == ()
    assert not is_seed({"name": "shop", "source": {}, "target": {}})


@req("C68")
@pytest.mark.parametrize("name", ["design", "full"])
def test_documents_in_the_form_of_the_design_say_what_the_golden_files_say(
    name: str, tmp_path: Path
) -> None:
    """``design`` is the example of the design with our plugin names and properties, ``full`` has every field."""
    found = read_seed(json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8")))
    said = {
        "mapping": found.mapping,
        "problems": [[p.severity.value, p.name, p.field] for p in found.problems],
        "quiet": [[str(table), column] for table, column in sorted(found.quiet)],
        "about": found.about,
    }
    assert said == json.loads((GOLDEN / f"{name}.ours.json").read_text(encoding="utf-8"))
    reading = read_document(json.loads((GOLDEN / f"{name}.json").read_text("utf-8")), tmp_path)
    assert [p for p in reading.problems if p.severity is Severity.ERROR] == []
    configured(reading)


def test_nothing_is_dropped_without_a_word() -> None:
    """Whatever is added anywhere in a document changes what it says, or is named."""
    full: Doc = json.loads((GOLDEN / "full.json").read_text(encoding="utf-8"))
    before = read_seed(full)
    places = 0
    for added in _with_one_more(full):
        after = read_seed(added)
        told = len(after.problems) > len(before.problems) or after.mapping != before.mapping
        assert told, json.dumps(added)
        places += 1
    assert places > 12


def _with_one_more(document: Doc) -> list[Doc]:
    """Return copies of a document, each with a field more in another one of its sections."""
    found: list[Doc] = []

    def walk(path: tuple[Any, ...], value: Any) -> None:
        if isinstance(value, dict):
            copy = deepcopy(document)
            place: Any = copy
            for step in path:
                place = place[step]
            if path[-1:] != ("artifact",) and path[:1] != ("headrace",):
                place["surprise"] = "x"
                found.append(copy)
            for key, inner in value.items():
                walk((*path, key), inner)
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                walk((*path, number), inner)

    walk((), document)
    return found


def test_common_settings_count_for_single_tables_too() -> None:
    document = smallest()
    document["stages"][1]["plugin"]["properties"]["softDeletes"] = "true"
    document["tables"] = [{"table": "t", "ddlBlacklist": ["DROP_TABLE"]}]
    assert read_seed(document).mapping["tables"] == {
        "public.t": {"changes": {"dropped_table": "keep"}, "mode": "soft_delete"},
        "*.*": {"mode": "soft_delete"},
    }


def test_a_column_whose_warnings_are_not_wanted_is_captured_and_quiet() -> None:
    document = smallest()
    document["tables"] = [
        {
            "schema": "s",
            "table": "t",
            "columns": [{"name": "a"}, {"name": "b", "suppressWarning": True}],
        }
    ]
    found = read_seed(document)
    assert found.mapping["source"]["columns"] == {"s.t": {"include": ["a", "b"]}}
    assert found.quiet == {(TableId("s", "t"), "b")}


def test_both_plugins_unknown_are_two_problems_and_no_error(tmp_path: Path) -> None:
    document = smallest()
    document["stages"][0]["plugin"]["name"] = "oracle"
    document["stages"][1]["plugin"]["name"] = "bigquery"
    found = read_document(document, tmp_path)
    assert found.config is None
    assert [p.name for p in found.problems] == ["plugin-unknown", "plugin-unknown"]


@req("C68")
def test_a_replicator_starts_from_the_designs_form(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "shop.json"
    document = smallest() | {"service": "assessor"}
    path.write_text(json.dumps({"config": document}), encoding="utf-8")
    assert load(path) == configured(load_document(path))
    assert "shop.json: service service has no counterpart" in caplog.text
    document["stages"][1]["plugin"]["name"] = "bigquery"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ConfigError, match="no target bigquery") as caught:
        load(path)
    assert "headrace assess shop.json" in caught.value.next_step
    assert "stages[1].plugin.name" in caught.value.message
