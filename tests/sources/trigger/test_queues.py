"""Tables that are queues: each row that is inserted is an event, whatever becomes of it, and may go when delivered."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import PreflightFailed, SourceError
from headrace.model.schema import TableId
from tests.requirements import req
from tests.sources.trigger.served import Served, opened, session

QUEUE = "CREATE TABLE t (id int PRIMARY KEY, v int)"


@req("D117", "D131")
def test_events_come_as_they_were_inserted_in_the_order_of_visibility(
    served: Served, tmp_path: Path
) -> None:
    """Not in the order of their ids; and a row that is gone before anybody looks is an event too."""
    served.sql(QUEUE)
    with (
        opened(served, tmp_path, queues=(served.table,)) as log,
        session(served) as early,
        session(served) as late,
    ):
        early.execute("INSERT INTO t VALUES (1, 10)")
        late.execute("INSERT INTO t VALUES (2, 20)")
        late.execute("UPDATE t SET v = 21 WHERE id = 2")
        late.execute("DELETE FROM t WHERE id = 2")
        late.commit()
        first = log.collect()
        early.commit()
        second = log.collect()
        assert first.changes(served.table) == [("+I", 2, 20)]
        assert second.changes(served.table) == [("+I", 1, 10)]
        assert served.query("SELECT id FROM t") == [(1,)]


@req("D117", "D131")
def test_delivered_events_go_and_no_other(served: Served, tmp_path: Path) -> None:
    served.sql(QUEUE)
    with (
        opened(served, tmp_path, queues=(served.table,), queue_rows="delete") as log,
        session(served) as open_,
    ):
        open_.execute("INSERT INTO t VALUES (9, 0)")
        served.sql("INSERT INTO t VALUES (1, 1)", "INSERT INTO t VALUES (2, 2)")
        assert len(log.covered().changes(served.table)) == 2
        # Handed over, and not delivered yet: whoever dies now finds them again.
        log.reopen()
        assert served.query("SELECT count(*) FROM t") == [(2,)]
        assert len(log.covered(acknowledge=True).changes(served.table)) == 2
        log.reopen()
        assert served.query("SELECT count(*) FROM t") == [(0,)]
        open_.commit()
        assert served.query("SELECT id FROM t") == [(9,)]
        assert log.covered(acknowledge=True).changes(served.table) == [("+I", 9, 0)]
        log.reopen()
        assert served.query("SELECT count(*) FROM t") == [(0,)]


@req("D117")
def test_a_queue_whose_rows_cannot_be_removed_is_refused(served: Served) -> None:
    served.sql("CREATE TABLE t (v int)")
    source = served.source(queues=(served.table,), queue_rows="delete")
    with pytest.raises(PreflightFailed, match="queue-not-removable"):
        source.prepare()
    served.source(queues=(served.table,)).prepare()


def test_a_queue_is_not_compared_with_its_copy(served: Served) -> None:
    served.sql(QUEUE)
    with pytest.raises(SourceError, match="copy has every event"):
        served.source(queues=(served.table,)).view([TableId.parse(served.table)])
