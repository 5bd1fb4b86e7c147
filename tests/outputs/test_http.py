"""The webhook: what is sent is signed, comes again until it is taken, and is refused by name."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client import Result
from headrace.errors import ConfigError
from headrace.model.block import SystemEvent, SystemKind
from headrace.outputs import HttpOutput, Webhook, WebhookSettings, WebhookUnavailable
from headrace.wire.place import Place
from tests.outputs.receiver import Receiver, receiving
from tests.outputs.windows import TABLE, deliver, insert, window_of

SECRET = b"both sides know this"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def output_to(receiver: Receiver, pauses: list[float] | None = None, **options: Any) -> HttpOutput:
    most = options.pop("most_changes", 1_000)
    settings = WebhookSettings(receiver.url, **{"secret": SECRET, "retries": 3, **options})
    waits: list[float] = [] if pauses is None else pauses
    return HttpOutput(Webhook(settings, sleep=waits.append), most_changes=most)


def test_a_window_is_one_signed_call(receiver):
    output = output_to(receiver, headers={"authorization": "Bearer x"})
    truncate = SystemEvent(81, 1, SystemKind.TRUNCATE, TABLE.table)
    assert deliver(output, 81, [insert(81, 0, 7), truncate]) == []
    deliver(output, 82, [insert(82, 0, 8)])
    (path, headers, body), _ = receiver.calls
    assert path == "/hook?token=hidden-token"
    expected = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    assert headers["headrace-signature"] == f"sha256={expected}"
    assert headers["authorization"] == "Bearer x"
    assert headers["idempotency-key"] == "shop:81:0"
    said = json.loads(body)
    assert (said["source"], said["scn"], said["end"]) == ("shop", 81, True)
    assert [change.get("op", change.get("event")) for change in said["changes"]] == [
        "+I",
        "truncate",
    ]
    assert len(receiver.connections) == 1, "one connection for all calls"


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("shop:81:0", "shop:81:0"),
        ("activity:public.50% off & more:fell:7", "activity:public.50% off & more:fell:7"),
        ("activity:public.größe:fell:7", "activity:public.gr%C3%B6%C3%9Fe:fell:7"),
        ("магазин:81:0", "%D0%BC%D0%B0%D0%B3%D0%B0%D0%B7%D0%B8%D0%BD:81:0"),
        ("two\r\nlines:81:0", "two%0D%0Alines:81:0"),
    ],
)
def test_a_key_of_any_names_goes_into_a_header(receiver, key, sent):
    webhook = Webhook(WebhookSettings(receiver.url, retries=0))
    webhook.post(b"{}", key)
    webhook.close()
    ((_, headers, _),) = receiver.calls
    assert headers["idempotency-key"] == sent


def test_a_large_window_is_several_calls_and_the_last_says_so(receiver):
    output = output_to(receiver, most_changes=2)
    deliver(output, 5, [insert(5, order, order) for order in range(5)])
    deliver(output, 6, [insert(6, order, order) for order in range(2)])
    assert [len(said["changes"]) for said in receiver.said()] == [2, 2, 1, 2]
    assert [said["end"] for said in receiver.said()] == [False, False, True, True]
    keys = [headers["idempotency-key"] for _, headers, _ in receiver.calls]
    assert keys == ["shop:5:0", "shop:5:2", "shop:5:4", "shop:6:0"]


def test_a_window_without_changes_makes_no_call(receiver):
    output = output_to(receiver)
    assert deliver(output, 5, []) == []
    assert receiver.calls == []


@pytest.mark.parametrize("trouble", [500, 503, 429, 408, "cut"])
def test_what_may_pass_is_tried_again_with_growing_pauses(receiver, trouble):
    pauses: list[float] = []
    receiver.answers = [trouble, trouble]
    output = output_to(receiver, pauses, pause_s=0.5, most_pause_s=0.6)
    assert deliver(output, 5, [insert(5, 0, 1)]) == []
    assert len(receiver.calls) == 3
    assert len({(headers["idempotency-key"], body) for _, headers, body in receiver.calls}) == 1
    assert pauses == [0.5, 0.6]


@pytest.mark.parametrize(
    ("asked", "pauses"),
    [
        ("7", [7.0, 7.0]),
        ("86400", [30.0, 30.0]),
        ("Thu, 31 Dec 2099 23:59:59 GMT", [30.0, 30.0]),
        ("0", [0.5, 0.6]),
        ("Thu, 01 Jan 1970 00:00:00 GMT", [0.5, 0.6]),
        ("soon", [0.5, 0.6]),
    ],
)
@pytest.mark.parametrize("trouble", [429, 503])
def test_a_webhook_that_says_when_to_come_again_is_heard_within_bounds(
    receiver, trouble, asked, pauses
):
    slept: list[float] = []
    receiver.answers = [trouble, trouble]
    receiver.headers = {"retry-after": asked}
    output = output_to(receiver, slept, pause_s=0.5, most_pause_s=0.6)
    assert deliver(output, 5, [insert(5, 0, 1)]) == []
    assert slept == pauses


def test_a_webhook_that_says_nothing_is_left_after_its_time(receiver):
    receiver.answers = ["sleep"]
    little, enough = (WebhookSettings(receiver.url, SECRET, timeout_s=s) for s in (0.2, 60.0))

    def left(_: float) -> None:
        # Only the first call says nothing; how long a busy machine takes for the second nobody knows.
        webhook._settings = enough

    webhook = Webhook(little, sleep=left)
    began = time.monotonic()
    assert deliver(HttpOutput(webhook), 5, [insert(5, 0, 1)]) == []
    assert time.monotonic() - began < 20, "it waited until the webhook hung up"
    assert len(receiver.calls) == 2


def test_when_tries_are_used_up_the_callback_fails_and_the_window_comes_again(receiver):
    receiver.answers = [503] * 4
    output = output_to(receiver)
    with pytest.raises(WebhookUnavailable, match="4 tries: status 503") as raised:
        deliver(output, 5, [insert(5, 0, 1, "a value")])
    assert "hidden-token" not in str(raised.value)
    assert "a value" not in str(raised.value)
    output.on_rollback(Place(4))
    assert deliver(output, 5, [insert(5, 0, 1, "a value")]) == []
    assert len({body for _, _, body in receiver.calls}) == 1


def test_nobody_there_is_unavailable_by_name():
    webhook = Webhook(WebhookSettings("http://127.0.0.1:9/x", retries=1), sleep=lambda _: None)
    with pytest.raises(WebhookUnavailable, match=r"127\.0\.0\.1.*ConnectionRefusedError"):
        webhook.post(b"{}", "k")


@pytest.mark.parametrize("status", [400, 401, 404, 410, 301])
def test_what_is_refused_ends_the_subscription_and_says_why(receiver, status, caplog):
    receiver.answers = [status]
    output = output_to(receiver)
    with caplog.at_level(logging.ERROR):
        answers = deliver(output, 5, [insert(5, 0, 1)], checkpoint=False)
    assert answers == [Result.ERROR_FATAL]
    assert len(receiver.calls) == 1
    assert output.refusal is not None
    assert f"status {status}" in str(output.refusal)
    assert f"status {status}" in caplog.text
    assert "hidden-token" not in caplog.text


def test_no_checkpoint_is_taken_while_changes_wait(receiver):
    output = output_to(receiver)
    output.on_start_window(window_of(5))
    output.on_data_event(insert(5, 0, 1))
    assert output.on_checkpoint(Place(5, 0)) is Result.SKIP_CHECKPOINT
    output.on_end_window(window_of(5))
    assert output.on_checkpoint(Place(5)) is None


def test_neither_address_nor_secret_is_shown():
    settings = WebhookSettings("https://h/x?token=hidden", SECRET, {"authorization": "hidden"})
    assert "hidden" not in repr(settings)
    assert "know this" not in repr(settings)


BAD = [
    ({"url": "ftp://h/x"}, "url"),
    ({"url": "h/x"}, "url"),
    ({"url": "https://user:pass@h/x"}, "url"),
    ({"url": "https://h", "secret": b""}, "secret"),
    ({"url": "https://h", "retries": -1}, "time or number"),
    ({"url": "https://h", "timeout_s": 0}, "time or number"),
]


@pytest.mark.parametrize(("settings", "field"), BAD)
def test_settings_that_cannot_be_are_refused_by_name(settings, field):
    with pytest.raises(ConfigError, match=field) as raised:
        HttpOutput(WebhookSettings(**settings))
    assert "pass@" not in str(raised.value)


def test_a_rollback_forgets_what_was_not_posted(receiver):
    output = output_to(receiver)
    output.on_start_window(window_of(5))
    output.on_data_event(insert(5, 0, 1))
    output.on_rollback(Place(3))
    assert output.on_checkpoint(Place(3)) is None
    deliver(output, 4, [insert(4, 0, 9)])
    (said,) = receiver.said()
    assert [(change["scn"], change["row"]["k"]) for change in said["changes"]] == [(4, 9)]
