"""What people ask for on a real server, and nothing besides: all tables, one table, single keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.state.records import DumpRequest, RequestState, Scope
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.running import Running, running_capture
from tests.integration.selected import Row, rows_by_origin, tables_in_turn
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

Key = tuple[str, ...]

ONE, LINES, BAG = (TableId("public", name) for name in ("one", "lines", "bag"))
COUNTS = {ONE: 7, LINES: 12, BAG: 5}
DUMP = DumpSettings(chunk_rows=3, request_interval_s=0.05)


@pytest.fixture
def shop(database: str, sql: Sql, tmp_path: Path) -> Iterator[Running]:
    """Capture three tables, two with keys; everything is copied once."""
    sql(
        "CREATE TABLE one (id int PRIMARY KEY, v text)",
        "INSERT INTO one SELECT n, 'v' FROM generate_series(1, 7) n",
        # The key's columns are neither the first ones nor in the table's order.
        "CREATE TABLE lines (v text, line int, doc text, PRIMARY KEY (doc, line))",
        "INSERT INTO lines SELECT 'v', n, d FROM generate_series(1, 4) n, unnest('{a,b,\"c,c\"}'::text[]) d",
        "CREATE TABLE bag (v int)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag SELECT n % 2 FROM generate_series(1, 5) n",
    )
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        until(running.dumped, "the first copy")
        yield running


def asked(
    running: Running, scope: Scope, table: TableId | None = None, keys: Sequence[Key] = ()
) -> tuple[str, Counter[Row]]:
    """Carry a request out; return its name, and what selects brought for it."""
    before = running.reader.tail().complete_scn
    name = running.state.submit(scope, table, keys)
    until(lambda: request(running, name).state is RequestState.COMPLETED, "the request")
    log, selected = rows_by_origin(running.folder, before)
    assert not [row for row in log if row[1] == "+R"]
    return name, selected


def request(running: Running, name: str) -> DumpRequest:
    assert running.error is None, running.error
    found = running.state.request(name)
    assert found is not None
    return found


@req("P02", "P55")
def test_one_request_covers_every_table_and_each_tells_how_far_it_is(shop: Running) -> None:
    before = shop.reader.tail().complete_scn
    name, selected = asked(shop, Scope.ALL_TABLES)
    assert sorted(tables_in_turn(shop.folder, before)) == sorted(map(str, COUNTS))
    found = Counter(table for table, _, _ in selected.elements())
    assert found == {str(table): count for table, count in COUNTS.items()}
    progress = {p.table: p for p in shop.state.progress(name)}
    assert {table: p.rows_emitted for table, p in progress.items()} == COUNTS
    # Three chunks of seven rows, and the one select of a table without a key.
    assert (progress[ONE].chunks, progress[BAG].chunks) == (3, 1)
    ends = [p.completed_scn for p in shop.state.progress(name)]
    assert ends == sorted(set(ends))
    assert ends[0] > 0


@req("P03")
@pytest.mark.parametrize("table", COUNTS, ids=lambda table: table.name)
def test_a_request_for_one_table_selects_nothing_of_the_others(
    shop: Running, table: TableId
) -> None:
    name, selected = asked(shop, Scope.TABLE, table)
    assert {row[0] for row in selected} == {str(table)}
    assert selected.total() == COUNTS[table]
    assert [p.table for p in shop.state.progress(name)] == [table]


@req("P04", "A-14")
def test_a_request_for_keys_selects_those_and_lists_the_ones_that_are_gone(
    shop: Running, sql: Sql
) -> None:
    sql("UPDATE lines SET v = 'newer' WHERE doc = 'c,c' AND line = 2")
    # Columns in the table's order; the last of them has no row.
    keys = [("1", "a"), ("2", "c,c"), ("4", "b"), ("9", "a")]
    name, selected = asked(shop, Scope.PRIMARY_KEYS, LINES, keys)
    assert set(selected) == {
        ("public.lines", "+R", ("v", 1, "a")),
        ("public.lines", "+R", ("newer", 2, "c,c")),
        ("public.lines", "+R", ("v", 4, "b")),
    }
    assert selected.total() == 3
    assert request(shop, name).missing == (("9", "a"),)
    assert shop.content(LINES).total() == COUNTS[LINES]
