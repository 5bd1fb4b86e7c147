"""The change log as capture sees it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogSettings
from headrace.changelog.jobs import jobs, register_job
from headrace.errors import DiskFull
from headrace.replicator import capture_log
from headrace.replicator.capture_log import CAPTURE, CaptureLog


def test_what_a_full_disk_refused_is_written_down_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what capture needs no more would be kept for as long as it waits for the room that this takes."""
    refused = [DiskFull("full.")]

    def register(folder: Path, name: str, scn: int) -> None:
        if refused:
            raise refused.pop()
        register_job(folder, name, scn)

    monkeypatch.setattr(capture_log, "register_job", register)
    with closing(CaptureLog(tmp_path, ChangeLogSettings())) as log:
        with pytest.raises(DiskFull):
            log.retain(7)
        log.retain(7)
    assert jobs(tmp_path)[CAPTURE] == 7
