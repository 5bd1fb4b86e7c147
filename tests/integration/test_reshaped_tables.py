"""Rows that change without a log event: migrations while a capture runs, and while none does.

No row is touched by an application afterwards, so nothing but the catalog tells of the change.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace.sources.postgres import PostgresSource
from tests.faults.faulty import PUBLIC_T, AtWork, at_work, copied, follows
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

REWRITES = {
    "computed anew in the same type": "ALTER TABLE t ALTER n TYPE int USING n * 2",
    "computed anew in a wider type": "ALTER TABLE t ALTER n TYPE bigint USING n * 2",
    "there and back": "ALTER TABLE t ALTER n TYPE text USING n + 1; ALTER TABLE t ALTER n TYPE int USING n::int",
    "added and filled": "ALTER TABLE t ADD w int DEFAULT 7",
    "added and filled by each row": "ALTER TABLE t ADD w float DEFAULT random()",
    "filled, then without default": "BEGIN; ALTER TABLE t ADD w float DEFAULT random(); "
    "ALTER TABLE t ALTER w DROP DEFAULT; COMMIT",
    "renamed, the name taken over": "BEGIN; ALTER TABLE t RENAME n TO old_n; ALTER TABLE t ADD n int; COMMIT",
    "dropped and added again": "ALTER TABLE t DROP s; ALTER TABLE t ADD s text",
}


WHILE_STOPPED = (
    "computed anew in the same type",
    "added and filled",
    "renamed, the name taken over",
)


@pytest.fixture
def table(sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, v varchar(20), s text)",
        "INSERT INTO t SELECT i, i, 'v' || i, 's' || i FROM generate_series(1, 5) i",
    )


def dumps(running: AtWork) -> int:
    return sum(r.table == PUBLIC_T for r in running.state.requests())


@req("P33", "A-11")
@pytest.mark.parametrize(
    ("change", "down"),
    [
        *[pytest.param(sql, False, id=f"{name}, captured") for name, sql in REWRITES.items()],
        *[pytest.param(REWRITES[name], True, id=f"{name}, stopped") for name in WHILE_STOPPED],
    ],
)
def test_rows_that_a_migration_changed_are_read_again(
    table: None, database: str, sql: Sql, tmp_path: Path, change: str, down: bool
) -> None:
    source = PostgresSource(database, name="shapes")
    if down:
        copied(source, tmp_path)
        sql(change)
    with at_work(source, tmp_path) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        if not down:
            sql(change)
        follows(running, database)
        until(running.dumped, "the second copy")
        assert dumps(running) == 1
    assert running.error is None


@req("P33", "A-11")
def test_several_migrations_and_rows_in_one_transaction(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    with at_work(PostgresSource(database, name="shapes"), tmp_path) as running:
        until(running.dumped, "the first copy")
        running.judged = False
        sql(
            "BEGIN; INSERT INTO t VALUES (6, 6, 'v', 's'); UPDATE t SET n = 10 WHERE id = 1;"
            "ALTER TABLE t ADD w int DEFAULT 7; INSERT INTO t VALUES (7, 7, 'v', 's', 70);"
            "ALTER TABLE t ALTER n TYPE bigint USING n * 3; UPDATE t SET v = 'x' WHERE id = 2;"
            "ALTER TABLE t RENAME s TO was_s; ALTER TABLE t ADD s text; DELETE FROM t WHERE id = 3;"
            "INSERT INTO t VALUES (8, 8, 'v', 'was', 80, 'is'); COMMIT"
        )
        follows(running, database)
        until(running.dumped, "the second copy")
        sql("UPDATE t SET s = 'late' WHERE id = 8")
        follows(running, database)
    assert running.error is None


@req("P33", "A-11")
@pytest.mark.parametrize("described", [True, False], ids=["after it was described", "before"])
def test_a_generated_column_that_becomes_one_of_the_others(
    database: str, sql: Sql, tmp_path: Path, described: bool
) -> None:
    """Its values are in no log; and where the log's first words on the table come later, they name one column less."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED, n int)",
        "INSERT INTO t (id, n) SELECT i, i FROM generate_series(1, 3) i",
    )
    with at_work(PostgresSource(database, name="shapes"), tmp_path) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        sql("UPDATE t SET n = n + 10 WHERE id = 1")
        if described:
            kept = Counter([(1, 11), (2, 2), (3, 3)])
            until(lambda: running.holds(PUBLIC_T, kept), "the first change")
        sql("ALTER TABLE t ALTER g DROP EXPRESSION")
        sql("UPDATE t SET g = 7 WHERE id = 1")
        follows(running, database)
        until(running.dumped, "the second copy")
        assert dumps(running) == 1
    assert running.error is None


PARTED = (
    "CREATE TABLE t (id int PRIMARY KEY, n int, v varchar(20), s text) PARTITION BY RANGE (id)",
    "CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (3)",
    "CREATE TABLE t_high PARTITION OF t FOR VALUES FROM (3) TO (100) PARTITION BY RANGE (id)",
    "CREATE TABLE t_high_1 PARTITION OF t_high FOR VALUES FROM (3) TO (100)",
    "INSERT INTO t SELECT i, i, 'v' || i, 's' || i FROM generate_series(1, 5) i",
)


@req("P33", "A-11")
@pytest.mark.parametrize("down", [False, True], ids=["captured", "stopped"])
@pytest.mark.parametrize("change", ["ALTER n TYPE int USING -n", "ALTER n TYPE bigint USING n * 2"])
def test_rows_of_partitions_that_a_migration_changed_are_read_again(
    database: str, sql: Sql, tmp_path: Path, change: str, down: bool
) -> None:
    """A partitioned table has no heap of its own that would be seen to be written anew."""
    sql(*PARTED)
    source = PostgresSource(database, name="shapes")
    if down:
        copied(source, tmp_path)
        sql(f"ALTER TABLE t {change}")
    with at_work(source, tmp_path) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        if not down:
            sql(f"ALTER TABLE t {change}")
        follows(running, database)
        until(running.dumped, "the second copy")
        assert dumps(running) == 1
    assert running.error is None


def looked_at(running: AtWork) -> None:
    """Wait for a few more looks at the catalog."""
    looks = len(running.statuses)
    until(lambda: len(running.statuses) > looks + 3, "a few more looks at the catalog")


@req("P33")
def test_what_changes_no_value_of_partitions_has_none_read_again(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(*PARTED)
    with at_work(PostgresSource(database, name="shapes"), tmp_path) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        sql(
            "BEGIN; CREATE TABLE t_new PARTITION OF t FOR VALUES FROM (100) TO (200);"
            "ALTER TABLE t ADD w int; ALTER TABLE t ALTER v TYPE text; ALTER TABLE t RENAME s TO z; COMMIT",
        )
        sql("INSERT INTO t VALUES (150, 7, 'v', 'z', 8)")
        follows(running, database)
        # One look that finds a new column and a new heap at once cannot tell which of the two gave rows their values.
        looked_at(running)
        sql("VACUUM FULL t_low")
        sql("INSERT INTO t VALUES (151, 7, 'v', 'z', 8)")
        follows(running, database)
        looked_at(running)
        assert dumps(running) == 0
    assert running.error is None


@req("P33")
def test_a_domain_that_was_dropped_before_its_log_is_read_is_what_it_was(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Its values were text for a while, which no target takes for the integers that they are."""
    sql(
        "CREATE DOMAIN age AS int CHECK (VALUE >= 0)",
        "CREATE DOMAIN label AS text",
        "CREATE TABLE t (id int PRIMARY KEY, n age, m label, l int)",
        "INSERT INTO t SELECT i, i, 'm' || i, i FROM generate_series(1, 5) i",
    )
    source = PostgresSource(database, ["public.t"])
    copied(source, tmp_path)
    sql(
        "UPDATE t SET n = 50, m = 'later' WHERE id = 2",
        "ALTER TABLE t ALTER n TYPE int, ALTER m TYPE text",
        "DROP DOMAIN age",
        "DROP DOMAIN label",
        "DELETE FROM t WHERE id = 3",
    )
    # What it resolved while it was there it would still know.
    with at_work(PostgresSource(database, ["public.t"]), tmp_path) as running:
        follows(running, database)
        versions = running.registry.all()
        told = {tuple(str(column.type) for column in schema.columns) for schema in versions}
        assert told == {("int32", "int32", "string", "int32")}
    assert running.error is None
