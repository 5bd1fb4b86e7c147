"""Pictures of replicators: one that cannot be looked at leaves those of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import create_server

import pytest

from headrace.replicator.config import Config
from headrace.replicator.control import pictures
from headrace.replicator.picture import Observer
from tests.control.asking import Asking, served
from tests.control.planes import Hand, end_everything, environment, running
from tests.waiting import until


def _observed(config: Config) -> Observer:
    if config.name.endswith("bad"):
        raise ValueError("sword" + "fish")
    return Observer(config)


def test_one_that_nobody_can_look_at_leaves_the_pictures_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
    monkeypatch.setattr(pictures, "Observer", _observed)
    with running(tmp_path) as hand:
        bad, shop = hand.deploy("bad"), hand.deploy("shop")
        until(lambda: hand.plane.pictures.last(shop), "a picture of shop")
        for _ in range(3):
            seen = hand.plane.pictures.seen(bad, age_s=0.0)
            assert (seen.picture, seen.error) == (None, "ValueError while looking at it")
        assert hand.plane.pictures.seen(shop).picture is not None
    assert "swordfish" not in caplog.text
    assert caplog.text.count("bad: ValueError") == 1


@contextmanager
def silent() -> Iterator[dict[str, str | float]]:
    """Give an object store that takes connections and answers nothing."""
    with closing(create_server(("127.0.0.1", 0), backlog=200)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        yield {"endpoint": endpoint, "region": "x", "timeout_s": 12.0}


def test_a_target_that_gives_no_answer_hides_no_other_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    try:
        with silent() as store, served(tmp_path) as (plane, url):
            hand, ask = Hand(plane), Asking(url)
            hand.started("shop")
            away = {"type": "delta", "path": "s3://bucket/lake", "store": store}
            hand.deploy("away", target=away)
            path = "/v1/contexts/default/replicators/away"
            asking = [threading.Thread(target=ask, args=("GET", path)) for _ in range(60)]
            for thread in asking:
                thread.start()
            late = "a look at it has not ended"
            until(lambda: late in ask.one(path)["seen_error"], "the look takes too long")
            began, shop = time.monotonic(), hand.row("shop")
            assert ask("GET", "/healthz").status == 200
            shown = ask.one(path)
            assert late in shown["seen_error"]
            assert time.monotonic() - began < 2
            before = plane.pictures.last(shop)
            until(lambda: plane.pictures.last(shop) != before, "a new picture of shop", 8)
            for thread in asking:
                thread.join()
    finally:
        end_everything(tmp_path)
