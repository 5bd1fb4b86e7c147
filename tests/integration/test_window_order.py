"""P42: low mark, select, high mark. Each is committed at the source, and flushed, before the next begins.

A second slot is the witness: it gives out what the server has on its disk, and nothing else. Rows that somebody changes
between the steps tell which of them the select lies between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.testing.postgres import EmbeddedPostgres
from headrace.watermark.settings import DumpSettings
from tests.integration.running import running_capture
from tests.integration.selected import rows_by_origin
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

WINDOWS, CHUNK = 6, 3
STEPS = ("window.after_low", "window.after_select", "window.after_high")
_MARK = re.compile(rb"(low|high|end)[^0-9a-f]+([0-9a-f]{32})")


@pytest.fixture(params=["newest", "16"])
def any_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run on a server that flushes messages (17 and later) and on one that cannot."""
    name = "postgres_server" if request.param == "newest" else "older_server"
    server: EmbeddedPostgres = request.getfixturevalue(name)
    yield server.create_database("steps")
    server.drop_database("steps")


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


class Witness:
    """Reads a slot of its own, again and again from its beginning."""

    def __init__(self, session: psycopg.Connection, publication: str) -> None:
        self._session = session
        self._publication = publication
        session.execute("SELECT pg_create_logical_replication_slot('witness', 'pgoutput')")

    def marks(self) -> list[tuple[str, str]]:
        """Return kind and token of each mark that would survive a power cut now."""
        rows = self._session.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes('witness', NULL, NULL,"
            " 'proto_version', '1', 'publication_names', %s, 'messages', 'true')",
            (self._publication,),
        ).fetchall()
        found = (_MARK.search(data) for (data,) in rows)
        return [(mark[1].decode(), mark[2].decode()) for mark in found if mark]


@req("P42", "P40", "P15")
@pytest.mark.parametrize("watermark", ["message", "table"])
def test_each_step_of_a_window_is_committed_before_the_next_begins(
    any_database: str, watermark: Literal["message", "table"], tmp_path: Path
) -> None:
    source = PostgresSource(any_database, watermark=watermark, name="steps")
    seen: dict[str, list[list[tuple[str, str]]]] = {step: [] for step in STEPS}
    with psycopg.connect(any_database, autocommit=True) as session:
        session.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        session.execute(
            "INSERT INTO t SELECT n, 'old' FROM generate_series(0, %s) n", (WINDOWS * CHUNK - 1,)
        )
        source.prepare()
        witness = Witness(session, source.settings.publication or "headrace_steps")

        def stand_at(step: str) -> None:
            number = len(seen[step])
            seen[step].append(witness.marks())
            place = STEPS.index(step)
            if place < 2:
                key = number * CHUNK + place
                session.execute("UPDATE t SET v = %s WHERE id = %s", (step, key))

        for step in STEPS:
            failpoints.arm(step, lambda step=step: stand_at(step))  # type: ignore[misc]
        with running_capture(
            source, tmp_path, DumpSettings(chunk_rows=CHUNK, look_interval_s=3_600.0)
        ) as running:
            until(running.dumped, "the dump")
        marks = [mark for mark in witness.marks() if mark[0] != "end"]

    assert [kind for kind, _ in marks] == ["low", "high"] * WINDOWS
    assert [token for _, token in marks[::2]] == [token for _, token in marks[1::2]]
    assert len({token for _, token in marks}) == WINDOWS
    for number in range(WINDOWS):
        # What was on the disk of the server when each step was done.
        done = {step: [m for m in seen[step][number] if m[0] != "end"] for step in STEPS}
        assert done["window.after_low"] == marks[: 2 * number + 1]
        assert done["window.after_select"] == marks[: 2 * number + 1]
        assert done["window.after_high"] == marks[: 2 * number + 2]
    # The select saw what was committed behind the low mark, and nothing that was committed behind itself.
    _, selected = rows_by_origin(tmp_path)
    assert {row for _, _, row in selected} == {
        (number * CHUNK + place, value)
        for number in range(WINDOWS)
        for place, value in ((0, "window.after_low"), (2, "old"))
    }
