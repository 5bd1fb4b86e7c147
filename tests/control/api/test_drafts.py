"""Drafts over the API: put, shown, overwritten, deleted, and refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.replicator.control import store
from headrace.replicator.control.plane import ControlPlane
from tests.control.api.paths import NS, SHOP
from tests.control.asking import Asking
from tests.control.planes import config_of
from tests.requirements import req


@req("C90", "C91", "C92", "C93")
def test_a_draft_is_put_shown_overwritten_and_deleted(operator: Asking) -> None:
    path = f"{NS}/drafts/d-1"
    config = config_of()
    made = operator.does("PUT", path, {"label": "Shop", "config": config}, 201)
    assert made["config"] == config
    assert "${env:SHOP_PASSWORD}" in made["config"]["source"]["url"]
    assert operator.one(path) == made
    again = operator.does("PUT", path, {"label": "Shop 2", "config": {}}, 200)
    assert again["createdTimeMillis"] == made["createdTimeMillis"] <= again["updatedTimeMillis"]
    assert operator.one(f"{NS}/drafts") == [again]
    assert operator("DELETE", path).status == 204
    for method in ("GET", "DELETE"):
        answer = operator(method, path)
        assert (answer.status, answer.error["type"]) == (404, "NotFound")


@pytest.mark.parametrize(("name", "status"), [(".", 422), ("..", 422), ("...", 422), (".a.b", 201)])
def test_a_draft_is_not_called_like_the_folder_above_it(
    operator: Asking, name: str, status: int
) -> None:
    """Whoever deleted it through a browser would delete its namespace."""
    assert operator("PUT", f"{NS}/drafts/{name}", {"config": {}}).status == status


@req("C91")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"config": "text"},
        {"config": {}, "label": 3},
        {"config": {}, "other": 1},
        [],
        "text",
        None,
    ],
)
def test_a_draft_that_does_not_read_is_refused(operator: Asking, body: Any) -> None:
    answer = operator("PUT", f"{NS}/drafts/d", body)
    assert (answer.status, answer.error["type"]) == (422, "BadRequest")
    assert operator.one(f"{NS}/drafts") == []


@pytest.mark.parametrize(
    "config",
    ['{"a":' * 50 + "1" + "}" * 50, '{"a": "\\ud800"}', '{"\\ud800": 1}', '{"a": NaN}'],
    ids=["deep", "text", "name", "number"],
)
def test_a_configuration_that_cannot_be_shown_is_not_kept(operator: Asking, config: str) -> None:
    raw = f'{{"config": {{"in": {config}}}}}'.encode()
    for method, path in (
        ("PUT", f"{NS}/drafts/d"),
        ("PUT", SHOP),
        ("POST", f"{NS}/assessPipeline"),
    ):
        answer = operator(method, path, raw=raw)
        assert (answer.status, answer.error["type"]) == (422, "BadRequest")
        assert "config" in answer.error["message"]
    assert operator.one(f"{NS}/drafts") == []


@req("C70", "C93")
@pytest.mark.parametrize(
    ("section", "place"),
    [
        ({"source": {"url": "postgresql://u:open-sesame@h/d"}}, "source.url"),
        ({"source": {"url": "postgresql://u@h/d?password=open-sesame"}}, "source.url"),
        ({"source": {"url": "host=h password=open-sesame"}}, "source.url"),
        ({"target": {"store": {"secret_access_key": "open-sesame"}}}, "target.store.secret"),
        ({"relay": {"tokens": [{"token": "open-sesame"}]}}, r"relay.tokens\[0\].token"),
        ({"spark": {"conf": {"fs.s3a.secret.key": "open-sesame"}}}, "fs.s3a.secret.key"),
        ({"source": {"password": 123456789}}, "source.password"),
        ({"source": {"password": 1.5}}, "source.password"),
        ({"x_token": ["${env:A}", ["open-sesame"]]}, r"x_token\[1\]\[0\]"),
        (
            {"stages": [{"plugin": {"properties": {"password": "open-sesame"}}}]},
            r"stages\[0\].plugin.properties.password",
        ),
    ],
)
def test_a_secret_in_clear_is_refused_by_its_place_and_kept_nowhere(
    operator: Asking, folder: Path, section: dict[str, Any], place: str
) -> None:
    for method, path, body in (
        ("PUT", f"{NS}/drafts/d", {"config": section}),
        ("PUT", SHOP, {"config": section}),
        ("POST", f"{NS}/assessPipeline", {"config": section}),
    ):
        answer = operator(method, path, body)
        assert (answer.status, answer.error["type"]) == (422, "ConfigError")
        assert re.search(place, answer.error["message"])
        assert "open-sesame" not in answer.text
    for file in folder.rglob("*"):
        assert not file.is_file() or b"open-sesame" not in file.read_bytes()


def test_the_control_planes_own_secrets_are_not_for_replicators(operator: Asking) -> None:
    config = config_of(relay={"tokens": [{"name": "a", "token": "${env:CONTROL_TOKEN}"}]})
    for form in (
        config,
        {"stages": [{"plugin": {"properties": {"x": "${secure(control.token)}"}}}]},
    ):
        answer = operator("PUT", SHOP, {"config": form})
        assert answer.status == 422
        assert "CONTROL_TOKEN" in answer.error["message"]
    for place in ("file:control", "urlfile:control", "keyring:control"):
        config = config_of(relay={"tokens": [{"name": "a", "token": f"${{{place}}}"}]})
        answer = operator("PUT", SHOP, {"config": config})
        assert answer.status == 422
        assert place.removeprefix("url") in answer.error["message"]


def test_who_puts_a_draft_is_shown_that_one_whatever_others_do(
    operator: Asking, both: tuple[ControlPlane, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where somebody deletes it in the same moment."""
    plane, _ = both
    due = ["delete"]

    def passed(name: str) -> None:
        if name == "control.after_commit" and due:
            due.clear()
            with plane.writing() as writer:
                writer.delete_draft("default", "d")

    monkeypatch.setattr(store, "failpoint", passed)
    put = operator.does("PUT", f"{NS}/drafts/d", {"config": {}, "label": "mine"}, 201)
    assert put["label"] == "mine"
    assert operator("GET", f"{NS}/drafts/d").status == 404
