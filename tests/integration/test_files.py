"""A capture whose source is a folder that the output of another capture writes, from a real database on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.client import Settings, Subscription
from headrace.errors import HeadraceError
from headrace.model.schema import TableId
from headrace.outputs import NdjsonOutput
from headrace.registry.file import FileRegistry
from headrace.sources.files import FilesSource
from headrace.sources.postgres import PostgresSource
from tests.faults.faulty import AtWork, at_work, follows
from tests.fixtures_postgres import Sql
from tests.integration.traffic import traffic
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

T = TableId("public", "t")


def describe(first: AtWork, feed: Path) -> None:
    """Write down every version that the first capture has met, the oldest first."""
    seen = dict.fromkeys(
        body.schema_id for block in first.reader.blocks(0) for body in block.bodies
    )
    registry = FileRegistry(first.folder / "changelog" / "schemas")
    value = {"feed": "shop", "tables": [registry.get(id_).to_json() for id_ in seen]}
    draft = feed / "tables.json.draft"
    draft.write_text(json.dumps(value))
    draft.rename(feed / "tables.json")


@contextmanager
def delivering(first: AtWork, feed: Path) -> Iterator[None]:
    """Let the output write the first change log's windows into the feed."""
    output = NdjsonOutput(feed / "changes.ndjson", rotate_bytes=4_000)
    url = f"file://{first.folder / 'changelog'}"
    settings = Settings(checkpoint_every=100)
    subscription = Subscription(url, "shop", output, str(feed.parent / "place"), settings=settings)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            subscription.run()
        except HeadraceError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        subscription.stop()
        thread.join(30)
        assert errors == []


@req("D131", "N17")
def test_a_second_capture_follows_the_files_of_the_first(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Dump windows, changes, a change of shape and restarts: both logs fold to the source's rows."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, 'a' FROM generate_series(1, 50) g",
    )
    feed = tmp_path / "feed"
    feed.mkdir()
    with at_work(PostgresSource(database), tmp_path / "one") as first:
        with traffic(database, 50) as writers:
            until(first.dumped, "the dump")
            writers.goes_on()
        follows(first, database)
        describe(first, feed)
        with delivering(first, feed):
            files = FilesSource(feed, tmp_path / "two", ("public.*",), name="second", poll_s=0.01)
            with at_work(files, tmp_path / "two") as second:
                second.judged = False
                until(second.dumped, "the second has begun")
                follows(second, database)
            sql("UPDATE t SET v = 'while the second is away' WHERE id % 2 = 0")
            sql("ALTER TABLE t ADD COLUMN w int", "UPDATE t SET w = id")
            follows(first, database)
            describe(first, feed)
            with at_work(files, tmp_path / "two") as second:
                second.judged = False
                follows(second, database)
        assert len(list(feed.glob("*.ndjson"))) > 3
