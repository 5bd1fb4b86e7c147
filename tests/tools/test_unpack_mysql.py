"""Where MySQL's packages come from, and what is said where they cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import unpack_mysql


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "apt"
    (folder / "sources.list.d").mkdir(parents=True)
    monkeypatch.setattr(unpack_mysql, "SOURCES", folder)
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "# http://other.test/debian\nTypes: deb\nURIs: http://mirror.test/debian\nSuites: a\n",
        "# deb http://other.test/debian a main\ndeb [arch=amd64] http://mirror.test/debian a main\n",
        "deb http://mirror.test/debian-security a main\ndeb http://mirror.test/debian a main\n",
    ],
)
def test_the_mirror_is_the_one_that_the_machine_uses(sources: Path, text: str) -> None:
    (sources / "sources.list.d" / "debian.sources").write_text(text)
    assert unpack_mysql.mirror() == "http://mirror.test/debian"


def test_what_stands_in_the_way_is_said_and_leaves_nothing_behind(
    sources: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # No server, no mirror: both before anything is fetched.
    target = tmp_path / "cache" / "mysql"
    monkeypatch.setattr(sys, "argv", ["unpack_mysql.py", str(target)])
    monkeypatch.setattr(unpack_mysql, "KEYRING", sources)
    monkeypatch.setattr(unpack_mysql, "NEEDED", ())
    assert unpack_mysql.main() == 1
    assert capsys.readouterr().out == "no mirror of Debian is set up here\n"
    monkeypatch.setattr(unpack_mysql, "NEEDED", ("no-such-program",))
    assert unpack_mysql.main() == 1
    assert capsys.readouterr().out == "there is no `no-such-program`\n"
    assert list(target.parent.iterdir()) == []
