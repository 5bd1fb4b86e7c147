"""The surface of DBLog's control plane below ``api/v1`` of a replicator: runtime, schemas, events, requests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import SlotLost
from headrace.observe.status import ProcessState, StatusFile, describe_error
from headrace.registry.file import FileRegistry
from headrace.replicator import lock
from headrace.replicator.control import leases
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.paths import StatePaths
from headrace.replicator.tap import tap_file
from headrace.state.records import Cause, RequestState, Scope
from headrace.state.store import StateStore
from headrace.testing.notation import table_of
from headrace.testing.standing import standing
from tests.control.asking import OPERATOR, TOKENS, VIEWER, Asking, served
from tests.control.planes import config_of, end_everything, environment
from tests.control.taps import row_line, told
from tests.requirements import req
from tests.waiting import until

SHOP = "/v1/contexts/default/replicators/shop"
API = f"{SHOP}/api/v1"
T = table_of(2)


@pytest.fixture
def plane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ControlPlane, Asking, Asking]]:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
    try:
        with served(tmp_path, tokens=TOKENS) as (found, url):
            yield found, Asking(url, OPERATOR.secret), Asking(url, VIEWER.secret)
    finally:
        end_everything(tmp_path)


def paths_of(plane: ControlPlane) -> StatePaths:
    row = plane.store.replicator("default", "shop")
    return StatePaths.of(plane.folders.of(row).config(row))


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Give what closes at the test's end whatever it is given."""
    with contextlib.ExitStack() as found:
        yield found


@req("H19")
def test_the_runtime_is_told_in_the_reference_implementations_words(
    plane: Any, stack: contextlib.ExitStack
) -> None:
    control, operator, viewer = plane
    operator.does("PUT", SHOP, {"config": config_of(), "start": True}, 201)
    operator.reaches("RUNNING")
    row = control.store.replicator("default", "shop")
    standing(control.folders.of(row).config(row))
    detail = {
        "doing": "waiting for room",
        "waits_for": "The change log is full.",
        "changes": 12,
        "remembered": 3,
        "slow_queries": {"chunk": 2},
        "slowest_query": "chunk",
        "slowest_query_s": 1.5,
        "tap_dropped": 7,
    }
    # Who holds its lock is there to be believed.
    stack.enter_context(lock.held(paths_of(control).lock("capture"), "capture"))
    status = StatusFile(paths_of(control).status("capture"), "capture")
    status.write(ProcessState.RUNNING, detail, force=True)
    asked = operator.does("POST", f"{API}/requests", {"scope": "ALL_TABLES"}, 201)["request"]

    glance = until(
        lambda: (found := viewer.one(f"{API}/runtime"))["health"] == "UP" and found, "a fresh look"
    )
    assert (glance["mode"], glance["adapter"]) == ("RUNNING", "postgres")
    assert glance["queue"] == {
        "pendingRequests": 1,
        "submissionAvailable": True,
        "submissionMessage": "Taken up within a second.",
    }
    flow = glance["sourceRuntime"].pop("sourceFlowControl")
    assert glance["sourceRuntime"] == {
        "sourceId": "shop",
        "lastAcknowledgedCheckpoint": "0",
        "pendingTransactions": 3,
        "capturedTableCount": 3,
    }
    assert (flow["mode"], flow["queueFull"], flow["sourceFetchPaused"]) == (
        "waiting for room",
        True,
        True,
    )
    assert "the tables are slower than the source. The change log is full." in flow["statusText"]
    assert (flow["totalEnqueued"], flow["totalDequeued"]) == (12, 7)

    whole = viewer.one(f"{API}/runtime/status")
    assert whole["health"] == viewer.one(f"{API}/runtime/health")
    assert whole["health"]["status"] == "UP"
    assert whole["requests"]["queuedCount"] == whole["requests"]["pendingCount"] == 1
    assert whole["requests"]["activeRequest"] is None
    assert whole["events"]["cumulativeEventsObserved"] == 7
    assert {one["table"] for one in whole["events"]["tables"]} >= {"public.items"}

    measured = viewer.one(f"{API}/metrics")
    assert measured["runtimeMeasurement"]["sourceCapture"] == {
        "changes": 12,
        "slowQueries": 2,
        "slowestQuery": "chunk",
        "slowestQuerySeconds": 1.5,
        "restarts": 0,
    }
    assert measured["runtimeMeasurement"]["requestCoordinator"]["byState"] == {"QUEUED": 1}
    assert measured["eventCapture"] == {"enabled": False, "dropped": 7, "listeners": 0}

    with contextlib.closing(StateStore(paths_of(control).database)) as state:
        assert state.move(asked["requestId"], RequestState.ACTIVE, since=[RequestState.QUEUED])
    now = viewer.one(f"{API}/runtime/status")["requests"]
    assert now["activeRequest"]["requestId"] == asked["requestId"]
    operator.does("POST", f"{SHOP}/stop")
    operator.reaches("STOPPED")
    stopped = viewer.one(f"{API}/runtime")
    assert (stopped["health"], stopped["sourceRuntime"]["sourceFlowControl"]["mode"]) == (
        "DOWN",
        "stopped",
    )
    assert stopped["queue"]["submissionMessage"] == "Taken up when it is started."


@req("H19")
def test_the_tables_versions_are_told_and_what_stands_in_their_way(plane: Any) -> None:
    control, operator, viewer = plane
    tables = {f"{T.table.schema}.*": {"drop": ["note"]}}
    operator.does("PUT", SHOP, {"config": config_of(tables=tables)}, 201)
    empty = viewer.one(f"{API}/runtime/schemas")
    assert (empty["count"], empty["schemas"]) == (0, [])
    paths = paths_of(control)
    paths.create()
    schema_id = FileRegistry(paths.registry).put(T)
    with contextlib.closing(StateStore(paths.database)) as state:
        state.write([lambda w: w.set(f"schema {T.table}", str(schema_id))])
        told_ = viewer.one(f"{API}/runtime/schemas")
        (only,) = told_["schemas"]
        assert only["observedSchema"]["fingerprint"] == f"{schema_id:016x}"
        assert only["contractSchema"] == only["observedSchema"]
        assert only["observedSchema"]["primaryKeyColumns"] == list(T.key)
        assert only["observedSchema"]["ignoredColumns"] == ["note"]
        columns = {one["name"]: one for one in only["observedSchema"]["columns"]}
        assert list(columns) == T.names
        assert columns[T.key[0]]["primaryKeyOrdinal"] == 1
        assert (only["schemaStatus"], only["fullDumpRequired"]) == ("OK", False)
        assert viewer.one(f"{API}/runtime/schema-issues") == {
            "fullDumpRequiredSignals": [],
            "schemaUncertaintySignals": [],
        }

        state.submit(Scope.TABLE, T.table, cause=Cause.RETYPED)
    (only,) = viewer.one(f"{API}/runtime/schemas")["schemas"]
    assert (only["schemaStatus"], only["fullDumpRequired"]) == ("FULL_DUMP_REQUIRED", True)
    (signal,) = viewer.one(f"{API}/runtime/schema-issues")["fullDumpRequiredSignals"]
    assert (signal["table"], signal["sourceId"]) == (str(T.table), "shop")
    assert "a type" in signal["reason"]


@req("H19")
def test_a_table_whose_shape_stands_in_the_way_is_an_issue(plane: Any) -> None:
    control, operator, viewer = plane
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    row = control.store.replicator("default", "shop")
    standing(control.folders.of(row).config(row))
    (signal,) = until(
        lambda: viewer.one(f"{API}/runtime/schema-issues")["schemaUncertaintySignals"], "a look"
    )
    assert signal["table"] == "public.orders"
    assert "MissingBase" in signal["reason"]


@req("H19")
def test_a_request_is_patched_while_it_waits_and_not_when_it_has_ended(plane: Any) -> None:
    _, operator, viewer = plane
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    asked = operator.does("POST", f"{API}/requests", {"scope": "ALL_TABLES"}, 201)["request"]
    assert asked["pace"] == {"chunk_rows": None, "delay_s": None, "rows_per_s": None}
    one = f"{API}/requests/{asked['requestId']}"
    body = {"chunk_rows": 500, "delay_s": 0.5, "rows_per_s": 100, "priority": 5}
    changed = operator.does("PATCH", one, body, 200)
    assert changed["pace"] == {"chunk_rows": 500, "delay_s": 0.5, "rows_per_s": 100}
    assert changed["priority"] == 5
    assert changed["updatedAt"] >= changed["createdAt"]
    assert operator.does("PATCH", one, {"delay_s": None}, 200)["pace"]["chunk_rows"] == 500
    assert viewer.one(one)["pace"] == {"chunk_rows": 500, "delay_s": None, "rows_per_s": 100}
    for refused in ({"chunk_rows": -1}, {"priority": 101}, {"load": 0.5}, {"chunk_rows": "many"}):
        assert operator("PATCH", one, refused).status == 422
    assert viewer("PATCH", one, {"chunk_rows": 1}).status == 403
    assert operator("PATCH", f"{API}/requests/none", {"chunk_rows": 1}).status == 404
    operator.does("POST", f"{one}/cancel", status=200)
    for method, path in (("PATCH", one), ("POST", f"{one}/pause"), ("POST", f"{one}/resume")):
        ended = operator(method, path, {"chunk_rows": 1} if method == "PATCH" else None)
        assert (ended.status, ended.error["type"]) == (409, "CommandRefused")
        assert "CANCELLED" in ended.error["message"]
    assert viewer.one(one)["pace"]["chunk_rows"] == 500


@req("H19")
def test_row_changes_that_the_tap_told_are_counted_and_shown(plane: Any) -> None:
    control, operator, viewer = plane
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    off = viewer("GET", f"{API}/events/recent")
    assert (off.status, off.error["type"]) == (503, "TapNotEnabled")
    operator.does("PUT", SHOP, {"config": config_of(tap={"enabled": True})}, 200)
    assert viewer.one(f"{API}/events/recent") == {"events": []}
    assert viewer.one(f"{API}/events/summary")["since"] is None
    file = tap_file(paths_of(control).tap)
    lines = [
        told(0, kind="tap.opened", mode="record", keys="plain", rows=True),
        row_line(1, "cdc", "public.orders", "INSERT", "7"),
        row_line(2, "sink.event", "public.orders", "INSERT", "7", origin="LOG"),
        row_line(3, "sink.event", "public.items", "INSERT", "8,1", origin="SELECT", dump_id="r t"),
        row_line(4, "cdc", "public.orders", "DELETE", "7"),
        "half a line",
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")
    summary = viewer.one(f"{API}/events/summary")
    assert summary["totalEvents"] == 4
    assert summary["tables"] == [
        {"table": "public.items", "stageLabel": "CHANGE_LOG",
         "inserts": 1, "updates": 0, "deletes": 0, "total": 1},
        {"table": "public.orders", "stageLabel": "SOURCE_LOG",
         "inserts": 1, "updates": 0, "deletes": 1, "total": 2},
        {"table": "public.orders", "stageLabel": "CHANGE_LOG",
         "inserts": 1, "updates": 0, "deletes": 0, "total": 1},
    ]  # fmt: skip
    newest, before = viewer.one(f"{API}/events/recent?limit=2")["events"]
    assert (newest["operationType"], newest["captureOrigin"]) == ("DELETE", "LOG")
    assert (before["dumpId"], before["captureOrigin"], before["primaryKey"]) == (
        "r t",
        "SELECT",
        "8,1",
    )
    of_one = viewer.one(f"{API}/events/tables/public.orders")["events"]
    assert [one["sourcePosition"] for one in of_one] == ["4", "2", "1"]
    assert viewer("GET", f"{API}/events/tables/public.nothing").status == 404
    assert viewer("GET", f"{API}/events/recent?limit=0").status == 422


@req("H19")
def test_one_that_reads_from_a_relay_says_that_dumps_are_asked_for_elsewhere(plane: Any) -> None:
    _, operator, viewer = plane
    source = {"type": "relay", "urls": ["http://127.0.0.1:1"]}
    answer = operator("PUT", SHOP, {"config": config_of(source=source)})
    assert answer.status == 201, answer.text
    queue = viewer.one(f"{API}/runtime")["queue"]
    assert (queue["submissionAvailable"], queue["pendingRequests"]) == (False, 0)
    assert viewer("GET", f"{API}/requests").status == 422


@req("H19", "P56")
def test_dumps_are_asked_for_and_shown_in_the_reference_implementations_shapes(plane: Any) -> None:
    control, operator, viewer = plane
    operator.does("PUT", SHOP, {"config": config_of(), "start": True}, 201)
    path = f"{SHOP}/api/v1/requests"
    table = {"databaseName": "shop", "schemaName": "public", "tableName": "orders"}
    keys = {"scope": "PRIMARY_KEYS", "table": table, "primaryKeyLiterals": ["42", "7"]}
    fit: tuple[dict[str, Any], ...] = (
        {"scope": "ALL_TABLES"},
        {"scope": "TABLE", "table": table},
        keys,
    )
    for body in fit:
        told = operator.does("POST", path, body, 201)
        assert told["accepted"] is True
        assert told["request"]["state"] == "QUEUED"
        assert operator.one(f"{path}/{told['request']['requestId']}") == told["request"]
    listed = viewer.one(f"{path}?limit=1")
    assert listed["countsByState"] == {"QUEUED": 3}
    (newest,) = listed["requests"]
    assert newest["primaryKeyLiterals"] == ["42", "7"]
    assert newest["table"]["tableName"] == "orders"
    assert viewer.one(f"{path}?state=COMPLETED")["requests"] == []
    unfit: tuple[dict[str, Any], ...] = (
        {"scope": "ALL_TABLES", "table": table},
        {"scope": "TABLE"},
        {"scope": "PRIMARY_KEYS", "table": table},
        {"scope": "OTHER"},
        {"scope": "PREDICATE", "table": table},
        {"scope": "TABLE", "table": table, "where": "id = 1"},
        {"scope": "TABLE", "table": table, "deleteMissing": True},
    )
    for body in unfit:
        assert operator("POST", path, body).status == 400
    assert viewer("POST", path, {"scope": "ALL_TABLES"}).status == 403
    assert viewer("GET", f"{path}/none").status == 404
    assert viewer.one(path)["countsByState"] == {"QUEUED": 3}
    part = {"scope": "PREDICATE", "table": table, "where": "id < 7", "priority": 5}
    assert operator.does("POST", path, part, 201)["request"]["priority"] == 5
    gone = {**keys, "deleteMissing": True}
    operator.does("POST", path, gone, 201)
    with contextlib.closing(StateStore(paths_of(control).database)) as held:
        asked = held.requests()[-2:]
    assert [(one.predicate, one.delete_missing) for one in asked] == [("id < 7", False), ("", True)]
    newest = viewer.one(f"{path}?limit=1")["requests"][0]
    one = f"{path}/{newest['requestId']}"
    for verb, state in (("pause", "PAUSED"), ("resume", "QUEUED"), ("cancel", "CANCELLED")):
        assert operator.does("POST", f"{one}/{verb}", status=200)["state"] == state
        assert viewer("POST", f"{one}/{verb}").status == 403
    assert operator("POST", f"{path}/none/cancel").status == 404
    pace = f"{SHOP}/api/v1/pace"
    assert operator.does("PUT", pace, {"chunk_rows": 500, "load": 0.5}, 200)["load"] == 0.5
    assert operator.does("PUT", pace, {"load": None}, 200)["chunk_rows"] == 500
    assert viewer.one(pace)["load"] is None
    assert operator("PUT", pace, {"load": 7}).status == 422
    health = viewer.one(f"{SHOP}/api/v1/runtime/health")
    assert (health["status"], health["adapter"]) == ("DOWN", "postgres"), "nothing captures here"


@req("F14", "C98")
def test_the_state_tells_the_truth_through_a_script_of_faults(plane: Any) -> None:
    control, operator, _ = plane
    target = {"type": "delta", "path": "./truth"}
    operator.does("PUT", SHOP, {"config": config_of(target=target)}, 201)
    row = control.store.replicator("default", "shop")
    config = control.folders.of(row).config(row)
    status = StatusFile(StatePaths.of(config).status("capture"), "capture")

    def told() -> tuple[str, str, dict[str, str], set[str]]:
        shown = operator.does("POST", "/v1/contexts/default/getState", {"name": "shop"}, 200)
        error = shown["sourceError"]["message"] if shown["sourceError"] else ""
        tables = {table["table"]: table["state"] for table in shown["tables"]}
        failing = {table["table"] for table in shown["tables"] if table["error"]}
        return shown["sourceState"], error, tables, failing

    assert told() == ("OK", "", {}, set())
    script: list[tuple[dict[str, str], Exception | None, str]] = [
        ({"a": "copying", "b": "copying"}, None, "OK"),
        ({"a": "live", "b": "copying"}, None, "OK"),
        ({"a": "live", "b": "failing"}, None, "OK"),
        (
            {"a": "live", "b": "failing"},
            SlotLost("the slot is gone.", next_step="resync."),
            "FAILING",
        ),
        ({"a": "live", "b": "live"}, None, "OK"),
        ({"a": "live", "b": "left"}, None, "OK"),
    ]
    # A table that is gone at the source is no table of the design's state, and does not fail.
    words = {"copying": "SNAPSHOTTING", "live": "REPLICATING", "failing": "FAILING"}
    for phases, error, source in script:
        standing(config, phases)
        if error is None:
            status.write(ProcessState.RUNNING, force=True)
        else:
            status.write(ProcessState.FAILED, error=describe_error(error), force=True)
        expected = {name: words[phase] for name, phase in phases.items() if phase in words}
        said = "the slot is gone." if error else ""
        failing = {name for name, phase in phases.items() if phase == "failing"}
        wanted = (source, said, expected, failing)
        # An answer is at most a second old.
        until(lambda: told() == wanted, str(wanted), 20)  # noqa: B023


def test_a_control_plane_that_stands_by_sets_no_pace(plane: Any) -> None:
    found, operator, _ = plane
    operator.does("PUT", SHOP, {"config": config_of()}, 201)
    lease = found.store.lease()
    assert lease is not None
    leases.release(found.database, lease)
    assert leases.take(found.database, "another", 240)
    refused = operator("PUT", f"{API}/pace", {"load": 0.5})
    assert (refused.status, refused.error["type"]) == (503, "ControlStandby")
    assert operator.one(f"{API}/pace")["load"] is None
