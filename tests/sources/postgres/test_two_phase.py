"""Transactions that are prepared first: they come when COMMIT PREPARED has come, and never before, on every server.

A slot that was made to hand them out at PREPARE is refused by preflight, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from headrace.errors import PreflightFailed, SourceUnavailable
from headrace.model.schema import TableId
from headrace.model.snapshot import NO, YES
from headrace.sources.postgres import PostgresSource
from headrace.testing.postgres import EmbeddedPostgres
from tests.integration.running import running_capture
from tests.requirements import req
from tests.sources.postgres.support import opened
from tests.waiting import until

pytestmark = pytest.mark.postgres

T = TableId("public", "t")
ROWS = 3_000
"""Enough for a server that streams open transactions past 64 kB."""


@pytest.fixture(scope="module", params=[18, 16], ids=["pg18", "pg16"])
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    settings = {"max_prepared_transactions": "10", "logical_decoding_work_mem": "64kB"}
    with EmbeddedPostgres(version=request.param, settings=settings) as running:
        yield running


@pytest.fixture
def url(server: EmbeddedPostgres) -> Iterator[str]:
    made = server.create_database("shop")
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", database="shop")
    yield made
    server.drop_database("shop")


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        for statement in statements:
            session.execute(statement.encode())


def prepare(url: str, name: str, *statements: str) -> None:
    run(url, "BEGIN", *statements, f"PREPARE TRANSACTION '{name}'")


@pytest.mark.parametrize("rows", [1, ROWS], ids=["small", "streamed while open"])
def test_a_prepared_transaction_comes_at_its_commit_and_one_that_is_rolled_back_never(
    url: str, tmp_path: Path, rows: int
) -> None:
    with opened(url, tmp_path) as log:
        for name, first in (("kept", 1), ("gone", 10_001)):
            prepare(
                url,
                name,
                f"INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series({first}, {first + rows - 1}) n",
            )
        run(url, "INSERT INTO t VALUES (0, 'between')")
        assert [row["id"] for row in log.collect().rows("t")] == [0]
        # A restart amid them makes no difference.
        log.reopen()
        run(url, "ROLLBACK PREPARED 'gone'")
        assert log.collect().rows("t") == []
        run(url, "COMMIT PREPARED 'kept'", "INSERT INTO t VALUES (-1, 'behind')")
        got = log.collect()
        assert [row["id"] for row in got.rows("t")] == [*range(1, rows + 1), -1]
        scns = [entry["scn"] for entry in got.index]
        assert scns == sorted(scns)
        assert len(set(scns)) == 2


@req("P49")
def test_a_chunk_does_not_see_what_is_only_prepared(url: str, tmp_path: Path) -> None:
    run(url, "INSERT INTO t VALUES (1, 'old')")
    with opened(url, tmp_path) as log:
        log.collect()
        prepare(url, "p", "UPDATE t SET v = 'new' WHERE id = 1")
        reader = log.source.chunks()
        before = reader.read(T, None, ("9",), 10)
        assert before.rows.to_pylist() == [{"id": 1, "v": "old"}]
        run(url, "COMMIT PREPARED 'p'")
        (entry,) = log.collect().index
        xid, scn = (np.array([entry[name]], np.int64) for name in ("xid", "scn"))
        # The log names the transaction as the snapshots do.
        assert before.visibility.sees(xid, scn).tolist() == [NO]
        assert reader.snapshot().sees(xid, scn).tolist() == [YES]
        reader.close()


def test_a_dump_beside_prepared_transactions_ends_exact(url: str, tmp_path: Path) -> None:
    run(url, "INSERT INTO t SELECT n, 'old' FROM generate_series(1, 20) n")
    source = PostgresSource(url)
    # A slot waits for whoever is open when it is made, prepared transactions as well.
    source.prepare()
    prepare(url, "a", "UPDATE t SET v = 'new' WHERE id % 3 = 0", "DELETE FROM t WHERE id = 7")
    prepare(url, "b", "UPDATE t SET v = 'never' WHERE id = 8")
    with running_capture(source, tmp_path) as running:
        until(running.dumped, "the copy")
        assert running.content(T).total() == 20
        run(url, "COMMIT PREPARED 'a'", "ROLLBACK PREPARED 'b'")
        with psycopg.connect(url) as session:
            rows = set(session.execute("SELECT id, v FROM t").fetchall())
        assert len(rows) == 19
        until(lambda: set(running.content(T)) == rows, "the rows of the source")


def test_a_slot_that_hands_out_prepared_transactions_is_refused_with_the_reason(url: str) -> None:
    run(
        url,
        "CREATE PUBLICATION pub FOR TABLE t",
        "SELECT pg_create_logical_replication_slot('twice', 'pgoutput', false, true)",
    )
    source = PostgresSource(url, slot="twice", publication="pub")
    (finding,) = source.preflight()
    assert finding.name == "slot-two-phase"
    assert "PREPARE TRANSACTION" in finding.description
    with pytest.raises(PreflightFailed, match="slot-two-phase"):
        source.prepare()
    # The remedy works as it stands.
    for statement in finding.suggestion.split(";")[:2]:
        run(url, statement)
    assert source.preflight() == []
    source.prepare()


def test_a_slot_that_waits_for_a_prepared_transaction_says_where_to_look(url: str) -> None:
    prepare(url, "forgotten", "INSERT INTO t VALUES (1, 'a')")
    source = PostgresSource(url, name="waits")
    object.__setattr__(source.settings, "slot_timeout_s", 0.5)
    try:
        with pytest.raises(SourceUnavailable, match="headrace_waits") as caught:
            source.prepare()
        assert "pg_prepared_xacts" in caught.value.next_step
    finally:
        run(url, "ROLLBACK PREPARED 'forgotten'")
    source.prepare()
