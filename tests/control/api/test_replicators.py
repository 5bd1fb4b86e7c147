"""Replicators over the API: their life, what is told of them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.observe.status import ProcessState, StatusFile
from headrace.replicator import lock
from headrace.replicator.api.bodies import ErrorShown, ReplicatorDetail
from headrace.replicator.paths import StatePaths
from headrace.testing.standing import standing
from tests.control.api.paths import NS, SHOP
from tests.control.asking import Asking
from tests.control.letters import put_letter
from tests.control.planes import config_of, environment
from tests.requirements import req
from tests.waiting import until


@req("C76", "C105")
def test_a_replicator_lives_over_http(operator: Asking) -> None:
    made = operator.does("PUT", SHOP, {"config": config_of()}, 201)
    assert (made["state"], made["revision"]) == ("DEPLOYED", 1)
    # Others may have had the name before.
    assert made["generation"] >= 1
    operator.does("POST", f"{SHOP}/start")
    shown = operator.reaches("RUNNING")
    assert shown["pid"]
    assert shown["config"] == config_of()
    assert (shown["source"], shown["target"]) == ("postgres", "delta")
    ReplicatorDetail.model_validate(shown)
    operator.does("POST", f"{SHOP}/pause")
    assert operator.reaches("PAUSED")["pid"] == shown["pid"]
    assert until(lambda: operator.one(SHOP)["log_paused"], "the pause")
    # A new configuration restarts its process; what was asked of it stays.
    operator.does("PUT", SHOP, {"config": config_of(), "start": True}, 200)
    refused = operator("POST", f"{SHOP}/start")
    assert (refused.status, refused.error["type"]) == (409, "CommandRefused")
    assert "resume it first" in refused.text
    shown = operator.reaches("PAUSED")
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
    # Its process has said that it runs, and nobody holds its lock.
    assert shown["roles"]["apply"]["state"] == "gone"
    assert 0 < shown["roles"]["apply"]["said_ms"] <= shown["seen_ms"]
    assert shown["unheard"] == ""
    told = operator.does("POST", f"{NS}/getState", {"name": "shop", "offsetBasePath": "/x"}, 200)
    assert told["sourceState"] == "OK"
    assert {t["table"]: t["state"] for t in told["tables"]}["orders"] == "FAILING"


def test_the_detail_says_that_spark_answers_nothing(operator: Asking, both: Any) -> None:
    plane, _ = both
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    row = plane.store.replicator("default", "shop")
    config = plane.folders.of(row).config(row)
    standing(config)
    paths = StatePaths.of(config)
    assert until(lambda: operator.one(SHOP)["positions"] is not None, "a look")
    assert operator.one(SHOP)["held_up"] == ""
    with lock.held(paths.lock("apply"), "apply"):
        StatusFile(paths.status("apply"), "apply").write(ProcessState.RUNNING, {"silent_s": 120.0})
        said = until(lambda: operator.one(SHOP)["held_up"], "the silence is told")
    assert said.startswith("Spark has answered nothing for 2 min")


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


def test_of_one_that_is_being_deleted_nothing_more_is_asked(operator: Asking, both: Any) -> None:
    """It would be answered as taken up, and deleted with the state."""
    plane, _ = both
    away = {"type": "postgres", "url": "postgresql://u@127.0.0.1:1/x", "tables": ["a.*"]}
    operator.does("PUT", SHOP, {"config": config_of(source=away)}, 201)
    state = plane.folders.of(plane.store.replicator("default", "shop")).state
    state.changelog.mkdir(parents=True)
    letter = f"dead-letters/{put_letter(state, 81)}"
    operator.does("DELETE", SHOP)
    for method, page, body in (
        ("POST", "api/v1/requests", {"scope": "ALL_TABLES"}),
        ("PUT", "api/v1/pace", {"delay_s": 1}),
        ("POST", f"{letter}/replay", None),
        ("POST", f"{letter}/discard", None),
    ):
        refused = operator(method, f"{SHOP}/{page}", body)
        assert (refused.status, refused.error["type"]) == (409, "CommandRefused")
        assert "shop is DELETING" in refused.error["message"]
    assert operator.one(f"{SHOP}/api/v1/requests")["requests"] == []
    assert operator.one(f"{SHOP}/{letter}")["state"] == "waiting"


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
