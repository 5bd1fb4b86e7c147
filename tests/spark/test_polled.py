"""The clock of the apply job where Spark cannot call us: batches end where a streaming query's would."""

from __future__ import annotations

import sys
import threading

import pytest

from headrace.errors import ConfigError
from headrace.spark.polled import PolledQuery
from headrace.spark.session import SessionSettings, build_session
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import Log
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)

TABLE = table_of(2)


def options(log: Log, **given: int) -> dict[str, str]:
    return {"path": str(log.folder)} | {name: str(value) for name, value in given.items()}


def test_batches_follow_the_log_and_end_between_transactions_within_their_limit(log: Log) -> None:
    log.write(TABLE, "+I(1,a) +I(2,a) | +I(3,a) | +I(4,a) +I(5,a) +I(6,a) | -D(1)")
    ends: list[int] = []
    query = PolledQuery(options(log, max_rows=3, from_scn=0, first_end=10), ends.append)
    until(lambda: 40 in ends, "everything is told")
    # The first ends where a restart has to; the second is full; a transaction that is too large is a batch of its own.
    assert ends == [10, 20, 30, 40]
    log.write(TABLE, "+I(7,a) | -D(7)")
    until(lambda: 60 in ends, "what came later is told")
    query.stop()
    assert (query.isActive, query.exception()) == (False, None)
    log.write(TABLE, "+I(8,a)")
    assert 70 not in ends


@req("C88")
def test_a_batch_at_work_is_finished_before_the_clock_stops(log: Log) -> None:
    log.write(TABLE, "+I(1,a) | +I(2,a)")
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def batch(_end: int) -> None:
        begun.set()
        go_on.wait(60)
        done.set()

    query = PolledQuery(options(log, max_rows=1), batch)
    assert begun.wait(60)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    assert query.isActive
    go_on.set()
    stopping.join(60)
    assert done.is_set()
    assert not query.isActive


def test_what_ends_a_batch_ends_the_clock_and_is_told(log: Log) -> None:
    log.write(TABLE, "+I(1,a) | +I(2,a)")
    seen: list[int] = []

    def batch(end: int) -> None:
        seen.append(end)
        raise OSError("no more")

    query = PolledQuery(options(log, max_rows=1), batch)
    until(lambda: not query.isActive, "the clock ends")
    assert isinstance(query.exception(), OSError)
    assert seen == [10]


def test_a_client_without_its_packages_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As where the extra is not installed.
    for name in [name for name in sys.modules if name.startswith("pyspark.sql.connect")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "")
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED")
    with pytest.raises(ConfigError, match="needs packages that are not installed") as caught:
        build_session(SessionSettings(master="sc://127.0.0.1:1"))
    assert "headrace[connect]" in caught.value.next_step
