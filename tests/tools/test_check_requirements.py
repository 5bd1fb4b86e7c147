"""The check that ties requirements to tests sees what it must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_requirements

TABLE = """# Requirements

| id | requirement | proven by |
|---|---|---|
| P01 | Something. | {P01} |
| A-1 | Something else. | {A1} |
"""

PROOF = """
from tests.requirements import req

@req("P01")
def test_one(): ...

class TestMany:
    @req("P01", "A-1")
    def test_two(self): ...
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table and a folder of tests of our own."""
    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(check_requirements, "TABLE", tmp_path / "requirements.md")
    monkeypatch.setattr(check_requirements, "TESTS", tmp_path / "tests")
    return tmp_path


def write(place: Path, *, tests: str = PROOF, **proofs: str) -> None:
    text = TABLE.format(**{"P01": "open", "A1": "open", **proofs})
    (place / "requirements.md").write_text(text)
    (place / "tests" / "test_x.py").write_text(tests)


def test_writing_fills_in_the_tests_and_then_all_is_well(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(place)
    assert check_requirements.main(["--write"]) == 0
    text = (place / "requirements.md").read_text()
    assert "| P01 | Something. | `test_x.py::TestMany::test_two`, `test_x.py::test_one` |" in text
    assert "| A-1 | Something else. | `test_x.py::TestMany::test_two` |" in text
    capsys.readouterr()
    assert check_requirements.main([]) == 0
    assert capsys.readouterr().out == "requirements: 2 in all, 2 with a test\n"


def test_an_unknown_id_fails(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(place, tests='@req("P99")\ndef test_x(): ...\n')
    assert check_requirements.main([]) == 1
    assert "test_x.py::test_x names P99" in capsys.readouterr().err


def test_a_row_that_stands_there_twice_fails(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(place)
    table = place / "requirements.md"
    table.write_text(table.read_text() + "| P01 | Something. | open |\n")
    assert check_requirements.main([]) == 1
    assert "has P01 twice" in capsys.readouterr().err


def test_a_row_called_done_that_no_test_names_fails(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(place, tests="", P01="`test_gone.py::test_gone`")
    assert check_requirements.main([]) == 1
    assert "calls P01 done" in capsys.readouterr().err
    assert check_requirements.main(["--write"]) == 0
    assert "| P01 | Something. | open |" in (place / "requirements.md").read_text()


def test_a_reason_why_something_is_open_stays_whatever_is_written(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(place, P01="open: comes later", A1="`test_gone.py::test_x`; open: half of it")
    assert check_requirements.main(["--write"]) == 0
    text = (place / "requirements.md").read_text()
    both = "`test_x.py::TestMany::test_two`, `test_x.py::test_one`; open: comes later |"
    assert both in text
    assert "| A-1 | Something else. | `test_x.py::TestMany::test_two`; open: half of it |" in text
    write(place, tests="", P01="open: comes later", A1="open: half of it")
    capsys.readouterr()
    assert check_requirements.main([]) == 0
    assert "out of date" not in capsys.readouterr().out
    write(place, tests="", A1="`test_gone.py::test_x`; open: half of it")
    assert check_requirements.main([]) == 1
    assert "calls A-1 done" in capsys.readouterr().err


def test_ids_that_cannot_be_read_without_running_fail(place: Path) -> None:
    write(place, tests='ALL = ["P01"]\n@req(*ALL)\ndef test_x(): ...\n')
    assert check_requirements.main([]) == 1


def test_the_real_table_has_every_family() -> None:
    known = check_requirements.known_ids()
    sizes = {"P": 74, "N": 32, "H": 30, "D": 133, "C": 110, "F": 20, "T": 20}
    lists = {"A-": 19, "B-": 12, "C-": 20}
    expected = {
        f"{f}{n:02d}" for f, size in sizes.items() if f not in "FT" for n in range(1, size + 1)
    }
    expected |= {f"{f}{n}" for f in "FT" for n in range(1, sizes[f] + 1)}
    expected |= {f"{f}{n}" for f, size in lists.items() for n in range(1, size + 1)}
    assert known == expected
