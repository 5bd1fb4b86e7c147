"""What capture tells of trouble: waiting, stopping, and nothing that may hold a secret."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace.errors import SourceUnavailable, WatermarkOutOfOrder
from headrace.registry.file import FileRegistry
from headrace.relay.capture import Capture
from headrace.relay.settings import CaptureSettings
from headrace.sources.base import LogItem
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.state.store import StateStore
from headrace.testing.notation import table_of
from headrace.testing.scripted import InlineExecutor
from tests.observe.json_schema import assert_valid
from tests.observe.taps import ListTap
from tests.requirements import req
from tests.scenarios.crashing_log import open_log


def stopped_by(error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ListTap:
    """Run a capture that first loses its source, and then meets an error that ends it."""
    schema = table_of(2)
    source = ScriptedSource(ScriptedDatabase([schema]))
    polls: list[Exception] = [SourceUnavailable("the server does not answer."), error]

    def poll(self: object, timeout_s: float) -> LogItem | None:
        raise polls.pop(0)

    monkeypatch.setattr("headrace.sources.scripted.source._ScriptedLog.poll", poll)
    log, lose = open_log(folder)
    tap = ListTap()
    capture = Capture(
        source=source,
        log=log,
        registry=FileRegistry(folder / "schemas"),
        state=StateStore(folder / "state.db"),
        settings=CaptureSettings(retry_s=0.001, spool_folder=folder),
        tables=[schema],
        executor=InlineExecutor(),
        tap=tap,
    )
    with pytest.raises(type(error)):
        capture.run(threading.Event())
    lose()
    assert_valid(tap.lines)
    return tap


@req("H20")
def test_a_boundary_that_failed_closed_is_told_with_its_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = WatermarkOutOfOrder("Watermark out of order.", next_step="find out who writes marks.")
    events = stopped_by(error, tmp_path, monkeypatch).events
    (waiting,) = (event for event in events if event["kind"] == "capture.waiting")
    assert waiting["state"] == "waiting for source"
    assert {k: events[-1][k] for k in ("kind", "boundary", "class", "message", "next_step")} == {
        "kind": "error",
        "boundary": "capture",
        "class": "WatermarkOutOfOrder",
        "message": "Watermark out of order.",
        "next_step": "find out who writes marks.",
    }


@req("C70")
def test_the_message_of_a_foreign_error_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = stopped_by(KeyError("swordfish"), tmp_path, monkeypatch)
    assert (tap.events[-1]["kind"], tap.events[-1]["class"]) == ("error", "KeyError")
    assert not any("swordfish" in line for line in tap.lines)
