"""Steering a replicator over the API: back to an earlier frontier, and its dead letters."""

from __future__ import annotations

import json

from headrace.replicator.control.plane import ControlPlane
from tests.control.api.paths import SHOP
from tests.control.asking import Asking
from tests.control.letters import put_letter
from tests.control.planes import config_of
from tests.requirements import req


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


@req("C67")
def test_dead_letters_are_listed_shown_replayed_and_discarded(
    operator: Asking, viewer: Asking, both: tuple[ControlPlane, str]
) -> None:
    plane, _ = both
    # Not where another test's tables may stand: before its first run every name of a table is let through.
    config = config_of(target={"type": "delta", "path": "./nothing-yet"})
    operator.does("PUT", SHOP, {"config": config}, 201)
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
