"""Groups in real databases: one change at a time, places that only their present owner moves, the database's clock."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from headrace.client import SqlGroupStore
from headrace.client.errors import CheckpointUnusable, GroupUnavailable, StaleGeneration
from headrace.client.group_state import Claim, GroupState, begun, leave, resize, rewind, turn
from headrace.errors import ConfigError
from headrace.wire.place import Place
from tests.fixtures_postgres import database, postgres_server
from tests.requirements import req

__all__ = ["database", "postgres_server"]

LEASE_US = 10_000_000


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    if request.param == "sqlite":
        # A slow disk holds its lock for longer than the five seconds that SQLite waits by itself.
        engine = sa.create_engine(f"sqlite:///{tmp_path}/groups.db", connect_args={"timeout": 60})
    else:
        url = request.getfixturevalue("database")
        engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


class Clock:
    """Microseconds that move when a test says so."""

    def __init__(self) -> None:
        self.now_us = 1

    def __call__(self) -> int:
        return self.now_us


def turned(store: SqlGroupStore, member: str, *ended: Claim) -> list[Claim]:
    return store.change("g", lambda state, now: turn(state, member, now, LEASE_US, ended))


def _resized(count: int, state: GroupState, _: int) -> None:
    resize(state, count)


def _left(member: str, state: GroupState, _: int) -> None:
    leave(state, member)


def test_what_was_changed_is_what_every_other_process_reads(engine):
    store = SqlGroupStore(engine)
    assert store.read("g") is None
    store.create("g", begun("{}", 3, Place(5, 2)))
    store.create("g", begun("other", 9, Place(9)))
    rng = random.Random(1)
    claims: dict[str, list[Claim]] = {"a": [], "b": []}
    for _ in range(30):
        act = rng.choice(["turn", "turn", "turn", "resize", "leave", "place"])
        member = rng.choice("ab")
        if act == "turn":
            told = turned(store, member)
            kept = {claim.generation for claim in told}
            turned(store, member, *(c for c in claims[member] if c.generation not in kept))
            claims[member] = told
        elif act == "resize":
            count = rng.randrange(1, 6)
            store.change("g", partial(_resized, count))
        elif act == "leave":
            store.change("g", partial(_left, member))
            claims[member] = []
        else:
            for claim in claims[member]:
                place = Place(rng.randrange(10, 99) if claim.upto is None else claim.upto)
                try:
                    store.store("g", claim, place)
                except StaleGeneration:
                    continue
                assert store.load("g", claim) == place

        def untouched(state: GroupState, _: int) -> GroupState:
            return state

        assert SqlGroupStore(engine).read("g") == store.change("g", untouched)
    state = store.read("g")
    assert state is not None
    assert state.definition == "{}"
    assert state.generation > 5


def test_every_part_of_a_group_is_kept_and_what_is_no_more_is_gone(engine):
    store = SqlGroupStore(engine)
    store.create("g", begun("{}", 3, Place(0)))

    def more(state: GroupState, _: int) -> GroupState:
        state.generation, state.target, state.barrier = 9, 7, 40
        state.members = {"a": 5, "b": 6}
        state.partitions[1].owner, state.partitions[1].generation = "a", 9
        state.partitions[2].place = Place(3, 4)
        return deepcopy(state)

    def less(state: GroupState, _: int) -> GroupState:
        state.target = state.barrier = None
        state.members = {"b": 8}
        state.partitions[1].owner = None
        state.partitions.pop()
        return deepcopy(state)

    for act in (more, less):
        left = store.change("g", act)
        assert SqlGroupStore(engine).read("g") == left


def test_a_place_that_is_changed_with_the_group_is_kept(engine):
    store = SqlGroupStore(engine)
    store.create("g", begun("{}", 2, Place(0)))

    def move(state: GroupState, _: int) -> None:
        state.partitions[1].place = Place(3, 4)

    store.change("g", move)
    state = store.read("g")
    assert state is not None
    assert [p.place for p in state.partitions] == [Place(0), Place(3, 4)]


@req("B-7")
def test_a_change_that_fails_leaves_nothing_behind(engine):
    store = SqlGroupStore(engine)
    store.create("g", begun("{}", 2, Place(0)))
    before = store.read("g")

    def fail(state: GroupState, now_us: int) -> None:
        turn(state, "a", now_us, LEASE_US)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.change("g", fail)
    assert store.read("g") == before


@req("B-7")
def test_nobody_changes_a_group_while_somebody_else_does(engine):
    store = SqlGroupStore(engine)
    store.create("g", begun("{}", 2, Place(0)))
    seen: list[tuple[int, int]] = []
    other = threading.Thread(
        target=SqlGroupStore(engine).change,
        args=("g", lambda state, now_us: seen.append((state.generation, now_us))),
    )

    def slowly(state: GroupState, now_us: int) -> int:
        other.start()
        other.join(0.3)
        assert seen == []
        turn(state, "a", now_us, LEASE_US)
        return now_us

    began_us = store.change("g", slowly)
    other.join(60)
    ((generation, now_us),) = seen
    assert generation == 2
    # Whoever waited is told the time of its turn: by that of its coming it would take leases for longer than they are.
    assert now_us - began_us >= 250_000


def test_an_engine_with_other_transactions_is_used_as_it_has_to_be(database):
    """Behind somebody else's change a snapshot of before it could only be refused."""
    url = database.replace("postgresql://", "postgresql+psycopg://")
    engine = sa.create_engine(url, isolation_level="REPEATABLE READ")
    test_nobody_changes_a_group_while_somebody_else_does(engine)
    engine.dispose()


def test_members_that_make_the_tables_at_the_same_time_both_get_them(engine):
    refused: list[str] = []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def somebody_else_is_faster(connection, cursor, statement, *_):
        if "CREATE TABLE" in statement and not refused:
            refused.append(statement)
            raise sa.exc.IntegrityError(statement, None, Exception("it exists"))

    store = SqlGroupStore(engine)
    assert store.read("g") is None
    assert refused
    store.create("g", begun("{}", 1, Place(0)))
    assert store.read("g") == begun("{}", 1, Place(0))


@req("B-7")
def test_members_that_come_at_once_never_own_the_same_partition(engine):
    told: dict[str, list[Claim]] = {}
    ready = threading.Barrier(6)

    def come(member: str) -> None:
        store = SqlGroupStore(engine)
        ready.wait(30)
        store.create("g", begun("{}", 12, Place(0)))
        for _ in range(4):
            told[member] = turned(store, member)

    threads = [threading.Thread(target=come, args=(f"m{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    # Who came first was told to keep a share that is smaller now; generations tell who owns what.
    state = SqlGroupStore(engine).read("g")
    assert state is not None
    held = {p.generation: p.owner for p in state.partitions}
    assert len(told) == 6
    claims = [(claim.generation, member) for member, of in told.items() for claim in of]
    assert claims
    assert len({generation for generation, _ in claims}) == len(claims)
    assert all(held[generation] == member for generation, member in claims)


@req("B-7")
def test_a_former_owner_can_neither_read_nor_store_a_place(engine):
    clock = Clock()
    store = SqlGroupStore(engine, clock=clock)
    store.create("g", begun("{}", 1, Place(0)))
    (old,) = turned(store, "a")
    store.store("g", old, Place(7))
    clock.now_us += LEASE_US
    (new,) = turned(store, "b")
    assert store.load("g", new) == Place(7)
    with pytest.raises(StaleGeneration, match="Partition 0 of group g"):
        store.store("g", old, Place(99))
    with pytest.raises(StaleGeneration):
        store.load("g", old)
    assert store.load("g", new) == Place(7)


@req("B-7")
def test_a_member_that_is_over_is_fenced_before_anybody_took_its_place(engine):
    clock = Clock()
    store = SqlGroupStore(engine, clock=clock)
    store.create("g", begun("{}", 2, Place(0)))
    one, other = turned(store, "a")
    turned(store, "a", one)
    with pytest.raises(StaleGeneration):
        store.store("g", one, Place(1))
    store.store("g", other, Place(1))
    store.change("g", lambda state, _: leave(state, "a"))
    with pytest.raises(StaleGeneration):
        store.store("g", other, Place(2))


@req("D27", "B-7")
def test_what_a_former_owner_writes_in_its_own_transaction_goes_with_its_place(engine):
    clock = Clock()
    store = SqlGroupStore(engine, clock=clock)
    store.create("g", begun("{}", 1, Place(0)))
    (old,) = turned(store, "a")
    rows = sa.Table("rows", sa.MetaData(), sa.Column("scn", sa.BigInteger))
    rows.create(engine)
    with engine.begin() as connection:
        connection.execute(rows.insert().values(scn=1))
        store.store("g", old, Place(1), connection)
    clock.now_us += LEASE_US
    (new,) = turned(store, "b")

    def late() -> None:
        with engine.begin() as connection:
            connection.execute(rows.insert().values(scn=2))
            store.store("g", old, Place(2), connection)

    with pytest.raises(StaleGeneration):
        late()
    with engine.connect() as connection:
        assert connection.execute(sa.select(rows.c.scn)).scalars().all() == [1]
    assert store.load("g", new) == Place(1)


@req("B-7", "D108")
@pytest.mark.parametrize("commits", [True, False])
def test_nobody_waits_for_a_member_that_was_frozen_inside_its_transaction(database, commits):
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    clock = Clock()
    store = SqlGroupStore(engine, clock=clock)
    store.create("g", begun("{}", 2, Place(0)))
    frozen, other = turned(store, "a")
    with engine.connect() as connection:
        store.store("g", frozen, Place(5), connection)
        clock.now_us += LEASE_US
        # Its partition stays where it is while its fate is open; the other one moves at once.
        assert [claim.number for claim in turned(store, "b")] == [other.number]
        if commits:
            connection.commit()
        else:
            connection.rollback()
    (moved,) = (claim for claim in turned(store, "b") if claim.number == frozen.number)
    assert store.load("g", moved) == Place(5 if commits else 0)
    engine.dispose()


def test_the_databases_clock_rises_in_microseconds(engine):
    store = SqlGroupStore(engine)
    store.create("g", begun("{}", 1, Place(0)))
    seen = [store.change("g", lambda _, now_us: now_us) for _ in range(5)]
    assert seen == sorted(seen)
    assert 1.6e15 < seen[0] < 1e16
    assert seen[-1] - seen[0] < 60e6


def test_a_database_that_is_not_there_is_named(tmp_path):
    store = SqlGroupStore(f"sqlite:///{tmp_path}/no/such.db")
    claim = Claim(0, 1, 1)
    with pytest.raises(GroupUnavailable, match="group g"):
        store.read("g")
    with pytest.raises(GroupUnavailable, match="group g"):
        store.change("g", lambda state, _: state)
    with pytest.raises(CheckpointUnusable, match="partition 0 of group g does not read"):
        store.load("g", claim)
    with pytest.raises(CheckpointUnusable, match="partition 0 of group g cannot be stored"):
        store.store("g", claim, Place(1))


def test_a_group_that_nobody_began_cannot_be_changed(engine):
    with pytest.raises(GroupUnavailable, match="There is no group g"):
        SqlGroupStore(engine).change("g", lambda state, _: state)


def test_a_place_that_does_not_read_is_named_and_not_begun_anew(engine):
    store = SqlGroupStore(engine)
    store.create("g", begun("{}", 1, Place(0)))
    (claim,) = turned(store, "a")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE headrace_group_partitions SET place = 'x'")
    with pytest.raises(CheckpointUnusable, match="does not read"):
        store.load("g", claim)
    with pytest.raises(GroupUnavailable, match="ValueError"):
        store.read("g")


def test_databases_without_a_clock_of_ours_are_refused():
    engine = sa.create_mock_engine("mssql+pyodbc://", lambda *_: None)
    with pytest.raises(ConfigError, match="mssql"):
        SqlGroupStore(engine)  # type: ignore[arg-type]


@req("D108")
def test_a_dead_members_lease_is_no_longer_when_the_clock_is_set_back(engine):
    clock = Clock()
    store = SqlGroupStore(engine, clock=clock)
    store.create("g", begun("{}", 2, Place(0)))
    clock.now_us = 3600 * LEASE_US
    assert len(turned(store, "dead")) == 2
    clock.now_us = LEASE_US
    assert turned(store, "other") == []
    clock.now_us += LEASE_US
    assert len(turned(store, "other")) == 2


def test_tables_of_an_earlier_version_get_what_they_lack(engine):
    store = SqlGroupStore(engine)
    store.create("g", begun("{}", 2, Place(3)))
    turned(store, "a")
    with engine.begin() as connection:
        for table, column in (("s", "rewind"), ("s", "dumped"), ("_members", "lease_us")):
            connection.exec_driver_sql(f"ALTER TABLE headrace_group{table} DROP COLUMN {column}")
    store = SqlGroupStore(engine)
    state = store.read("g")
    assert state is not None
    assert [p.place for p in state.partitions] == [Place(3), Place(3)]
    assert (state.rewind, state.dumped, state.leases) == (None, None, {})
    store.change("g", lambda state, _: rewind(state, 1))
    turned(store, "a")
    state = SqlGroupStore(engine).read("g")
    assert state is not None
    assert (state.rewind, state.leases) == (1, {"a": LEASE_US})
