"""Transactions of a real server in the change log: what each event carries, where each ends, in which order they come.

An event of the Replicator's design is here a change, which is one or two rows, under an entry of the transaction index:
position ``(scn, ord)``, the source's transaction id and the origin; the commit event is the entry's last piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import SourceUnavailable
from headrace.model.block import ORIGIN_SELECT, TRANSACTION_DTYPE, Block
from headrace.model.change import missing_matrix
from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from tests.faults.faulty import at_work, follows
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

Row = dict[str, Any]
NAMES = {"+I": "INSERT", "=U": "UPDATE", "+U": "UPDATE", "-D": "DELETE", "+R": "INSERT"}


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@dataclass(frozen=True)
class Event:
    """One event as the design has it; ``COMMIT`` has neither table nor rows."""

    position: tuple[int, int]
    transaction: int
    snapshot: bool
    operation: str
    table: str = ""
    before: Row | None = None
    row: Row | None = None


def events_of(folder: Path) -> list[Event]:
    """Return the events of a change log in its order; checks that no transaction begins before the last one ended."""
    found: list[Event] = []
    newest, is_open = 0, False
    for block in ChangeLogReader(folder / "changelog").blocks(0):
        rows = _rows(block)
        system = {(event.scn, event.ord) for event in block.system}
        for entry in block.index:
            told = {name: int(entry[name]) for name in TRANSACTION_DTYPE.names or ()}
            scn, here = told["scn"], (told["xid"], told["origin"] == ORIGIN_SELECT)
            assert scn == newest if is_open else scn > newest
            own = sorted(place for place in rows if place[0] == scn)
            assert len(own) + sum(place[0] == scn for place in system) == told["changes"]
            before: Row | None = None
            for place in own:
                op, table, cells = rows.pop(place)
                if op == "-U":
                    before = cells
                elif op == "-D":
                    found.append(Event(place, *here, NAMES[op], table, before=cells))
                else:
                    found.append(Event(place, *here, NAMES[op], table, before, cells))
                    before = None
            newest, is_open = scn, not told["last_piece"]
            if not is_open:
                found.append(Event((scn, 2**31), *here, "COMMIT"))
        assert not rows, "rows of a transaction that the block does not list"
    assert not is_open
    return found


def _rows(block: Block) -> dict[tuple[int, int], tuple[str, str, Row]]:
    """Return operation, table and the cells that were sent of each change row, by its place."""
    found = {}
    for body in block.bodies:
        names = [name for name in body.batch.schema.names if not name.startswith("_")]
        holes = missing_matrix(body.batch.column("_missing"), len(names))
        for row, missing in zip(body.batch.to_pylist(), holes, strict=True):
            cells = {n: row[n] for n, hole in zip(names, missing, strict=True) if not hole}
            found[row["_scn"], row["_ord"]] = (row["_op"], str(body.table), cells)
    return found


@req("C59", "C52", "C53", "C32")
def test_the_designs_two_transactions_come_out_as_written(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE customers (id int PRIMARY KEY, name text)")
    transactions = (
        (
            "INSERT INTO customers (id, name) VALUES (0, 'alice'), (1, 'bob')",
            "UPDATE customers SET name = 'Alice' WHERE id = 0",
            "UPDATE customers SET name = 'Bob' WHERE id = 1",
        ),
        (
            "DELETE FROM customers WHERE id = 1",
            "INSERT INTO customers (id, name) VALUES (1, 'Bobby')",
        ),
    )
    with at_work(PostgresSource(database), tmp_path) as running:
        until(running.dumped, "the first copy")
        xids = []
        for statements in transactions:
            with psycopg.connect(database) as session:
                for statement in statements:
                    session.execute(statement.encode())
                xids.append(_xid(session))
        follows(running, database, TableId("public", "customers"))
    one, other = xids
    told = [
        (event.operation, event.transaction, event.table, event.row or event.before)
        for event in events_of(tmp_path)
        if not event.snapshot
    ]
    table = "public.customers"
    assert told == [
        ("INSERT", one, table, {"id": 0, "name": "alice"}),
        ("INSERT", one, table, {"id": 1, "name": "bob"}),
        ("UPDATE", one, table, {"id": 0, "name": "Alice"}),
        ("UPDATE", one, table, {"id": 1, "name": "Bob"}),
        # It ends the whole transaction, and so is of no table.
        ("COMMIT", one, "", None),
        ("DELETE", other, table, {"id": 1}),
        ("INSERT", other, table, {"id": 1, "name": "Bobby"}),
        ("COMMIT", other, "", None),
    ]


def _xid(session: psycopg.Connection) -> int:
    row = session.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    assert row is not None
    return int(row[0])


@req("C31", "C52")
def test_a_change_says_all_of_itself_and_what_was_before_where_something_was(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """The row before is whole with REPLICA IDENTITY FULL; else it is the key, of a delete and of a key that moves."""
    sql(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.full_rows (id int PRIMARY KEY, v text)",
        "ALTER TABLE shop.full_rows REPLICA IDENTITY FULL",
        "INSERT INTO shop.full_rows VALUES (1, 'a')",
        "CREATE TABLE shop.keys (id int PRIMARY KEY, v text)",
    )
    tables = ("shop.*",)
    with at_work(PostgresSource(database, tables=tables), tmp_path) as running:
        until(running.dumped, "the first copy")
        with psycopg.connect(database) as session:
            for table in ("full_rows", "keys"):
                session.execute(f"INSERT INTO shop.{table} VALUES (2, 'b')".encode())
                session.execute(f"UPDATE shop.{table} SET v = 'c' WHERE id = 2".encode())
                session.execute(f"UPDATE shop.{table} SET id = 3 WHERE id = 2".encode())
                session.execute(f"DELETE FROM shop.{table} WHERE id = 3".encode())
            xid = _xid(session)
        follows(running, database, TableId("shop", "full_rows"))
    events = [event for event in events_of(tmp_path) if event.operation != "COMMIT"]
    places = [event.position for event in events]
    assert places == sorted(set(places))
    read, *logged = events
    # A row of the first copy has no transaction of the source: nothing tells which one wrote it.
    assert (read.snapshot, read.transaction, read.operation) == (True, 0, "INSERT")
    assert (read.table, read.before, read.row) == ("shop.full_rows", None, {"id": 1, "v": "a"})
    assert {(event.snapshot, event.transaction) for event in logged} == {(False, xid)}
    assert len({event.position[0] for event in logged}) == 1
    b, c, moved = {"id": 2, "v": "b"}, {"id": 2, "v": "c"}, {"id": 3, "v": "c"}
    assert [(e.table, e.operation, e.before, e.row) for e in logged] == [
        ("shop.full_rows", "INSERT", None, b),
        ("shop.full_rows", "UPDATE", b, c),
        ("shop.full_rows", "UPDATE", c, moved),
        ("shop.full_rows", "DELETE", moved, None),
        ("shop.keys", "INSERT", None, b),
        ("shop.keys", "UPDATE", None, c),
        ("shop.keys", "UPDATE", {"id": 2}, moved),
        ("shop.keys", "DELETE", {"id": 3}, None),
    ]


@req("C54", "C52", "C53", "C32")
def test_transactions_that_ran_side_by_side_come_one_behind_the_other(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Some are streamed while they are open, in turns with each other, and one of those comes to nothing."""
    sql("CREATE TABLE t (id bigint PRIMARY KEY, xid bigint, pad text)")
    eager = f"{database}&options=-c%20logical_decoding_work_mem%3D64kB"
    source = PostgresSource(eager)
    object.__setattr__(source.settings, "block_rows", 64)
    own = "pg_current_xact_id()::text::bigint"
    with at_work(source, tmp_path) as running, ExitStack() as sessions:
        until(running.dumped, "the first copy")
        open_ = [sessions.enter_context(psycopg.connect(database)) for _ in range(5)]
        xids = [_xid(session) for session in open_]
        for turn in range(20):
            for number, session in enumerate(open_):
                first = 1_000 * (20 * number + turn)
                rows = 60 if number < 3 else 2
                session.execute(
                    f"INSERT INTO t SELECT {first} + n, {own}, repeat('x', 200) "
                    f"FROM generate_series(1, {rows}) n".encode()
                )
        for place in (3, 1, 4, 0):
            open_[place].commit()
        open_[2].rollback()
        sql(f"INSERT INTO t VALUES (-1, {own}, '')")
        follows(running, database, TableId("public", "t"))
    events = events_of(tmp_path)
    commits = [event.transaction for event in events if event.operation == "COMMIT"]
    assert [xid for xid in commits if xid in xids] == [xids[place] for place in (3, 1, 4, 0)]
    assert len(commits) == len(set(commits))
    begun: list[int] = []
    for event in events:
        if event.row is not None:
            # Each row holds the id that the server gave its transaction.
            assert event.row["xid"] == event.transaction
        if event.transaction not in begun[-1:]:
            begun.append(event.transaction)
    assert begun == commits
    counts = [sum(e.transaction == xid for e in events) - 1 for xid in xids]
    assert counts == [1200, 1200, -1, 40, 40]


@req("T20")
def test_pieces_of_a_transaction_that_come_again_are_counted_once(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresSource(database)
    object.__setattr__(source.settings, "block_rows", 100)
    cuts: list[int] = []
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        reader = ChangeLogReader(tmp_path / "changelog")
        passes = iter(range(100))

        def cut() -> None:
            if len(cuts) < 2 and next(passes) % 4 == 3:
                cuts.append(reader.tail().complete_scn)
                raise SourceUnavailable("the connection was cut.", next_step="open it again.")

        failpoints.arm("capture.after_append", cut)
        sql("INSERT INTO t SELECT generate_series(1, 1000)")
        follows(running, database, TableId("public", "t"))
        held = reader.index(0)["changes"].sum()
        until(lambda: running.statuses[-1].complete_scn == reader.tail().complete_scn, "a status")
        until(lambda: len(cuts) == 2, "two cuts")
        assert running.statuses[-1].changes == held
    # Both times in the middle of it: nothing of it was there.
    assert cuts[0] == cuts[1]
