"""The C extensions at the installation: built where a compiler works, left out with a word where none does."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tools import build_extensions


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder whose one extension is a line long."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tiny.pyx").write_text("# cython: language_level=3\nanswer = 42\n")
    monkeypatch.setattr(build_extensions, "ROOT", tmp_path)
    monkeypatch.setattr(build_extensions, "EXTENSIONS", {"tiny": "src/tiny.pyx"})
    return tmp_path / "src"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_with_a_compiler_it_lies_beside_its_source(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (built,) = build_extensions.build()
    assert built.parent == tiny
    monkeypatch.syspath_prepend(str(tiny))
    import tiny as module  # type: ignore[import-not-found]

    assert module.answer == 42
    monkeypatch.delitem(sys.modules, "tiny")


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler"])
def test_without_one_the_installation_goes_on_and_says_so(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert build_extensions.build() == []
    assert "no C extensions, the compiler said" in capfd.readouterr().err
    assert not list(tiny.glob("*.so"))
