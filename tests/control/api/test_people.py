"""Who may do what over the API: namespaces, roles, tokens, and the audit log."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.control.api.paths import NS, SHOP
from tests.control.asking import VIEWER, Asking
from tests.control.planes import config_of, environment
from tests.requirements import req
from tests.waiting import until


@req("C80", "C99")
def test_namespaces_are_made_and_deleted_by_admins(admin: Asking, operator: Asking) -> None:
    assert admin.does("PUT", "/v1/contexts/sales", status=201)
    assert admin.does("PUT", "/v1/contexts/sales", status=200)
    assert "sales" in admin.one("/v1/contexts")["namespaces"]
    path = "/v1/contexts/sales/replicators/shop"
    operator.does("PUT", path, {"config": config_of()}, 201)
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    assert admin("DELETE", "/v1/contexts/sales").status == 409
    operator.does("PUT", "/v1/contexts/sales/drafts/d", {"config": {}}, 201)
    operator.does("DELETE", f"{path}?source=leave")
    until(lambda: operator("GET", path).status == 404, "its end")
    assert operator.one(SHOP)["name"] == "shop"
    assert admin("DELETE", "/v1/contexts/sales").status == 204
    admin.does("PUT", "/v1/contexts/sales", status=201)
    assert admin.one("/v1/contexts/sales/drafts") == []
    assert admin("DELETE", "/v1/contexts/sales").status == 204


@req("C106")
def test_a_viewer_looks_and_no_more(
    viewer: Asking, operator: Asking, admin: Asking, both: Any
) -> None:
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    operator.does("PUT", f"{NS}/drafts/d", {"config": config_of()}, 201)
    for path in (SHOP, f"{SHOP}/logs", f"{NS}/replicators", f"{NS}/drafts", f"{NS}/drafts/d"):
        answer = viewer("GET", path)
        assert answer.status == 200
        assert environment()["SHOP_PASSWORD"] not in answer.text
    asked: list[tuple[str, str, Any]] = [
        ("PUT", SHOP, {"config": config_of()}),
        ("DELETE", SHOP, None),
        *(("POST", f"{SHOP}/{word}", None) for word in ("start", "stop", "pause", "resume")),
        ("PUT", f"{NS}/drafts/d", {"config": {}}),
        ("DELETE", f"{NS}/drafts/d", None),
        ("POST", f"{NS}/drafts/d/listTables", None),
        ("POST", f"{NS}/drafts/d/describeTable", {"table": "t"}),
        ("POST", f"{NS}/drafts/d/assessPipeline", None),
        ("POST", f"{NS}/assessPipeline", {"config": {}}),
        ("PUT", "/v1/contexts/other", None),
        ("DELETE", "/v1/contexts/other", None),
        ("GET", "/v1/audit", None),
    ]
    for method, path, body in asked:
        answer = viewer(method, path, body)
        assert (answer.status, answer.error["type"]) == (403, "NotAllowed"), (method, path)
        assert "viewer" in answer.error["message"]
    assert operator.one(SHOP)["state"] == "DEPLOYED"
    for path in ("/v1/contexts/other", "/v1/audit"):
        assert operator("GET" if path.endswith("audit") else "PUT", path).status == 403
    assert admin("GET", "/v1/audit").status == 200


def test_every_page_is_in_the_hands_of_a_role(url: str) -> None:
    """A page that somebody adds without one is found here."""
    paths = Asking(url).one("/openapi.json")["paths"]
    for path, methods in paths.items():
        for method in methods:
            filled = re.sub(r"\{\w+\}", "x", path)
            answer = Asking(url)(method.upper(), filled, {} if method in ("put", "post") else None)
            expected = 200 if path == "/healthz" else 401
            assert answer.status == expected, (method, path)


@pytest.mark.parametrize("token", ["", "wrong", VIEWER.secret[:-1], VIEWER.secret + "2"])
def test_without_a_known_token_nothing_is_told(url: str, token: str) -> None:
    answer = Asking(url, token)("GET", SHOP)
    assert (answer.status, answer.error["type"]) == (401, "NotAllowed")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_the_audit_log_says_who_did_what_and_what_was_refused(
    viewer: Asking, operator: Asking, admin: Asking
) -> None:
    viewer("POST", f"{SHOP}/start")
    operator.does("PUT", SHOP, {"config": config_of(), "start": True}, 201)
    operator("POST", f"{SHOP}/resume")
    operator("PUT", f"{NS}/replicators/other", {"config": {}})
    lines = admin.one("/v1/audit?limit=5")["audit"]
    told = [(line["who"], line["what"], line["object"], line["outcome"]) for line in lines]
    assert told == [
        ("otto", "deploy", "default/other", "ConfigError"),
        ("otto", "resume", "default/shop", "done"),
        ("otto", "start", "default/shop", "done"),
        ("otto", "deploy", "default/shop", "done"),
        ("vera", "start", "default/shop", "NotAllowed"),
    ]
    assert admin.one(f"/v1/audit?limit=1&before={lines[0]['number']}")["audit"] == [lines[1]]
