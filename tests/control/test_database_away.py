"""The control plane's database goes away: replicators go on, whoever asks is told, and nothing runs twice behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.errors import ControlStandby
from headrace.replicator.control import leases
from headrace.replicator.control import plane as plane_module
from headrace.replicator.control.lifecycle import Command, State
from headrace.testing.postgres import EmbeddedPostgres
from tests.control.asking import Asking, served
from tests.control.planes import Hand, alive, config_of, end_everything, environment, running
from tests.waiting import until

pytestmark = pytest.mark.postgres

NS = "/v1/contexts/default"


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as running:
        yield running


def test_a_database_that_goes_away_ends_nothing_and_is_waited_for(
    tmp_path: Path,
    server: EmbeddedPostgres,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
    try:
        # Long enough to be renewed by a slow machine; it has ended once the test says so.
        passed = [0.0]
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
        monkeypatch.setattr(plane_module, "time", clock)
        with served(tmp_path, server.url(), lease_s=20) as (plane, url):
            hand, ask = Hand(plane), Asking(url)
            pid = hand.started()
            server.kill()
            refused = ask("GET", f"{NS}/replicators")
            assert (refused.status, refused.error["type"]) == (503, "StateError")
            passed[0] = 20.0
            until(lambda: not plane.active, "that it knows no better than to stand by")
            late = ask("PUT", f"{NS}/replicators/other", {"config": config_of()})
            assert late.status == 503
            assert alive(pid)
            # It is tried several times a second, and said once by each thread.
            assert caplog.text.count("cannot be used") <= 3

            server.start()
            until(lambda: plane.active, "the lease")
            until(lambda: hand.pid() == pid, "the adoption")
            assert ask.one(f"{NS}/replicators/shop")["state"] == "RUNNING"
            assert [word for word, *_ in hand.journal()] == ["began"]
            hand.command(Command.STOP)
            hand.reaches(State.STOPPED)
            assert not alive(pid)
    finally:
        end_everything(tmp_path)


def test_a_control_plane_that_stood_still_goes_on_where_nobody_took_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(plane_module, "time", clock)
    # It is renewed in the course of a minute; until then who writes finds that it has ended.
    with running(tmp_path, lease_s=240) as hand:
        plane = hand.plane

        def active() -> bool:
            return plane.active

        until(active, "the lease")
        passed[0] = 240.0
        assert not active()
        with plane.writing():
            assert active()

        lease = plane.store.lease()
        assert lease is not None
        leases.release(plane.database, lease)
        assert leases.take(plane.database, "another", 240)
        passed[0] = 480.0
        with pytest.raises(ControlStandby), plane.writing():
            pass
        assert not active()
