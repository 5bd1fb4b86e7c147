"""A table whose key the log does not name, under REPLICA IDENTITY FULL, is without that key for a while.

Several rows may have had one key meanwhile, and nothing in the log says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ProtocolError
from headrace.sources.postgres import PostgresSource
from tests.faults.faulty import PUBLIC_T, AtWork, at_work, rows_of, through_a_change
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

GONE, BACK = "ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id)"
FULL = "ALTER TABLE t REPLICA IDENTITY FULL"
SHIFTED = "UPDATE t SET id = id + 1"
TWINS = ("INSERT INTO t SELECT id, 'twin' FROM t", "DELETE FROM t WHERE v <> 'twin'")

WITHOUT = {
    "in one transaction": ("f", (f"{GONE}; {SHIFTED}; {BACK}",)),
    "in several": ("f", (GONE, *TWINS, BACK)),
    "and is FULL for it": (
        "d",
        (f"{GONE}; {FULL}; {SHIFTED}; {BACK}; ALTER TABLE t REPLICA IDENTITY DEFAULT",),
    ),
}


def keyed(sql: Sql, identity: str) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 9) n",
    )
    if identity == "f":
        sql(FULL)


def holds(running: AtWork, database: str) -> bool:
    try:
        return running.holds(PUBLIC_T, rows_of(database, "t"))
    except ProtocolError:
        # Rows of a chunk are no sum of rows: the log is folded by the key that came back, once it is there.
        return False


def goes_on(running: AtWork, database: str, sql: Sql) -> None:
    """Check that the table is as the source has it, and stays so."""
    until(lambda: holds(running, database), "the table as the source has it")
    until(running.dumped, "the copies")
    sql("UPDATE t SET v = 'seen' WHERE id = 4", "DELETE FROM t WHERE id = 6")
    until(lambda: holds(running, database), "the table as the source has it, later")


@req("A-11")
@pytest.mark.parametrize("how", WITHOUT)
@pytest.mark.parametrize("stopped", [False, True], ids=["meanwhile", "while nothing runs"])
def test_no_row_is_lost_when_the_key_was_away(
    database: str, sql: Sql, tmp_path: Path, how: str, stopped: bool
) -> None:
    identity, statements = WITHOUT[how]
    keyed(sql, identity)
    through_a_change(
        PostgresSource(database),
        tmp_path,
        lambda: sql(*statements),
        lambda running: goes_on(running, database, sql),
        stopped=stopped,
    )


@req("A-11")
@pytest.mark.parametrize("identity", ["f", "d"])
def test_maintenance_of_a_key_copies_nothing(
    database: str, sql: Sql, tmp_path: Path, identity: str
) -> None:
    keyed(sql, identity)
    with at_work(PostgresSource(database), tmp_path) as running:
        until(running.dumped, "the first copy")
        look = running.state.get("catalog")
        sql(
            "REINDEX TABLE CONCURRENTLY t",
            "VACUUM FULL t",
            "ANALYZE t",
            "GRANT SELECT ON t TO public",
        )
        until(lambda: running.state.get("catalog") != look, "a look")
        if identity == "d":
            look = running.state.get("catalog")
            sql(
                "CREATE UNIQUE INDEX other ON t (id)",
                "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT t_pkey PRIMARY KEY USING INDEX other",
            )
            until(lambda: running.state.get("catalog") != look, "another look")
        assert len(running.state.requests()) == 1
    assert running.error is None
