"""A change log and a relay over it, for the commands that read one; and the file of a replicator that nobody runs."""

from pathlib import Path

import pytest

from tests.client.conftest import log, relay

__all__ = ["file", "log", "relay"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(
        "name: shop\n"
        "source: {type: postgres, tables: ['public.*'], url: 'postgresql://u@127.0.0.1:1/db'}\n"
        "target: {type: delta, path: ./lake}\n"
    )
    return path
