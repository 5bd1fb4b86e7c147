"""Which database is read, only its own source knows: its chunk reads, its watermarks and its log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace
from tests.requirements import req

ROOT = Path(headrace.__file__).parent
NAMES = re.compile(r"mysql|maria|postgres|\bpg_|psycopg|gtid|binlog", re.IGNORECASE)


@req("P16")
@pytest.mark.parametrize("package", ["watermark", "relay", "changelog", "fold"])
def test_what_stands_behind_the_port_of_sources_names_none(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert len(files) > 5
    named = {
        f"{file.relative_to(ROOT)}:{number}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if NAMES.search(line)
    }
    assert not named


def test_a_source_would_be_found() -> None:
    assert NAMES.search((ROOT / "sources" / "mysql" / "chunks.py").read_text())
