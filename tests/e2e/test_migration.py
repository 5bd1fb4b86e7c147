"""A table moves to a new structure: docs/migration.md, carried out on a real server while writes go on."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.lake.frontier import Manifest
from headrace.spark.compare import Comparison, compare
from tests.cli.test_documents import blocks
from tests.e2e.pipeline import Replicator
from tests.fixtures_spark import spark
from tests.requirements import req
from tests.waiting import until

__all__ = ["spark"]

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]

PAGE = "docs/migration.md"
TABLE = "shop.people"
LIMIT_S = 300.0
PLACES = ("NO/Oslo", "NO/Bergen", "SE/Lund", None)
IN_THE_SOURCE = """
select id, name, split_part(place, '/', 1), split_part(place, '/', 2), (cents::numeric / 100)::numeric(12, 2)
from shop.people
"""


class Traffic:
    """Transactions of one to four random changes each, one after the other, until the block ends."""

    def __init__(self, url: str) -> None:
        self.committed = 0
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _write(self) -> None:
        rng = random.Random(7)
        with psycopg.connect(self._url) as connection:
            # As busy as an application is, with some of the machine left for those that follow it.
            while not self._over.wait(0.02):
                for _ in range(rng.randrange(1, 5)):
                    connection.execute(*change(rng))
                connection.commit()
                self.committed += 1


INSERT = """
insert into shop.people values (%s, %s, %s, %s, %s)
on conflict (id) do update set name = excluded.name, cents = excluded.cents
"""
MOVE = """
update shop.people set id = %s where id = %s and not exists (select from shop.people where id = %s)
"""


def change(rng: random.Random) -> tuple[str, tuple[object, ...]]:
    """Return one statement over a few hundred keys; not every one finds a row."""
    key, roll = rng.randrange(1, 400), rng.random()
    if roll < 0.5:
        # So long that updates leave it out of the log.
        notes = rng.randbytes(5_000).hex()
        return INSERT, (key, f"name {roll}", rng.choice(PLACES), rng.randrange(10**6), notes)
    if roll < 0.7:
        return "update shop.people set place = %s where id = %s", (rng.choice(PLACES), key)
    if roll < 0.8:
        return MOVE, (key + 400, key, key + 400)
    return "delete from shop.people where id in (%s, %s)", (key, key + 400)


@contextmanager
def running(*replicators: Replicator) -> Iterator[None]:
    try:
        for replicator in replicators:
            replicator.start()
        yield
        for replicator in replicators:
            assert replicator.stop() == 0
    finally:
        for replicator in replicators:
            replicator.close()


@req("P71")
@pytest.mark.long
def test_old_and_new_structure_are_equal_at_any_commit_until_everybody_moves(
    url: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", url)
    monkeypatch.chdir(tmp_path)
    files = zip(("old.yaml", "new.yaml"), blocks(PAGE, "yaml"), strict=True)
    old, new = (Replicator(tmp_path / name, text) for name, text in files)
    (program,) = blocks(PAGE, "python")
    (statements,) = blocks(PAGE, "sql")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements)

    def told() -> dict[str, Any]:
        names: dict[str, Any] = {"spark": spark}
        exec(program, names)
        return names

    def reached(replicator: Replicator, scn: int) -> Callable[[], bool]:
        return lambda: replicator.frontier() >= scn

    with running(old, new):
        with Traffic(url) as traffic:
            for replicator in (old, new):
                replicator.running("the table is copied", lambda r=replicator: r.all_live(1))
            whole = headrace.frontier(old.file).tables[TABLE].complete_scn
            assert whole is not None
            until(reached(new, whole), "the new one has passed the old one's copy", LIMIT_S)
            until(reached(old, new.frontier()), "the old one shows what the new one does", LIMIT_S)
            seen: list[Manifest] = []
            for _ in range(2):
                begun = traffic.committed
                names = told()
                report: Comparison = names["report"]
                assert report.equal, str(report)
                assert report.found_rows > 100
                assert traffic.committed > begun + 3
                seen.append(names["then"])
                until(reached(new, new.frontier() + 1), "the new one goes on", LIMIT_S)
                until(reached(old, new.frontier()), "so does the old one", LIMIT_S)
            assert len({manifest.scn for manifest in seen}) == 2
            # The same commit and no other: rows of the one before are not those of the last.
            before = headrace.as_of(spark, "old.yaml", TABLE, seen[0].scn).select("id", "name")
            after = names["new"].selectExpr("id", "full_name AS name")
            assert not compare(before, after, ["id"]).equal

        # A row of which the two structures do not say the same.
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("insert into shop.people values (1000, 'Dag', 'Atlantis', 1)")
            ((end,),) = connection.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn").fetchall()
            connection.execute("insert into shop.people values (1001, 'Eve', 'DK/Ribe', 2)")
        for replicator in (new, old):
            until(reached(replicator, int(end)), "both show the last rows", LIMIT_S)
        until(reached(old, new.frontier()), "the old one shows what the new one does", LIMIT_S)
        report = told()["report"]
        assert (report.missing, report.extra, report.different) == (0, 0, 1)
        assert [tuple(row) for row in report.keys.collect()] == [(1000, 1, 1)]
        assert "Atlantis" not in str(report)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("update shop.people set place = 'GR/Atlantis' where id = 1000")

    (_, last_step) = (block.splitlines() for block in blocks(PAGE, "") if "headrace" in block)
    for line in last_step:
        _, command, file, *words = line.split()
        {"old.yaml": old, "new.yaml": new}[file].succeed(command, *words)
    names = told()
    assert names["then"] == headrace.frontier("new.yaml")
    assert names["report"].equal, str(names["report"])
    rows = names["new"].select("id", "full_name", "country", "city", "balance").collect()
    with psycopg.connect(url) as connection:
        assert {tuple(row) for row in rows} == set(connection.execute(IN_THE_SOURCE))
    assert names["report"].found_rows == len(rows) > 100
