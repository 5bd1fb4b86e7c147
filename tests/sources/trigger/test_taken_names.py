"""Columns that have a name of headrace's own: refused by name, before and while their table is captured."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import HeadraceError, IncompatibleSchemaChange, PreflightFailed
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings
from tests.faults.faulty import at_work, failure_of
from tests.requirements import req
from tests.sources.trigger.served import Served
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)


@req("P42", "C21")
def test_a_table_with_a_name_of_ours_is_refused_by_name(served: Served) -> None:
    served.sql("CREATE TABLE t (id int PRIMARY KEY, _op int, _count int)")
    source = served.source()
    (found,) = [f for f in source.preflight() if f.name == "column-name-taken"]
    assert found.table == served.table
    assert "_count, _op" in found.description
    with pytest.raises(PreflightFailed, match="_count, _op"):
        source.prepare()


@req("P42")
def test_a_column_that_comes_later_stops_by_name(served: Served, tmp_path: Path) -> None:
    served.sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    source = served.source()
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        served.sql("ALTER TABLE t ADD COLUMN _op int", "INSERT INTO t VALUES (2, 2, 2)")
        error = failure_of(running)
    assert isinstance(error, HeadraceError)
    assert served.table in error.message
    assert "_op" in error.message
    assert "exclude" in error.next_step
    # The triggers of MySQL are made anew for the column first, and are not.
    on_mysql = isinstance(source.settings, MysqlTriggerSettings)
    assert type(error) is (PreflightFailed if on_mysql else IncompatibleSchemaChange)
