"""The class archive is used where there is one, and never missed where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark import archive


def test_sessions_use_an_archive_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert archive.archive_options() == ""
    place = archive.archive_path()
    place.parent.mkdir(parents=True)
    place.touch()
    assert f"-XX:SharedArchiveFile={place}" in archive.archive_options()
    # An archive of another JDK must not keep Spark from starting.
    assert "-Xshare:auto" in archive.archive_options()


def test_it_says_where_the_archive_lies(capsys: pytest.CaptureFixture[str]) -> None:
    assert archive.main(["--print"]) == 0
    assert capsys.readouterr().out == f"{archive.archive_path()}\n"
