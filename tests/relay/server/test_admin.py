"""Commands: they reach the state of the source's capture, or say by name why not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headrace.model.schema import TableId
from headrace.state.pace import Pace
from headrace.state.records import Scope
from headrace.state.store import StateStore
from headrace.testing.relay import served, sources_of
from tests.changelog.windows import scns, synced, window
from tests.relay.server.asking import ask, pulled, stream
from tests.requirements import req


@pytest.fixture
def state(tmp_path) -> Iterator[StateStore]:
    store = StateStore(tmp_path / "state.db")
    store.write([lambda writer: writer.set("tables", '["public.t", "public.other"]')])
    yield store
    store.close()


@pytest.fixture
def commanded(state, folder, tmp_path) -> Iterator[str]:
    (source,) = sources_of({"shop": folder})
    with served((replace(source, state=tmp_path / "state.db"),)) as url:
        yield url


def state_of(url: str) -> str:
    (source,) = ask(url, "/sources").json["sources"]
    return str(source["state"])


def test_pause_and_resume_reach_the_capture_and_are_shown(writer, state, commanded):
    synced(writer, window(1))
    assert state_of(commanded) == "running"
    assert ask(commanded, "/admin/pause", post={"source": "shop"}).json["state"] == "paused"
    assert state.pace().log_paused
    assert state_of(commanded) == "paused"
    # What is there is served on.
    assert scns(pulled(commanded, after=0)) == [1]
    assert ask(commanded, "/admin/resume", post={"source": "shop"}).json["state"] == "running"
    assert not state.pace().log_paused
    assert state_of(commanded) == "running"


def test_a_dump_is_queued_for_a_table_some_rows_or_all(state, commanded):
    def asked(**said: str) -> str:
        answer = ask(commanded, "/admin/dump", post={"source": "shop"} | said)
        assert answer.status == 202
        return str(answer.json["request"])

    ids = [asked(table="public.t"), asked(table="public.t", where="k > 1"), asked(table="all")]
    found = {request.request_id: request for request in state.requests()}
    assert [found[one].scope for one in ids] == [Scope.TABLE, Scope.PREDICATE, Scope.ALL_TABLES]
    assert found[ids[1]].predicate == "k > 1"
    assert found[ids[0]].table == TableId("public", "t")


@pytest.mark.parametrize(
    ("said", "status", "name"),
    [
        ({}, 400, "table"),
        ({"table": "t"}, 400, "table"),
        ({"table": 7}, 400, "table"),
        ({"table": "all", "where": "k > 1"}, 400, "where"),
        ({"table": "public.t", "where": 1}, 400, "where"),
        ({"table": "public.none"}, 404, "public.none"),
    ],
)
def test_a_dump_that_cannot_be_is_refused_by_name(state, commanded, said, status, name):
    answer = ask(commanded, "/admin/dump", post={"source": "shop"} | said)
    assert answer.status == status
    assert name in answer.error["message"]
    assert not state.requests()


@req("D45")
def test_retention_reaches_the_capture_setting_by_setting(state, commanded):
    def said(**settings: object) -> dict[str, object]:
        answer = ask(commanded, "/admin/retention", post={"source": "shop"} | settings)
        assert answer.status == 200
        return answer.json

    assert said(retain=5000) == {"source": "shop", "retain": 5000, "retain_s": None}
    assert said(retain_s=1.5) == {"source": "shop", "retain": 5000, "retain_s": 1.5}
    assert (state.pace().retain_bytes, state.pace().retain_s) == (5000, 1.5)
    assert said(retain=None, retain_s=0) == {"source": "shop", "retain": None, "retain_s": 0.0}
    assert (state.pace().retain_bytes, state.pace().retain_s) == (None, 0.0)
    assert not state.pace().log_paused


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({}, "retain"),
        ({"retain": "1GiB"}, "retain"),
        ({"retain": 1.5}, "retain"),
        ({"retain": True}, "retain"),
        ({"retain": -1}, "changelog.retain must lie"),
        ({"retain_s": "1"}, "retain_s"),
        ({"retain_s": False}, "retain_s"),
        ({"retain": 1, "retain_s": -1}, "retain_s must lie"),
    ],
)
def test_a_retention_that_cannot_be_is_refused_by_name(state, commanded, said, name):
    answer = ask(commanded, "/admin/retention", post={"source": "shop"} | said)
    assert (answer.status, answer.error["type"]) == (400, "BadRequest")
    assert name in answer.error["message"]
    assert state.pace() == Pace()


def test_a_source_whose_capture_is_elsewhere_takes_no_commands(writer, url):
    for command in ("pause", "resume", "dump", "retention"):
        answer = ask(url, f"/admin/{command}", post={"source": "shop", "table": "all", "retain": 1})
        assert (answer.status, answer.error["type"]) == (404, "NotServed")
    assert ask(url, "/admin/pause", post={}).status == 400
    assert ask(url, "/admin/pause", post={"source": "x"}).status == 404
    assert ask(url, "/admin/pause").status == 404


def test_shutdown_ends_the_streams_with_a_note(writer, url):
    synced(writer, window(1))
    with stream(url, after=0) as frames:
        frames.until(1)
        assert ask(url, "/admin/shutdown", post={}).status == 202
        last = [frame for frame in frames if isinstance(frame, dict)][-1]
    assert last == {"kind": "end", "reason": "shutdown"}
