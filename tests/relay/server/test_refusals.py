"""What a relay refuses: each time by name, with the object and what to do."""

from __future__ import annotations

import pytest

from tests.changelog.windows import synced, window
from tests.relay.server.asking import ask
from tests.requirements import req

BAD = [
    ("after", "x"),
    ("after", "-1"),
    ("after", "5:"),
    ("after", "0:3"),
    ("after", "1:99999999999"),
    ("after", str(2**63)),
    ("since_us", "yesterday"),
    ("upto", "1.5"),
    ("upto", "-2"),
    ("upto", "9" * 30),
    ("mode", "poll"),
    ("max_bytes", "0"),
    ("max_bytes", "many"),
    ("wait_ms", "-1"),
    ("wait_ms", "99999999"),
    ("format", "csv"),
    ("filter", "{"),
    ("filter", "[]"),
    ("filter", "[" * 10_000),
    ("filter", r'{"where": {"public.\ud800": "k >"}}'),
    ("nonsense", "1"),
]


@req("D65")
@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_parameter_that_does_not_read_is_named(writer, url, name, value):
    synced(writer, window(1))
    asked = {"source": "shop", "mode": "pull", name: value}
    for answer in (ask(url, "/stream", **asked), ask(url, "/stream", post=asked)):
        assert answer.status == 400
        assert answer.error["type"] == "BadRequest"
        assert name in answer.error["message"]
        assert answer.error["next_step"]


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"source": "shop", "after": True}, "after"),
        ({"source": "shop", "after": [1]}, "after"),
        ({"source": "shop", "upto": 1.5}, "upto"),
        ({"source": 7}, "source"),
        ({}, "source"),
        ({"source": "shop", "after": 1, "since_us": 1}, "since_us"),
        ({"source": "shop", "max_bytes": 100}, "max_bytes"),
        ({"source": "shop", "wait_ms": 100}, "wait_ms"),
    ],
)
def test_what_does_not_go_together_is_named(writer, url, asked, name):
    answer = ask(url, "/stream", post=asked)
    assert (answer.status, answer.error["type"]) == (400, "BadRequest")
    assert name in answer.error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1]",
        b"\xff",
        b"x" * (2**20 + 1),
        b"[" * 10_000,
        rb'{"\ud800": 1}',
        b'{"\xed\xa0\x80": 1}',
    ],
)
def test_a_body_that_is_no_json_object_is_refused(writer, url, body):
    answer = ask(url, "/stream", post=body)
    assert (answer.status, answer.error["type"]) == (400, "BadRequest")
    assert "body" in answer.error["message"].lower()


def test_a_parameter_that_comes_twice_is_refused(writer, url):
    answer = ask(url, "/stream?source=shop&after=1&after=2")
    assert answer.status == 400
    assert "after comes twice" in answer.error["message"]


def test_a_filter_that_cannot_be_is_named_with_its_place(writer, url):
    synced(writer, window(1))
    answer = ask(url, "/stream", source="shop", mode="pull", filter='{"tablse": ["*"]}')
    assert (answer.status, answer.error["type"]) == (400, "BadFilter")
    assert "columns, partition, tables, where" in answer.error["message"]


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/admin/nothing", "/stream?source=other", "/register?source=other"]
)
def test_what_is_not_there_is_said_in_json(writer, url, path):
    answer = ask(url, path) if "admin" not in path else ask(url, path, post={"source": "shop"})
    assert (answer.status, answer.error["type"]) == (404, "NotServed")
    assert answer.error["next_step"]


def test_a_table_version_that_was_never_kept_is_not_served(writer, url):
    answer = ask(url, "/register", source="shop", ids=f"{7:016x}")
    assert (answer.status, answer.error["type"]) == (404, "NotServed")
    assert f"{7:016x}" in answer.error["message"]
    for ids in ("7", "zz" * 8):
        assert ask(url, "/register", source="shop", ids=ids).status == 400


def test_another_protocol_is_refused_and_every_answer_names_ours(writer, url):
    answer = ask(url, "/sources", headers={"headrace-protocol": "2"})
    assert (answer.status, answer.error["type"]) == (426, "UnsupportedProtocol")
    assert ask(url, "/sources", headers={"headrace-protocol": "1"}).status == 200
    for path in ("/sources", "/nothing", "/stream?source=shop&after=x"):
        assert ask(url, path).headers["headrace-protocol"] == "1"


def test_a_source_is_needed_on_every_page_of_one(writer, url):
    for path in ("/register", "/buffer", "/stream"):
        answer = ask(url, path)
        assert (answer.status, answer.error["type"]) == (400, "BadRequest")
        assert "source" in answer.error["message"]
