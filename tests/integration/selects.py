"""The selects of chunks at a real server: when each was, and something that happens as it begins."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.sources.base import Chunk
from headrace.sources.postgres.chunks import PostgresChunkReader

__all__ = ["Selects"]


class Selects:
    """When each select of a chunk began and ended, in monotonic seconds; ``act`` is called when one begins."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: list[tuple[float, float]] = []
        self.act: Callable[[], None] = lambda: None
        for name in ("read", "read_keys"):
            self._watch(monkeypatch, name)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        original = getattr(PostgresChunkReader, name)

        def read(reader: PostgresChunkReader, *arguments: Any) -> Chunk:
            begun = time.monotonic()
            self.act()
            found: Chunk = original(reader, *arguments)
            self.times.append((begun, time.monotonic()))
            return found

        monkeypatch.setattr(PostgresChunkReader, name, read)

    def gaps_s(self) -> list[float]:
        """Return how long the source rested between two selects."""
        return [after - end for (_, end), (after, _) in itertools.pairwise(self.times)]
