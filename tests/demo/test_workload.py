"""What the shop's traffic does when its server refuses a step."""

from __future__ import annotations

import json
import threading

import pytest

from headrace.demo import workload
from headrace.demo.shops import ShopKind
from headrace.demo.workload import Traffic


class Refused(Exception):
    """What the shop's server raises."""


def test_a_step_that_was_refused_is_tried_again_and_those_behind_it_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = [2]

    def add_column(url: str) -> str:
        if left[0]:
            left[0] -= 1
            raise Refused
        return f"a column for {url}"

    shop = ShopKind(
        (),
        lambda *_: {},
        lambda *_: pytest.fail("no worker takes part"),
        Refused,
        Refused,
        add_column,
        lambda _, rows: f"{rows} rows",
        lambda _: "empty",
    )
    monkeypatch.setattr(workload, "shop_of", lambda _: shop)
    monkeypatch.setattr(workload, "_RECONNECT_S", 0.0)
    traffic = Traffic("there", 1.0, 1, big_rows=7, at_s=(0.0, 0.0, 0.0), stop=threading.Event())
    traffic._direct()
    said = [json.loads(line)["happened"] for line in capsys.readouterr().out.splitlines()]
    again = "the step at 0 s is tried again: Refused"
    assert said == [again, again, "a column for there", "7 rows", "empty"]
    assert traffic.with_channel.is_set()
