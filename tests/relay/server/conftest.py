"""A log, its writer, and a relay that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogWriter
from headrace.registry.file import FileRegistry
from headrace.testing.relay import served
from tests.changelog.played import SMALL
from tests.changelog.windows import OTHER, TABLE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def writer(folder: Path) -> Iterator[ChangeLogWriter]:
    with ChangeLogWriter.open(folder, SMALL) as log:
        registry = FileRegistry(folder / "schemas")
        registry.put(TABLE)
        registry.put(OTHER)
        yield log


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with served({"shop": folder}, heartbeat_s=0.2) as at:
        yield at
