"""A state that begins anew takes no tables over in silence that its target kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import ChangeLogLost, StateError
from headrace.lake import FrontierStore, Manifest, TableEntry
from headrace.lake.modes import Mode
from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.model.block import SystemKind
from headrace.model.schema import TableId
from headrace.replicator import resync, runner
from headrace.replicator.config import Config
from headrace.replicator.config_file import load
from headrace.replicator.held import held_scn, refuse_held
from headrace.replicator.paths import StatePaths
from headrace.replicator.resync import ResyncState
from headrace.state.records import Cause
from headrace.state.store import StateStore
from headrace.testing.lives import Transaction
from headrace.testing.notation import table_of
from tests.fixtures_postgres import database, postgres_server
from tests.lake.sql.kept_table import KeptInWarehouse

__all__ = ["database", "postgres_server"]

FAR = 2**60
"""Farther than the log of any server that a test starts."""


@pytest.fixture
def config(tmp_path: Path, database: str) -> Iterator[Config]:
    with psycopg.connect(database) as connection:
        connection.execute(b"CREATE TABLE notes (id int PRIMARY KEY, v text)")
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"name: shop\nsource: {{type: postgres, url: '{database}', tables: ['public.*']}}\n"
        "target: {type: delta, path: ./lake}\n"
    )
    found = load(file)
    yield found
    runner.release_source(found)


def begun(config: Config) -> None:
    """Begin a capture, and end it."""
    paths = StatePaths.of(config)
    paths.create()
    with runner.capture(config, paths, threading.Event(), lambda _: None) as capture:
        capture.start()
        capture.close()


def slots(url: str) -> int:
    with psycopg.connect(url) as connection:
        return len(connection.execute(b"SELECT FROM pg_replication_slots").fetchall())


@pytest.mark.postgres
def test_tables_that_were_kept_are_emptied_and_copied_on_a_word_alone(
    config: Config, database: str
) -> None:
    """Rows that were deleted while nobody read would stay in them for ever."""
    entry = TableEntry(3, FAR, FAR, "live")
    FrontierStore(config.lake, "shop").write(Manifest(FAR, 1, {"public.notes": entry}, 1, 7))
    with pytest.raises(ChangeLogLost, match=rf"tables of replicator shop up to SCN {FAR}"):
        begun(config)
    assert slots(database) == 0

    runner.order_resync(config)
    begun(config)
    notes = TableId("public", "notes")
    gap, *_ = ChangeLogReader(StatePaths.of(config).changelog).blocks(0)
    # Higher than what the tables show, which would take nothing else.
    assert [(event.scn, event.kind, event.table) for event in gap.system] == [
        (FAR + 1, SystemKind.TRUNCATE, notes),
        (FAR + 1, SystemKind.GAP, notes),
    ]
    state = StateStore(StatePaths.of(config).database)
    (request,) = state.requests()
    assert request.cause is Cause.GAP
    under_way = resync.read(state)
    assert under_way is not None
    assert under_way.state is ResyncState.REPAIRING


@pytest.mark.postgres
def test_one_that_goes_on_and_one_whose_target_is_empty_begin_without_a_word(
    config: Config,
) -> None:
    with pytest.raises(StateError, match="captured nothing yet"):
        runner.order_resync(config)
    begun(config)
    entry = TableEntry(3, 81, 81, "live")
    FrontierStore(config.lake, "shop").write(Manifest(81, 1, {"public.notes": entry}, 1, 7))
    begun(config)


def test_a_warehouse_says_by_its_ledger_what_it_holds(tmp_path: Path) -> None:
    lake, warehouse = tmp_path / "target", DuckdbWarehouse(tmp_path / "shop.duckdb")
    assert held_scn(lake, "test", warehouse) == 0
    assert not warehouse.path.exists()
    first = Transaction(81)
    first.add("+I", (1, "a", "b"))
    KeptInWarehouse(warehouse, table_of(3), Mode.SOFT_DELETE).apply([first])
    assert held_scn(lake, "test", warehouse) == 81
    assert held_scn(lake, "other", warehouse) == 0
    refuse_held("other", 0)
