"""What a relay refuses: each time by name, with the object and what to do."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.changelog.windows import synced, window
from tests.relay.server.asking import ask
from tests.requirements import req
from tests.waiting import until

BAD = [
    ("after", "x"),
    ("after", "-1"),
    ("after", "5:"),
    ("after", "0:3"),
    ("after", "1:99999999999"),
    ("after", "5:3@k3f9a2.4"),
    ("after", "5:3@.4"),
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


@req("D65")
def test_an_address_full_of_names_keeps_nobody_waiting(url):
    names: dict[str, Any] = {f"{number:x}": "" for number in range(10_000)}
    began = time.process_time()
    answer = ask(url, "/stream", **{"source": "shop", **names})
    assert answer.error["type"] == "BadRequest"
    assert time.process_time() - began < 0.5


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
        b'{"source": NaN}',
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


def sent(url: str, *parts: bytes) -> bytes:
    """Return what the relay answers to bytes until it ends the connection."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as line:
        said = b""
        with contextlib.suppress(ConnectionError):
            for part in parts:
                line.sendall(part)
            while more := line.recv(65_536):
                said += more
        return said


def refused(url: str, kind: str) -> int:
    lines = ask(url, "/metrics").body.decode().splitlines()
    found = [line for line in lines if line.startswith("headrace_relay_refusals_total{")]
    return sum(int(line.rpartition(" ")[2]) for line in found if kind in line)


def test_headers_without_an_end_are_not_kept(writer, url):
    long = b"GET /sources HTTP/1.1\r\nhost: x\r\nx: " + b"x" * 900_000
    assert b" 200 " in sent(url, long + b"\r\nconnection: close\r\n\r\n")
    for more in (b"x" * 100_000, b"\r\ny: y" * 30_000):
        pieces = [b"GET /sources HTTP/1.1\r\nhost: x\r\nx: ", *[more] * 200]
        assert b" 200 " not in sent(url, *pieces)
    assert ask(url, "/sources").status == 200


def test_who_goes_away_inside_a_request_is_no_error_of_the_relays(writer, url, caplog):
    where = urlsplit(url)
    for _ in range(3):
        with socket.create_connection((where.hostname, where.port), timeout=30) as line:
            line.sendall(b"POST /stream HTTP/1.1\r\nhost: x\r\ncontent-length: 40\r\n\r\n{")
    until(lambda: refused(url, "BadRequest") == 3, "all of them were heard")
    assert "Exception" not in caplog.text
