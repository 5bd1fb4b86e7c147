"""A control plane's database of each kind, empty."""

from __future__ import annotations

from pathlib import Path

import pytest

KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


def url_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database; a server starts only where one is asked for."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'control.db'}"
    url: str = request.getfixturevalue("database")
    return url
