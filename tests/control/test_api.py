"""The API over a real server: what it does, and every way in which it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI

from headrace.replicator.api.bodies import ErrorShown, ReplicatorDetail, ReplicatorList
from headrace.replicator.api.guard import MOST_BODY_BYTES
from headrace.replicator.control.plane import ControlPlane
from headrace.testing.standing import standing
from tests.control.asking import ADMIN, OPERATOR, TOKENS, VIEWER, Asking, served
from tests.control.letters import put_letter
from tests.control.planes import config_of, end_everything, environment
from tests.requirements import req
from tests.waiting import until

NS = "/v1/contexts/default"
SHOP = f"{NS}/replicators/shop"


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("control")


@pytest.fixture(scope="module")
def both(folder: Path) -> Iterator[tuple[ControlPlane, str]]:
    hidden = frozenset({"env:CONTROL_TOKEN", "file:control", "keyring:control"})
    try:
        with served(folder, tokens=TOKENS, hidden=hidden) as found:
            yield found
    finally:
        end_everything(folder)


@pytest.fixture
def url(both: tuple[ControlPlane, str]) -> Iterator[str]:
    """Give a control plane's URL; what a test has deployed is deleted behind it."""
    plane, found = both
    yield found
    admin = Asking(found, ADMIN.secret)
    for row in plane.store.replicators():
        path = f"/v1/contexts/{row.namespace}/replicators/{row.name}"
        admin("DELETE", f"{path}?source=leave")
    until(lambda: not plane.store.replicators(), "an empty control plane")
    for draft in plane.store.drafts("default"):
        admin("DELETE", f"{NS}/drafts/{draft.name}")


@pytest.fixture
def viewer(url: str) -> Asking:
    return Asking(url, VIEWER.secret)


@pytest.fixture
def operator(url: str) -> Asking:
    return Asking(url, OPERATOR.secret)


@pytest.fixture
def admin(url: str) -> Asking:
    return Asking(url, ADMIN.secret)


# -- drafts ---------------------------------------------------------------------------------------


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


# -- the life of a replicator ---------------------------------------------------------------------


@req("C76", "C105")
def test_a_replicator_lives_over_http(operator: Asking) -> None:
    made = operator.does("PUT", SHOP, {"config": config_of()}, 201)
    assert (made["state"], made["generation"], made["revision"]) == ("DEPLOYED", 1, 1)
    operator.does("POST", f"{SHOP}/start")
    shown = operator.reaches("RUNNING")
    assert shown["pid"]
    assert shown["config"] == config_of()
    assert (shown["source"], shown["target"]) == ("postgres", "delta")
    ReplicatorDetail.model_validate(shown)
    operator.does("POST", f"{SHOP}/pause")
    assert operator.reaches("PAUSED")["pid"] == shown["pid"]
    assert until(lambda: operator.one(SHOP)["log_paused"], "the pause")
    operator.does("POST", f"{SHOP}/resume")
    operator.reaches("RUNNING")
    (listed,) = operator.one(f"{NS}/replicators")["replicators"]
    assert listed["name"] == "shop"
    operator.does("POST", f"{SHOP}/stop")
    assert operator.reaches("STOPPED")["pid"] is None
    operator.does("DELETE", f"{SHOP}?source=leave")
    operator.gone()


def test_a_draft_is_deployed_and_started_at_once(operator: Asking) -> None:
    operator.does("PUT", f"{NS}/drafts/d", {"config": config_of()}, 201)
    operator.does("PUT", SHOP, {"draft": "d", "start": True}, 201)
    operator.reaches("RUNNING")
    again = operator.does("PUT", SHOP, {"draft": "d"}, 200)
    assert again["revision"] == 2


@req("C98")
def test_the_detail_has_tables_positions_and_lag(operator: Asking, both: Any) -> None:
    plane, _ = both
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    row = plane.store.replicator("default", "shop")
    standing(plane.folders.of(row).config(row))

    shown = until(
        lambda: (found := operator.one(SHOP))["positions"]["frontier_scn"] and found, "the frontier"
    )
    states = {table["name"]: table["state"] for table in shown["table_list"]}
    assert states == {
        "public.items": "SNAPSHOTTING",
        "public.notes": "REPLICATING",
        "public.orders": "FAILING",
    }
    failing = next(t for t in shown["table_list"] if t["name"] == "public.orders")
    assert failing["error"] == "MissingBase: a change left out note."
    assert shown["tables"] == {"SNAPSHOTTING": 1, "REPLICATING": 1, "FAILING": 1}
    assert shown["lag_s"] is not None
    told = operator.does("POST", f"{NS}/getState", {"name": "shop", "offsetBasePath": "/x"}, 200)
    assert told["sourceState"] == "OK"
    assert {t["table"]: t["state"] for t in told["tables"]}["orders"] == "FAILING"


@req("C105")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", SHOP),
        ("DELETE", SHOP),
        ("GET", f"{SHOP}/logs"),
        *(("POST", f"{SHOP}/{word}") for word in ("start", "stop", "pause", "resume")),
        ("GET", f"{NS}/drafts/none"),
        ("POST", f"{NS}/drafts/none/listTables"),
        ("POST", f"{NS}/drafts/none/assessPipeline"),
        ("GET", "/v1/contexts/nowhere/replicators"),
        ("GET", "/v1/contexts/nowhere/drafts"),
        ("GET", "/nothing"),
        ("POST", "/v1/contexts/default/replicators/shop/explode"),
    ],
)
def test_what_is_not_there_is_not_found(operator: Asking, method: str, path: str) -> None:
    answer = operator(method, path)
    assert (answer.status, answer.error["type"]) == (404, "NotFound")
    ErrorShown.model_validate(answer.json)
    assert answer.error["next_step"]


@req("A-16")
def test_a_page_is_not_for_every_method(operator: Asking) -> None:
    answer = operator("PATCH", SHOP)
    assert (answer.status, answer.error["type"]) == (405, "NotFound")
    assert {"GET", "PUT", "DELETE"} & set(answer.headers["allow"].split(", "))


def test_what_the_state_does_not_allow_is_a_conflict(operator: Asking) -> None:
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    for word in ("pause", "resume"):
        answer = operator("POST", f"{SHOP}/{word}")
        assert (answer.status, answer.error["type"]) == (409, "CommandRefused")
        assert "DEPLOYED" in answer.error["message"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"target": {"type": "delta"}}, "target.path"),
        (
            {"source": {"type": "postgres", "url": "${env:UNSET_VARIABLE}", "tables": ["a.*"]}},
            "UNSET",
        ),
        ({"state": {"dir": "/elsewhere"}}, "state.dir"),
    ],
)
def test_a_configuration_that_cannot_run_is_refused(
    operator: Asking, change: dict[str, Any], named: str
) -> None:
    answer = operator("PUT", SHOP, {"config": config_of(**change)})
    assert (answer.status, answer.error["type"]) == (422, "ConfigError")
    assert named in answer.error["message"]
    assert operator("GET", SHOP).status == 404


@pytest.mark.parametrize("name", ["Shop", "a--b", "-a", "a" * 41, "1a", "a.b"])
def test_a_name_that_is_none_is_refused(operator: Asking, name: str) -> None:
    answer = operator("PUT", f"{NS}/replicators/{name}", {"config": config_of()})
    assert (answer.status, answer.error["type"]) == (422, "BadRequest")


@req("A-16")
@pytest.mark.parametrize("body", [{}, {"config": {}, "draft": "d"}])
def test_a_deployment_takes_one_of_two(operator: Asking, body: dict[str, Any]) -> None:
    assert operator("PUT", SHOP, body).status == 400


@req("C20")
def test_logs_are_shown_from_their_end_and_without_secrets(operator: Asking, both: Any) -> None:
    plane, _ = both
    operator.does("PUT", SHOP, {"config": config_of("crash")}, 201)
    operator.does("POST", f"{SHOP}/start")
    operator.reaches("FAILED")
    shown = operator.one(f"{SHOP}/logs?lines=2")
    assert shown == {"process": "run", "lines": ["simulated: the last words"] * 2}
    log = plane.folders.of(plane.store.replicator("default", "shop")).log
    with log.open("a") as file:
        file.write(f"a library says {environment()['SHOP_PASSWORD']}!\n")
    assert operator.one(f"{SHOP}/logs?lines=1")["lines"] == ["a library says ${env:SHOP_PASSWORD}!"]
    assert operator.one(f"{SHOP}/logs?process=capture")["lines"] == []
    assert operator("GET", f"{SHOP}/logs?process=../../etc/passwd").status == 422


# -- rewinding ------------------------------------------------------------------------------------


@req("C101")
def test_a_rewind_is_for_operators_and_for_one_that_stands_still(
    operator: Asking, viewer: Asking
) -> None:
    """What it does to tables is shown beside Spark, see tests/spark/test_rewind.py."""
    path = f"{SHOP}/rewind"
    assert operator("POST", path, {"to": "81"}).status == 404
    config = config_of(target={"type": "delta", "path": "./nothing-yet"})
    operator.does("PUT", SHOP, {"config": config, "start": True}, 201)
    operator.reaches("RUNNING")
    refused = operator("POST", path, {"to": "81"})
    assert (refused.status, refused.error["type"]) == (409, "CommandRefused")
    assert "RUNNING, which does not go with rewind" in refused.error["message"]
    operator.does("POST", f"{SHOP}/stop")
    operator.reaches("STOPPED")
    assert viewer("POST", path, {"to": "81"}).status == 403
    assert operator("POST", path, {}).status == 422
    refused = operator("POST", path, {"to": "yesterday"})
    assert (refused.status, refused.error["type"]) == (422, "ConfigError")
    refused = operator("POST", path, {"to": "81"})
    assert (refused.status, refused.error["type"]) == (409, "CommandRefused")
    assert "none at all" in refused.error["message"]


# -- dead letters ---------------------------------------------------------------------------------


@req("C67")
def test_dead_letters_are_listed_shown_replayed_and_discarded(
    operator: Asking, viewer: Asking, both: tuple[ControlPlane, str]
) -> None:
    plane, _ = both
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    row = plane.store.replicator("default", "shop")
    for scn in (81, 90):
        put_letter(plane.folders.of(row).state, scn)
    path = f"{SHOP}/dead-letters"
    listed = viewer.one(path)
    assert [one["letter"] for one in listed["letters"]] == ["public.orders@81", "public.orders@90"]
    assert viewer.one(f"{path}?limit=1&table=public.orders")["count"] == 2
    assert viewer.one(f"{path}?table=public.other")["letters"] == []
    one = f"{path}/public.orders@81"
    assert viewer.one(one) == listed["letters"][0]
    assert "secret-of-a-row" not in json.dumps(listed)
    (shown,) = operator.does("POST", f"{one}/rows", status=200)["rows"]
    assert shown["row"]["c1"] == "secret-of-a-row"
    under_way = operator.does("POST", f"{one}/replay", status=200)
    assert under_way["state"] == "replaying"
    (request,) = viewer.one(f"{SHOP}/api/v1/requests")["requests"]
    assert request["requestId"] == under_way["request"]
    assert request["primaryKeyLiterals"] == ["1"]
    assert operator("POST", f"{one}/discard").status == 409
    other = f"{path}/public.orders@90"
    assert operator.does("POST", f"{other}/discard", status=200)["state"] == "discarded"
    assert [one["state"] for one in viewer.one(f"{path}?ended=true")["letters"]] == [
        "replaying",
        "discarded",
    ]
    for verb in ("rows", "replay", "discard"):
        assert viewer("POST", f"{other}/{verb}").status == 403
        assert operator("POST", f"{path}/public.orders@1/{verb}").status == 404
    assert viewer("GET", f"{path}/public.orders@1").status == 404
    noted = [entry.what for entry in plane.store.audit(10)]
    assert {"read dead letter", "replay dead letter", "discard dead letter"} <= set(noted)


# -- namespaces -----------------------------------------------------------------------------------


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


# -- who may --------------------------------------------------------------------------------------


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


# -- what comes from elsewhere --------------------------------------------------------------------


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


# -- the document ---------------------------------------------------------------------------------


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
    assert "openapi.json" in Asking(url)("GET", "/docs").text


def test_answers_are_not_kept_by_browsers_and_not_guessed_at(operator: Asking) -> None:
    headers = operator("GET", f"{NS}/replicators").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-type"] == "application/json"
    assert "set-cookie" not in headers
