"""Queries that take long at the source are counted by their kind, and said with a next step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.sources.scripted.database import Cells
from headrace.testing.notation import table_of
from headrace.watermark.reads import Reads
from headrace.watermark.slow import SlowQueries

SCHEMA = table_of(2)
TABLE = SCHEMA.table
LIMIT_S = 5.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Slow(ScriptedDatabase):
    """A source that takes its time, by the test's clock, and may refuse in the end."""

    def __init__(self, clock: Clock, takes_s: float, error: Exception | None) -> None:
        super().__init__([SCHEMA])
        self._clock, self._takes_s, self._error = clock, takes_s, error

    def visible(self, table: TableId) -> list[Cells]:
        self._clock.now_s += self._takes_s
        if self._error is not None:
            raise self._error
        return super().visible(table)


QUERIES: dict[str, Callable[[Reads], object]] = {
    "chunk": lambda reads: reads.chunk("token", TABLE, None, ("9",), 10),
    "keys": lambda reads: reads.keys("token", TABLE, [("1",)]),
    "table": lambda reads: reads.table("token", TABLE),
}


def reads(folder: Path, slow: SlowQueries, database: ScriptedDatabase) -> Reads:
    source = ScriptedSource(database)
    return Reads(source.chunks(), source.watermarks(), "run", folder, slow=slow)


@pytest.mark.parametrize("error", [None, RuntimeError("refused")], ids=["answers", "refuses"])
@pytest.mark.parametrize("kind", QUERIES)
def test_a_query_is_slow_above_the_limit_and_not_at_it(tmp_path, caplog, kind, error):
    clock = Clock()
    slow = SlowQueries("shop", LIMIT_S, clock)
    for takes_s, count in ((LIMIT_S, 0), (LIMIT_S + 0.5, 1), (LIMIT_S + 2.0, 2), (LIMIT_S + 1, 3)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "headrace.watermark.slow"):
            try:
                QUERIES[kind](reads(tmp_path, slow, Slow(clock, takes_s, error)))
            except RuntimeError:
                assert error is not None
        assert slow.seen.counts == ({kind: count} if count else {})
        assert len(caplog.records) == bool(count)
    assert (slow.seen.slowest_s, slow.seen.slowest) == (LIMIT_S + 2.0, f"{kind} of {TABLE}")
    (said,) = caplog.messages
    assert said.startswith(f"shop: a query at the source took 6.0 s ({kind} of {TABLE})")
    assert "source.slow_query_s" in said
    assert "Next step: " in said
