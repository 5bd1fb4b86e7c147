"""Rows get other keys without a word in the log: the table is emptied before it is read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemKind
from headrace.sources.postgres import PostgresSource
from tests.faults.faulty import AtWork, at_work, follows, through_a_change
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

MADE = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad')",
    "CREATE TABLE t (id int, m mood, c varchar(5), v text, PRIMARY KEY ({key}))",
    "INSERT INTO t SELECT n, (enum_range(NULL::mood))[n], n, 'v' || n FROM generate_series(1, 3) n",
)
OTHERS = {
    "a label": ("m", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"),
    "values": ("id", "ALTER TABLE t ALTER id TYPE int USING id + 100"),
    "a type": ("id", "ALTER TABLE t ALTER id TYPE text USING 'n' || id"),
    "a wider type": ("id", "ALTER TABLE t ALTER id TYPE bigint USING id + 100"),
    "a longer text": ("c", "ALTER TABLE t ALTER c TYPE varchar(9) USING 'n' || c"),
    "a text without an end": ("c", "ALTER TABLE t ALTER c TYPE text USING 'n' || c"),
    "a new column": (
        "id",
        "ALTER TABLE t ADD code serial, DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code)",
    ),
}


def truncates(running: AtWork) -> int:
    log = ChangeLogReader(running.folder / "changelog")
    events = (event for block in log.blocks(0) for event in block.system)
    return sum(event.kind is SystemKind.TRUNCATE for event in events)


def goes_on(running: AtWork, database: str, sql: Sql) -> None:
    """Check that the table is as the source has it, and stays so."""
    follows(running, database)
    until(running.dumped, "the copies")
    sql("UPDATE t SET v = 'seen' WHERE v = 'v2'", "DELETE FROM t WHERE v = 'v3'")
    follows(running, database)


@req("C30")
@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("stopped", [False, True], ids=["meanwhile", "while nothing runs"])
def test_rows_under_keys_of_before_do_not_stay(
    database: str, sql: Sql, tmp_path: Path, what: str, stopped: bool
) -> None:
    key, statement = OTHERS[what]
    sql(*(one.format(key=key) for one in MADE))
    through_a_change(
        PostgresSource(database, ["public.t"]),
        tmp_path,
        lambda: sql(statement),
        lambda running: goes_on(running, database, sql),
        stopped=stopped,
    )


@req("C30")
def test_a_key_that_only_became_longer_empties_no_table(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """No row is written anew, so the log has everything."""
    sql(*(one.format(key="c") for one in MADE))
    with at_work(PostgresSource(database, ["public.t"]), tmp_path) as running:
        until(running.dumped, "the first copy")
        look = running.state.get("catalog")
        sql(
            "ALTER TABLE t ALTER c TYPE varchar(9)",
            "INSERT INTO t VALUES (4, 'ok', 'longer', 'v4')",
        )
        until(lambda: running.state.get("catalog") != look, "another look")
        goes_on(running, database, sql)
        assert truncates(running) == 0
    assert running.error is None
