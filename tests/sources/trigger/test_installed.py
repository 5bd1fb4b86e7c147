"""What stands in the database: made by whoever may, shared by pipelines, removed with the last that needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.errors import PreflightFailed, SlotLost, SourceError, SourceUnavailable
from headrace.sources.base import Severity
from headrace.sources.trigger.postgres import PostgresTriggerSource
from headrace.sources.trigger.postgres.objects import TRIGGERS
from tests.fixtures_postgres import LOGIN, Sql, as_role
from tests.requirements import req
from tests.sources.trigger.support import TriggerLog, opened, session

pytestmark = pytest.mark.postgres

ROLE = "keeper"


@pytest.fixture
def role(sql: Sql) -> Iterator[str]:
    """Give a role that may log in and nothing else."""
    sql(f"CREATE ROLE {ROLE} {LOGIN}")
    yield ROLE
    sql(f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")


def triggered(database: str) -> set[str]:
    """Return the tables that have all of our triggers."""
    query = (
        "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = ANY (%s) "
        "GROUP BY 1 HAVING count(*) = %s"
    )
    with psycopg.connect(database) as connection:
        rows = connection.execute(query, (list(TRIGGERS), len(TRIGGERS))).fetchall()
    return {name for (name,) in rows}


def relations(database: str) -> set[str]:
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'headrace' AND c.relkind IN ('r', 'S')"
        ).fetchall()
    return {name for (name,) in rows}


@req("D117")
def test_one_pipeline_leaves_and_the_others_triggers_stay(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("t", "u", "w")))
    one = PostgresTriggerSource(database, ("public.t", "public.u"), name="one")
    two = PostgresTriggerSource(database, ("public.u", "public.w"), name="two")
    one.prepare()
    two.prepare()
    assert triggered(database) == {"t", "u", "w"}
    one.drop()
    assert triggered(database) == {"u", "w"}
    log = TriggerLog(two, tmp_path)
    try:
        sql("INSERT INTO u VALUES (1)")
        assert log.collect().changes("public.u") == [("+I", 1)]
    finally:
        log.close()
    two.drop()
    assert triggered(database) == set()
    assert relations(database) == set()
    two.drop()


@req("D117")
def test_the_last_pipeline_takes_what_abandoned_ones_left(database: str, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    PostgresTriggerSource(database, ("public.t",), name="gone").prepare()
    here = PostgresTriggerSource(database, ("public.u",), name="here")
    here.prepare()
    sql("UPDATE headrace.txlog_readers SET scn = NULL WHERE name = 'gone'")
    here.drop()
    assert triggered(database) == set()


@req("D117")
def test_a_table_that_is_captured_no_more_loses_its_triggers(database: str, sql: Sql) -> None:
    sql(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("t", "u", "w")))
    PostgresTriggerSource(database).prepare()
    PostgresTriggerSource(database, ("public.u",), name="other").prepare()
    PostgresTriggerSource(database, ("public.t",)).prepare()
    assert triggered(database) == {"t", "u"}


def test_preparing_again_changes_nothing_and_keeps_the_place(database: str, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresTriggerSource(database)
    source.prepare(fresh=True)
    made, scn = source.incarnation(), source.acknowledged_scn()
    sql("INSERT INTO t VALUES (1)")
    assert source.end_scn() == scn + 1
    source.prepare()
    assert (source.incarnation(), source.acknowledged_scn()) == (made, scn)
    source.prepare(fresh=True)
    assert source.acknowledged_scn() == scn + 1


@req("D117")
def test_a_table_that_is_written_to_is_waited_for_briefly_and_let_go(
    database: str, sql: Sql
) -> None:
    """Nobody queues behind us for longer than source says; what was not made is made the next time."""
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresTriggerSource(database)
    object.__setattr__(source.settings, "lock_s", 0.1)
    with session(database) as writer:
        writer.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(SourceUnavailable):
            source.prepare()
        assert triggered(database) == set()
        sql("INSERT INTO t VALUES (2)")
        writer.commit()
    source.prepare()
    assert triggered(database) == {"t"}


@req("D117")
@pytest.mark.parametrize(
    "act",
    [
        "ALTER TABLE t DISABLE TRIGGER ALL",
        'DROP TRIGGER "0_headrace_row" ON t',
        'ALTER TABLE t ENABLE REPLICA TRIGGER "0_headrace_truncate"',
    ],
)
def test_triggers_that_somebody_took_away_are_a_loss_that_is_named(
    database: str, sql: Sql, act: str
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresTriggerSource(database)
    source.prepare()
    sql(act)
    with pytest.raises(SlotLost, match=r"public\.t") as raised:
        source.prepare()
    assert "resync" in (raised.value.next_step or "")
    source.prepare(fresh=True)
    source.prepare()


@req("D117")
def test_what_a_plain_role_lacks_is_said_and_an_administrator_makes_it(
    database: str, sql: Sql, role: str, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        f"GRANT SELECT ON t TO {role}",
    )
    plain = PostgresTriggerSource(as_role(database, role))
    (finding,) = (f for f in plain.preflight() if f.severity is Severity.ERROR)
    assert finding.name == "may-not-make-triggers"
    assert "public.t" in finding.description
    with pytest.raises(PreflightFailed, match="may-not-make-triggers"):
        plain.prepare()
    assert relations(database) == set()
    script = plain.script()
    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute(script.encode())
        # Twice, as by somebody who is not sure.
        administrator.execute(script.encode())
    assert plain.preflight() == []
    plain.prepare()
    assert plain.departs(plain.incarnation(), plain.end_scn()) == ""
    log = TriggerLog(plain, tmp_path)
    try:
        sql("INSERT INTO t VALUES (1)")
        assert log.collect().changes("public.t") == [("+I", 1)]
    finally:
        log.close()
    sql(f"REVOKE DELETE ON headrace.txlog FROM {role}")
    assert [f.name for f in plain.preflight()] == ["change-tables-not-usable"]
    sql(f"REVOKE USAGE ON SCHEMA headrace FROM {role}")
    (finding,) = plain.preflight()
    sql(*finding.suggestion.rstrip(";").split("; "))
    assert plain.preflight() == []


@req("D117")
def test_what_a_role_may_not_remove_stays_whole(database: str, sql: Sql, role: str) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", f"GRANT SELECT ON t TO {role}")
    plain = PostgresTriggerSource(as_role(database, role))
    sql(plain.script())
    plain.prepare()
    with pytest.raises(SourceError, match="owner of"):
        plain.drop()
    assert triggered(database) == {"t"}
    plain.prepare()
    PostgresTriggerSource(database).drop()
    assert triggered(database) == set()


def test_a_role_that_owns_its_tables_makes_all_by_itself(
    database: str, sql: Sql, role: str, tmp_path: Path
) -> None:
    name = database.partition("?")[0].rpartition("/")[2]
    sql(f"GRANT CREATE ON DATABASE {name} TO {role}", f"GRANT CREATE ON SCHEMA public TO {role}")
    url = as_role(database, role)
    with psycopg.connect(url) as owner:
        owner.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(url, tmp_path) as log:
        sql("INSERT INTO t VALUES (1)")
        assert log.collect().changes("public.t") == [("+I", 1)]
    log.source.drop()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        ("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)", "unlogged-table"),
        ("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)", "partitioned-table"),
        ("SELECT 1", "no-tables"),
    ],
)
def test_tables_that_cannot_be_captured_are_named(
    database: str, sql: Sql, make: str, name: str
) -> None:
    sql(make)
    assert [f.name for f in PostgresTriggerSource(database).preflight()] == [name]


def test_partitions_are_captured_as_tables_of_their_own(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE t_low (v text, id int NOT NULL)",
        "ALTER TABLE t ATTACH PARTITION t_low FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE t_high PARTITION OF t FOR VALUES FROM (10) TO (20)",
    )
    with opened(database, tmp_path, exclude=("public.t",)) as log:
        sql("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET id = 11")
        collected = log.collect()
        assert collected.changes("public.t_low") == [("+I", "a", 1), ("-D", "a", 1)]
        assert collected.changes("public.t_high") == [("+I", 11, "a")]


@req("D117")
def test_preflight_changes_nothing(database: str, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    assert PostgresTriggerSource(database).preflight() == []
    assert relations(database) == set()
