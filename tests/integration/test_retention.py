"""What a change log retains is changed by its relay while a capture of a real server writes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogSettings, register_job, unregister_job
from headrace.sources.postgres import PostgresSource
from headrace.testing.relay import served, sources_of
from tests.changelog.windows import scns
from tests.fixtures_postgres import Sql
from tests.integration.running import Running, running_capture
from tests.relay.server.asking import ask
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

LARGE = ChangeLogSettings(segment_bytes=16_384)


@pytest.fixture
def table(sql: Sql) -> None:
    sql("CREATE TABLE t (id bigserial PRIMARY KEY, v text NOT NULL)")


def fill(database: str, running: Running) -> None:
    """Let some segments of changes come."""
    before = running.reader.tail().complete_scn
    with psycopg.connect(database, autocommit=True) as session:
        for _ in range(60):
            session.execute("INSERT INTO t (v) SELECT repeat(md5(random()::text), 60)")
    until(lambda: len(scns(running.reader.blocks(before))) >= 60, "the changes")


@contextmanager
def commanded(folder: Path) -> Iterator[str]:
    (source,) = sources_of({"shop": folder / "changelog"})
    with served((replace(source, state=folder / "state.db"),)) as url:
        yield url


@req("D45")
def test_retention_changes_while_capture_runs_stays_and_never_passes_a_job(
    table: None, database: str, tmp_path: Path
) -> None:
    source = PostgresSource(database)
    with running_capture(source, tmp_path, kept=LARGE) as running, commanded(tmp_path) as url:

        def oldest() -> int:
            return running.reader.tail().oldest_scn

        until(running.dumped, "the first copy")
        fill(database, running)
        applied = running.reader.tail().complete_scn
        register_job(tmp_path / "changelog", "apply", applied)
        fill(database, running)
        above = scns(running.reader.blocks(applied))
        assert oldest() == 0
        assert ask(url, "/admin/retention", post={"source": "shop", "retain": 0}).status == 200
        until(lambda: oldest() > 0, "the drop")
        (told,) = ask(url, "/sources").json["sources"]
        assert 0 < told["oldest_scn"] <= applied
        assert scns(running.reader.blocks(applied)) == above
        # What the file says holds again, and what is gone stays gone.
        assert ask(url, "/admin/retention", post={"source": "shop", "retain": None}).status == 200
        until(lambda: running.state.pace().retain_bytes is None, "the setting")
        unregister_job(tmp_path / "changelog", "apply")
        ask(url, "/admin/retention", post={"source": "shop", "retain_s": 3_600, "retain": 0})
    kept = oldest()
    with running_capture(source, tmp_path, kept=LARGE) as running, commanded(tmp_path) as url:
        fill(database, running)
        assert oldest() == kept, "an hour's changes are retained, also by the next process"
        ask(url, "/admin/retention", post={"source": "shop", "retain_s": None})
        until(lambda: oldest() > kept, "the drop by the setting that another process was given")
