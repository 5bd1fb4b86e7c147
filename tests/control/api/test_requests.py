"""Requests to the API as such: too large, unreadable, foreign; and answers as the document says."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from fastapi.openapi.models import OpenAPI

from headrace.replicator.api.bodies import ReplicatorList
from headrace.replicator.api.guard import MOST_BODY_BYTES
from tests.control.api.paths import NS, SHOP
from tests.control.asking import Asking, served
from tests.control.planes import config_of
from tests.requirements import req
from tests.waiting import until


@req("A-16")
def test_a_body_that_is_too_large_is_not_read_to_its_end(operator: Asking) -> None:
    body = json.dumps({"config": {"x": "y" * MOST_BODY_BYTES}}).encode()
    answer = operator("PUT", f"{NS}/drafts/d", raw=body)
    assert (answer.status, answer.error["type"]) == (413, "RequestTooLarge")


def test_a_body_that_is_no_json_is_refused_and_not_repeated(operator: Asking) -> None:
    answer = operator("PUT", f"{NS}/drafts/d", raw=b'{"config": open-sesame')
    assert answer.status == 422
    assert "open-sesame" not in answer.text


@pytest.mark.parametrize(
    "value",
    [b'"\xff"', b"9" * 5000, b"[" * 50_000 + b"]" * 50_000],
    ids=["encoding", "number", "depth"],
)
def test_a_body_that_python_cannot_read_is_refused_as_a_body(
    operator: Asking, value: bytes
) -> None:
    answer = operator("PUT", f"{NS}/drafts/d", raw=b'{"config": {"a": ' + value + b"}}")
    assert (answer.status, answer.error["type"]) == (400, "BadRequest")
    assert answer.error["message"].startswith("The body does not read as JSON")


def test_a_refusal_that_waits_for_the_database_holds_nobody_up(
    viewer: Asking, folder: Path
) -> None:
    """It is noted in the audit log, which somebody else may hold for as long as the database lets them."""
    with contextlib.closing(sqlite3.connect(folder / "state" / "control.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = threading.Thread(target=viewer, args=("POST", f"{SHOP}/start"))
        refused.start()
        took = [answered_s(viewer) for _ in range(50)]
        assert refused.is_alive()
        other.rollback()
    refused.join()
    assert max(took) < 2.0


def answered_s(viewer: Asking) -> float:
    began = time.monotonic()
    assert viewer("GET", "/v1/contexts/default/drafts").status == 200
    return time.monotonic() - began


@pytest.mark.parametrize(
    "asked",
    [
        {"scope": "PRIMARY_KEYS", "primaryKeyLiterals": ["\ud800"]},
        {"scope": "PREDICATE", "where": "v = '\ud800'"},
        {"scope": "TABLE", "table": {"tableName": "\ud800"}},
    ],
)
def test_half_a_character_is_kept_nowhere(operator: Asking, asked: dict[str, Any]) -> None:
    """A request with one could be shown no more, nor any list that it is in."""
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    body = {"table": {"tableName": "orders"}, **asked}
    assert operator("POST", f"{SHOP}/api/v1/requests", body).status == 422
    assert operator.one(f"{SHOP}/api/v1/requests")["requests"] == []


def test_a_line_of_the_audit_that_no_number_has_is_refused(admin: Asking) -> None:
    assert admin("GET", f"/v1/audit?before={10**30}").status == 422
    assert admin("GET", f"/v1/audit?before={2**63 - 1}").status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
    ],
)
def test_a_foreign_page_cannot_ask(operator: Asking, headers: dict[str, str], status: int) -> None:
    answer = operator("PUT", f"{NS}/drafts/d", {"config": {}}, headers=headers)
    assert answer.status == status
    assert operator.one(f"{NS}/drafts") == []


def test_its_own_page_may_ask(operator: Asking) -> None:
    headers = {"origin": operator.url}
    assert operator("PUT", f"{NS}/drafts/d", {"config": {}}, headers=headers).status == 201


def test_without_tokens_it_answers_under_this_machines_names_alone(tmp_path: Path) -> None:
    """A page of another site can have its own name lead here; the browser then takes it for one site."""
    with served(tmp_path) as (_, url):
        ask = Asking(url)
        port = url.rpartition(":")[2]
        for host, status in (
            (f"127.0.0.1:{port}", 200),
            (f"localhost:{port}", 200),
            (f"[::1]:{port}", 200),
            (f"evil.example:{port}", 403),
            ("evil.example", 403),
        ):
            assert ask("GET", "/v1/contexts", headers={"host": host}).status == status
        assert ask("PUT", f"{NS}/drafts/d", {"config": {}}).status == 201
        assert ask.one("/v1/audit")["audit"][0]["who"] == "local"


@req("C105")
def test_an_error_that_nobody_foresaw_tells_its_type_alone(
    operator: Asking, both: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plane, _ = both

    def broken(_: str) -> None:
        # Put together here, for lines of the source are in the log.
        raise RuntimeError("open" + "-sesame")

    with monkeypatch.context() as patched:
        patched.setattr(plane.store, "drafts", broken)
        answer = operator("GET", f"{NS}/drafts")
    assert answer.status == 500
    assert answer.error["type"] == "RuntimeError"
    until(lambda: "list_drafts" in caplog.text, "the place in the log")
    assert "open-sesame" not in answer.text + caplog.text


def test_the_openapi_document_is_one_and_answers_are_as_it_says(url: str, operator: Asking) -> None:
    document = Asking(url).one("/openapi.json")
    OpenAPI.model_validate(document)
    assert document["openapi"].startswith("3.")
    text = json.dumps(document)
    named = set(document["components"]["schemas"])
    assert set(re.findall(r"#/components/schemas/(\w+)", text)) <= named
    ids = [op["operationId"] for methods in document["paths"].values() for op in methods.values()]
    assert len(ids) == len(set(ids))
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            assert operation["description"]
            assert {"403", "429", "503"} <= set(operation["responses"])
    ReplicatorList.model_validate(operator.one(f"{NS}/replicators"))
    page = Asking(url)("GET", "/docs").text
    assert "openapi.json" in page
    # Whoever types its address into a browser sees what there is.
    assert Asking(url)("GET", "/").headers["location"] == "/docs"
    # Nothing of it comes from elsewhere: where a control plane runs, there may be no way out.
    needed = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(needed) >= 3
    assert all(path.startswith("/docs/files/") for path in needed)
    for path in needed:
        with urlopen(url + path) as answer:
            assert answer.status == 200
            assert answer.read()
    assert "://" not in page
    assert Asking(url)("GET", "/docs/files/../app.py").status in (401, 404)


def test_answers_are_not_kept_by_browsers_and_not_guessed_at(operator: Asking) -> None:
    headers = operator("GET", f"{NS}/replicators").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-type"] == "application/json"
    assert "set-cookie" not in headers
