"""The stores of each kind, with an empty folder in each."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store import Location
from tests.fixtures_store import object_server, prefix, proxy

__all__ = ["folder", "object_server", "prefix", "proxy"]

KINDS = ["local", pytest.param("objects", marks=pytest.mark.object_store)]


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Give an empty folder of each kind of store in turn."""
    found: Location = tmp_path if request.param == "local" else request.getfixturevalue("prefix")
    return found / "table"
