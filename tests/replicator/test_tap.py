"""The tap that a configuration asks for."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError

from headrace.observe.tap import NO_TAP
from headrace.observe.tap.events import Cdc
from headrace.observe.tap.recording import RecordingTap
from headrace.observe.tap.teaching import TeachingTap
from headrace.replicator.config import TapConfig
from headrace.replicator.tap import open_tap, tap_file
from tests.observe.json_schema import assert_valid, lines_of
from tests.requirements import req

EVENT = Cdc(lsn="1", op="INSERT", table="public.t", pk=("ann@example.org",))


@req("H20")
def test_it_is_off_unless_asked_for_and_leaves_no_file(tmp_path: Path) -> None:
    with open_tap(TapConfig(), tmp_path / "tap", threading.Event()) as tap:
        assert tap is NO_TAP
    assert not (tmp_path / "tap").exists()


def test_recording_writes_what_its_owner_alone_may_read(tmp_path: Path) -> None:
    folder = tmp_path / "tap"
    wanted = TapConfig(enabled=True, rows=False)
    with open_tap(wanted, folder, threading.Event()) as tap:
        assert isinstance(tap, RecordingTap)
        assert not tap.rows
        tap.begin("run", "shop")
        tap.emit(EVENT)
    assert_valid(lines_of(tap_file(folder)))
    assert "ann@example.org" in tap_file(folder).read_text()
    assert stat.S_IMODE(tap_file(folder).stat().st_mode) == 0o600


def test_hashed_keys_show_no_value(tmp_path: Path) -> None:
    folder = tmp_path / "tap"
    for _ in range(2):
        with open_tap(TapConfig(enabled=True, keys="hashed"), folder, threading.Event()) as tap:
            tap.begin("run", "shop")
            tap.emit(EVENT)
    assert "ann" not in tap_file(folder).read_text()
    shown = {json.loads(line)["pk"] for line in lines_of(tap_file(folder)) if '"cdc"' in line}
    # The secret stays, so a key looks the same in the next run.
    assert len(shown) == 1


def test_teaching_ends_with_the_capture(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with open_tap(TapConfig(enabled=True, teach=True), tmp_path / "tap", stop) as tap:
        assert isinstance(tap, TeachingTap)
        tap.begin("run", "shop")
        tap.emit(EVENT)
    assert len(lines_of(tap_file(tmp_path / "tap"))) == 2


@pytest.mark.parametrize("value", [{"size": "1KiB"}, {"queue": 10}, {"keys": "rot13"}, {"rate": 1}])
def test_settings_that_cannot_work_are_refused(value: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TapConfig.model_validate(value)
