"""Pictures of replicators: one that cannot be looked at leaves those of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.replicator.config import Config
from headrace.replicator.control import pictures
from headrace.replicator.picture import Observer
from tests.control.planes import environment, running
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
