"""The picture of a replicator, drawn from a real change log and real manifests."""

from __future__ import annotations

import contextlib
import io
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from headrace.changelog import ChangeLogWriter
from headrace.cli.live import render
from headrace.lake import FrontierStore, Manifest, TableEntry
from headrace.lake.counts import OnTime, TableCounts, Totals
from headrace.model.block import Block, Body, transaction_index
from headrace.model.change import INSERT, change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.observe.status import ProcessState, StatusFile
from headrace.registry.file import FileRegistry
from headrace.replicator.config import Config
from headrace.replicator.config_file import load
from headrace.replicator.observe_config import ActivityConfig, DropConfig, ObjectiveConfig
from headrace.replicator.paths import StatePaths
from headrace.replicator.picture import Observer
from headrace.state.records import OPEN, Cause
from headrace.state.store import DumpProgress, RequestState, StateStore
from headrace.state.writer import StateWriter
from headrace.testing.standing import capturing
from headrace.watermark.tasks import TaskQueue
from tests.requirements import req


def schema(name: str) -> TableSchema:
    columns = (Column("id", pa.int64(), "bigint", nullable=False),)
    return TableSchema(TableId("public", name), columns, ("id",), KeyCheck.IMMEDIATE)


ORDERS, ITEMS = schema("orders"), schema("items")


def block(scn: int, commit_us: int, rows: dict[TableSchema, int]) -> Block:
    bodies, ordinal = [], 0
    for table, count in rows.items():
        values = [
            {"_scn": scn, "_ord": ordinal + i, "_op": INSERT, "_missing": None, "id": i}
            for i in range(count)
        ]
        ordinal += count
        batch = pa.RecordBatch.from_pylist(values, change_schema(table))
        bodies.append(Body(table.schema_id, table.table, batch))
    index = transaction_index([(scn, commit_us, 7, ordinal, 0, 1)])
    return Block(index, tuple(bodies), (), scn)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "shop.yaml"
    path.write_text(
        "name: shop\n"
        "source: {type: postgres, url: 'postgresql://u@h/db', tables: ['public.*']}\n"
        "target: {type: delta, path: ./lake}\n"
    )
    return load(path)


def fill(config: Config, frontier: Manifest | None, *blocks: Block) -> None:
    paths = StatePaths.of(config)
    registry = FileRegistry(paths.registry)
    for table in (ORDERS, ITEMS):
        registry.put(table)
    with ChangeLogWriter.open(paths.changelog) as log:
        for one in blocks:
            log.append(one)
        log.sync()
    if frontier is not None:
        FrontierStore(config.lake, config.name).write(frontier)


def manifest(scn: int, **states: str) -> Manifest:
    entries = {
        f"public.{name}": TableEntry(1, scn, scn if state == "live" else None, state)  # type: ignore[arg-type]
        for name, state in states.items()
    }
    return Manifest(scn, 1, entries, 2)


@req("C14")
def test_lag_is_told_per_table_in_changes_and_for_all_in_seconds(config: Config) -> None:
    now_us = time.time_ns() // 1000
    fill(
        config,
        manifest(10, orders="live", items="copying"),
        block(10, now_us - 90_000_000, {ORDERS: 5}),
        block(20, now_us - 60_000_000, {ORDERS: 3, ITEMS: 2}),
        block(30, now_us - 30_000_000, {ITEMS: 4}),
    )

    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()

    assert {t.name: (t.phase, t.lag_changes) for t in picture.tables} == {
        # Its dump has read nothing yet.
        "public.items": ("waiting", 6),
        "public.orders": ("live", 3),
    }
    assert picture.lag_changes == 9
    # The oldest change that the tables lack is a minute old.
    since_s = time.time() - now_us / 1e6
    assert picture.lag_s is not None
    assert 60 <= picture.lag_s <= 60 + since_s
    assert (picture.captured_scn, picture.frontier_scn) == (30, 10)
    assert not picture.shows(30)


@req("C14")
def test_a_table_that_was_left_behind_tells_its_own_lag(config: Config) -> None:
    """In changes and in seconds: what it lacks lies below the frontier."""
    now_us = time.time_ns() // 1000
    at = manifest(30, orders="live")
    counted = TableEntry(1, 10, 5, "failing", counts=TableCounts(10, inserts=5))
    fill(
        config,
        replace(at, tables={**at.tables, "public.items": counted}),
        block(10, now_us - 90_000_000, {ITEMS: 5}),
        block(20, now_us - 60_000_000, {ORDERS: 3, ITEMS: 2}),
        block(30, now_us - 50_000_000, {ITEMS: 4}),
        block(40, now_us - 40_000_000, {ORDERS: 1}),
    )
    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()
    items, orders = picture.tables
    assert (items.lag_changes, orders.lag_changes, picture.lag_changes) == (6, 1, 1)
    assert items.lag_s is not None
    assert orders.lag_s is not None
    assert items.lag_s == pytest.approx(60, abs=20)
    assert orders.lag_s == pytest.approx(40, abs=20)
    assert items.lag_s - orders.lag_s == pytest.approx(20, abs=1)
    assert (items.counts.inserts, orders.counts.inserts) == (5, 0)
    told = picture.to_json()
    assert json.loads(json.dumps(told))["tables"][0]["counts"] == {"scn": 10, "inserts": 5}


@req("C09")
def test_transactions_that_wait_too_long_miss_the_objective_before_they_are_visible(
    config: Config,
) -> None:
    objective = ObjectiveConfig(share=0.9, within_s=50, over_s=3_600)
    config = config.model_copy(update={"objective": objective})
    now_us = time.time_ns() // 1000
    totals = Totals(on_time=OnTime(50, 10, 10))
    fill(
        config,
        replace(manifest(10, orders="live"), totals=totals, written_us=now_us),
        block(10, now_us - 90_000_000, {ORDERS: 5}),
        block(20, now_us - 80_000_000, {ORDERS: 3}),
        block(30, now_us - 70_000_000, {ORDERS: 4}),
        block(40, now_us, {ORDERS: 1}),
    )
    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()
    assert picture.objective is not None
    assert (picture.objective.seen, picture.objective.overdue) == (10, 2)
    assert picture.objective.missed
    out = Console(width=120, record=True, file=io.StringIO())
    out.print(render("shop", picture))
    shown = out.export_text()
    assert "objective 90 % within 50 s: 83.3333 % of the last 1 h, 2 overdue, MISSED" in shown


def test_minutes_that_do_not_read_keep_nobody_from_looking(config: Config) -> None:
    watched = {"objective": ObjectiveConfig(), "activity": ActivityConfig(drop=DropConfig())}
    config = config.model_copy(update=watched)
    now_us = time.time_ns() // 1000
    fill(config, manifest(10, orders="live"), block(10, now_us, {ORDERS: 5}))
    StatePaths.of(config).activity.write_bytes(b"no database" * 1000)
    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()
    assert picture.frontier_scn == 10
    assert picture.objective is None
    assert picture.drops is None


@req("P27")
def test_the_fill_of_the_change_log_and_its_bound_are_told(config: Config) -> None:
    with contextlib.closing(Observer(config)) as observer:
        assert observer.look().log_bytes == 0
        fill(config, None, block(10, 1_000_000, {ORDERS: 5}))
        small = observer.look()
        fill(config, None, block(20, 1_000_000, {ORDERS: 500}))
        large = observer.look()

    folder = StatePaths.of(config).changelog
    assert 0 < small.log_bytes < large.log_bytes
    assert large.log_bytes == sum(path.stat().st_size for path in folder.glob("*.seg"))
    assert large.to_json()["log_bytes"] == large.log_bytes
    assert large.to_json()["log_budget_bytes"] == config.changelog.budget


@req("C36")
def test_the_number_of_the_newest_change_in_the_tables_is_told(config: Config) -> None:
    with contextlib.closing(Observer(config)) as observer:
        assert observer.look().to_json()["frontier_changes"] == 0
        fill(config, replace(manifest(10, orders="live"), changes=5))
        assert observer.look().to_json()["frontier_changes"] == 5


@req("C14")
def test_no_lag_when_the_tables_show_everything(config: Config) -> None:
    fill(config, manifest(10, orders="live"), block(10, 1_000_000, {ORDERS: 5}))

    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()

    assert (picture.lag_s, picture.lag_changes) == (0.0, 0)
    assert picture.shows(10)


def test_a_log_that_covers_a_position_without_changes_shows_it(config: Config) -> None:
    quiet = Block(transaction_index([]), (), (), 500)
    fill(config, manifest(10, orders="live"), block(10, 1_000_000, {ORDERS: 5}), quiet)

    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()

    assert picture.shows(500)
    assert not picture.shows(501)


@req("C78")
def test_the_dump_is_seen_before_the_target_exists(config: Config) -> None:
    fill(config, None, block(10, 1_000_000, {ORDERS: 5}))
    with contextlib.closing(StateStore(StatePaths.of(config).database)) as store:
        request = store.submit("ALL_TABLES")
        started = DumpProgress(
            request, ORDERS.table, state="active", rows_read=40, rows_estimated=100
        )
        waiting = DumpProgress(request, ITEMS.table)
        store.write([lambda w: w.put_progress(started, 0), lambda w: w.put_progress(waiting, 1)])

    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()

    assert {t.name: (t.phase, t.rows_read, t.rows_estimated) for t in picture.tables} == {
        "public.orders": ("copying", 40, 100),
        "public.items": ("waiting", 0, 0),
    }
    assert picture.lag_s is None


@req("C98")
def test_a_failing_table_says_why(config: Config) -> None:
    fill(config, manifest(10, orders="failing", items="live"), block(10, 1, {ORDERS: 1}))
    error = {"name": "MissingBase", "message": "public.orders: no row.", "next_step": "dump"}
    StatusFile(StatePaths.of(config).status("apply"), "apply").write(
        ProcessState.RUNNING,
        {"tables": {"public.orders": {"error": error}, "public.items": {"error": None}}},
    )

    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()

    assert {t.name: (t.phase, t.error) for t in picture.tables} == {
        "public.orders": ("failing", "MissingBase: public.orders: no row."),
        "public.items": ("live", ""),
    }


@req("N08", "P55", "C78")
def test_steered_copies_are_told(config: Config) -> None:
    fill(config, manifest(10, orders="copying", items="copying"), block(10, 1_000_000, {ORDERS: 5}))
    with contextlib.closing(StateStore(StatePaths.of(config).database)) as store:
        paused, dropped = (store.submit("TABLE", t.table) for t in (ORDERS, ITEMS))
        begun = DumpProgress(
            paused, ORDERS.table, "copying", rows_read=40, rows_estimated=100, rows_per_s=6.0
        )
        store.write([lambda w: w.put_progress(begun, 0)])
        with contextlib.closing(Observer(config)) as observer:
            with capturing(config):
                copying = observer.look().tables[1]
                assert (copying.phase, copying.rows_per_s) == ("copying", 6)
                assert copying.seconds_left == 10
                store.set_pace(log_paused=True)
                held = observer.look().tables[1]
                assert (held.rows_per_s, held.seconds_left) == (0, None)
                store.set_pace(log_paused=False)
            # A process that is gone reads nothing any more.
            gone = observer.look().tables[1]
            assert (gone.phase, gone.rows_per_s, gone.seconds_left) == ("copying", 0, None)
            store.move(paused, RequestState.PAUSED, since=OPEN)
            store.move(dropped, RequestState.CANCELLED, since=OPEN)
            items, orders = observer.look().tables

    assert (orders.phase, orders.seconds_left) == ("paused", None)
    assert items.phase == "incomplete"
    assert "headrace dump start FILE --table public.items" in items.error


@req("N08")
def test_a_live_table_stays_live_when_a_needless_dump_is_cancelled(config: Config) -> None:
    fill(config, manifest(10, orders="live"), block(10, 1_000_000, {ORDERS: 5}))
    with contextlib.closing(StateStore(StatePaths.of(config).database)) as store:
        first, needed = store.submit("TABLE", ORDERS.table), Cause.FILLED
        done = DumpProgress(first, ORDERS.table, "done", rows_read=5, completed_scn=10)
        store.write([lambda w: w.put_progress(done, 0)])
        store.move(store.submit("TABLE", ORDERS.table), RequestState.CANCELLED, since=OPEN)
        with contextlib.closing(Observer(config)) as observer:
            assert observer.look().tables[0].phase == "live"
            again = store.submit("TABLE", ORDERS.table, cause=needed)
            store.move(again, RequestState.CANCELLED, since=OPEN)
            # What the source filled in never reached it.
            assert observer.look().tables[0].phase == "incomplete"


def test_a_table_that_is_refused_is_shown_with_the_reason_until_it_is_gone(config: Config) -> None:
    fill(config, manifest(10, orders="left"), block(10, 10, {ORDERS: 1}))
    state = StateStore(StatePaths.of(config).database)
    queue = TaskQueue(state, [])
    table = TableId("public", "bare")
    queue.refuse(table, "public.bare has no primary key.")
    with contextlib.closing(Observer(config)) as observer:
        shown = {t.name: (t.phase, t.error) for t in observer.look().tables}
        assert shown == {
            "public.bare": ("failing", "public.bare has no primary key."),
            "public.orders": ("left", ""),
        }
        assert not queue.was_captured(table)
        queue.withdraw(table)
        assert [t.name for t in observer.look().tables] == ["public.orders"]
    state.close()


def put_progress(writer: StateWriter, done: DumpProgress) -> None:
    writer.put_progress(done, 0)


@req("C98")
def test_tables_that_are_captured_no_more_are_left_or_shown_no_more(config: Config) -> None:
    """The configuration names another database by now, or leaves them out."""
    fill(config, manifest(10, orders="live", items="live"), block(10, 10, {ORDERS: 1}))
    other = TableId("public", "never_applied")
    with contextlib.closing(StateStore(StatePaths.of(config).database)) as state:
        for table in (ORDERS.table, ITEMS.table, other):
            done = DumpProgress(state.submit("TABLE", table), table, "done", completed_scn=10)
            state.write([partial(put_progress, done=done)])
        with contextlib.closing(Observer(config)) as observer:
            phases = {t.name: t.phase for t in observer.look().tables}
            assert phases.pop("public.never_applied") == "waiting"
            assert phases == {"public.items": "live", "public.orders": "live"}
            state.write([lambda w: w.set("tables", '["public.items"]')])
            items, orders = observer.look().tables
    assert (items.name, items.phase, items.error) == ("public.items", "live", "")
    assert (orders.name, orders.phase) == ("public.orders", "left")
    assert "captured no more" in orders.error


@req("D34")
def test_a_table_that_is_filled_elsewhere_says_what_it_waits_for(
    config: Config, tmp_path: Path
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(path.read_text() + "tables: {public.orders: {first_copy: adopted}}\n")
    config = load(path)
    names = '["public.items", "public.orders"]'
    with contextlib.closing(StateStore(StatePaths.of(config).database)) as state:
        state.write([lambda w: w.set("tables", names)])
        with contextlib.closing(Observer(config)) as observer:
            # Also before the log has said anything of it.
            (table,) = observer.look().tables
            assert (table.name, table.phase) == ("public.orders", "waiting")
            assert "headrace adopt FILE --table public.orders" in table.error
            state.submit("TABLE", ORDERS.table, cause=Cause.ADOPTED)
            assert observer.look().tables == ()
