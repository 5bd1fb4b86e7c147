from __future__ import annotations

import json
import time
from hashlib import md5

import pyarrow as pa
import pytest

from headrace.errors import ChangeLogLost, ScnNotFound, SourceError
from headrace.lake import CorruptTable, Manifest, TableEntry, app_id, table_path
from headrace.model.schema import TableId
from headrace.replicator import verify as verify_module
from headrace.replicator import verify_compare, verify_tail
from headrace.replicator.replicas import DeltaReplicas
from headrace.replicator.verify import verify
from headrace.sources.postgres import PostgresSource, binary
from headrace.sources.postgres.catalog import TypeCache
from headrace.sources.postgres.chunks import PostgresChunkReader
from headrace.sources.postgres.settings import ColumnChoice
from tests.lake.handmade import txn
from tests.replicator.verify_bench import MISSING, ORIGIN_SELECT, PIPELINE, Bench
from tests.requirements import req

pytestmark = pytest.mark.postgres


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Return a source with a keyed and a keyless table, and a target that equals it."""
    bench.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, name text, total numeric(10,2))",
        "INSERT INTO orders SELECT i, 'order ' || i, i / 4.0 FROM generate_series(1, 1000) i",
        "CREATE TABLE events (kind text, at timestamp)",
        "ALTER TABLE events REPLICA IDENTITY FULL",
        "INSERT INTO events SELECT 'k' || i % 5, timestamp '2024-01-01' FROM generate_series(1, 50) i",
    )
    bench.settle("orders", "events")
    return bench


def damaged(bench: Bench, table: str, change) -> None:
    """Rewrite the target's rows as ``change`` gives them, at the frontier that stands."""
    rows = [dict(row) for row in bench.rows(table).to_pylist()]
    schema = bench.rows(table).schema
    bench.write(table, pa.Table.from_pylist(change(rows), schema=schema))
    bench.publish(bench.frontiers.scns()[-1])
    bench.cover()


def only(bench: Bench, table: str):
    """Verify one table that must differ."""
    report = bench.verify(table)
    assert not report.equal
    found = report.tables[0]
    assert found.state == "different"
    return found.missing, found.extra, found.different


def test_equal_tables_are_equal(shop):
    lines: list[str] = []
    report = shop.verify(progress=lines.append)
    assert report.equal
    orders, events = report.tables
    assert (orders.table, orders.source_rows, orders.target_rows) == ("public.orders", 1000, 1000)
    assert (events.source_rows, events.target_rows, events.state) == (50, 50, "equal")
    assert report.frontier_scn == orders.frontier_scn == shop.frontiers.scns()[-1]
    assert orders.target_version == 0
    assert "comparing public.orders" in lines
    assert len(lines) == len(set(lines))


def test_a_log_that_the_target_is_not_fed_from_is_refused(shop, tmp_path):
    """As of a file whose replicator a control plane runs, in a state folder of its own."""
    source = PostgresSource(shop.url, name=PIPELINE)
    with pytest.raises(ChangeLogLost, match="ends at SCN 0, and the target shows") as caught:
        verify(source, ["public.orders"], tmp_path / "none", DeltaReplicas(shop.lake, PIPELINE))
    assert "headrace verify NAME" in caught.value.next_step


def test_a_lost_row_is_missing(shop):
    damaged(shop, "orders", lambda rows: rows[1:])
    assert only(shop, "orders") == (1, 0, 0)


def test_a_row_too_many_is_extra(shop):
    damaged(shop, "orders", lambda rows: [*rows, rows[0] | {"id": 7777}])
    assert only(shop, "orders") == (0, 1, 0)


def test_a_row_twice_is_extra_though_its_key_has_an_equal_row(shop):
    damaged(shop, "orders", lambda rows: [*rows, rows[5]])
    assert only(shop, "orders") == (0, 1, 0)


@pytest.mark.parametrize("cell", [{"name": "Order 1"}, {"name": None}, {"total": None}])
def test_a_changed_cell_is_different(shop, cell):
    damaged(shop, "orders", lambda rows: [rows[0] | cell, *rows[1:]])
    assert only(shop, "orders") == (0, 0, 1)


def test_null_is_not_the_empty_text(shop):
    shop.execute("UPDATE orders SET name = '' WHERE id = 3")
    shop.settle("orders", "events")
    damaged(
        shop,
        "orders",
        lambda rows: [row | ({"name": None} if row["id"] == 3 else {}) for row in rows],
    )
    assert only(shop, "orders") == (0, 0, 1)


def test_copies_of_a_row_without_a_key_are_counted(shop):
    damaged(shop, "events", lambda rows: rows[1:])
    assert only(shop, "events") == (1, 0, 0)
    damaged(shop, "events", lambda rows: [*rows, rows[0], rows[0]])
    assert only(shop, "events") == (0, 2, 0)
    damaged(shop, "events", lambda rows: [rows[0] | {"kind": "k9"}, *rows[1:]])
    assert only(shop, "events") == (1, 1, 0)


def test_an_emptied_target_lacks_every_row(shop, monkeypatch):
    # Few rows at a time: what differs is looked at in several passes.
    monkeypatch.setattr(verify_compare, "_DRILL_ROWS", 100)
    damaged(shop, "orders", lambda rows: [])
    assert only(shop, "orders") == (1000, 0, 0)


def test_the_report_names_keys_by_digest_and_no_value(shop):
    secret = "a value nobody may see"
    damaged(shop, "orders", lambda rows: [rows[0] | {"name": secret}, *rows[1:]])
    value = shop.verify().to_json()
    text = json.dumps(value)
    first = shop.rows("orders").to_pylist()[0]
    assert value["tables"][0]["key_hashes"] == [
        md5(f"{len(str(first['id']))}:{first['id']}".encode()).hexdigest()
    ]
    assert (value["equal"], value["tables"][0]["different"]) == (False, 1)
    assert value["tables"][1]["equal"]
    assert secret not in text
    assert first["name"] not in text


def test_a_wrong_decoder_is_found(shop, monkeypatch):
    right = binary._timestamps

    def wrong(schema, place, cells):
        column = right(schema, place, cells)
        shifted = pa.array(column.cast(pa.int64()).to_numpy() + 3_600_000_000)
        return shifted.cast(column.type)

    # The decoder in C has a reading of its own.
    monkeypatch.setenv("HEADRACE_DECODER", "python")
    monkeypatch.setattr(binary, "_timestamps", wrong)
    shop.settle("orders", "events")
    shop.cover()
    report = shop.verify()
    assert [table.equal for table in report.tables] == [True, False]
    assert (report.tables[1].missing, report.tables[1].extra) == (50, 50)


# -- the log above the frontier -----------------------------------------------------------------


@req("D30")
@pytest.mark.parametrize("fold_rows", [250_000, 1])
def test_later_rows_of_the_log_are_laid_over_the_target(shop, monkeypatch, fold_rows):
    monkeypatch.setattr(verify_tail, "_FOLD_ROWS", fold_rows)
    frontier = shop.frontiers.scns()[-1]
    shop.transaction(
        "INSERT INTO orders VALUES (2000, 'new', 1.5); DELETE FROM orders WHERE id = 2",
        ("orders", "+I", (2000, "new", "1.50")),
        ("orders", "-D", (2, None, None)),
    )
    shop.transaction(
        "UPDATE orders SET total = 9 WHERE id = 7",
        ("orders", "=U", (7, MISSING, "9.00")),
    )
    shop.transaction(
        "UPDATE orders SET id = 3000 WHERE id = 8",
        ("orders", "-U", (8, MISSING, MISSING)),
        ("orders", "+U", (3000, MISSING, "2.00")),
    )
    shop.transaction(
        "INSERT INTO events VALUES ('k0', '2024-01-01'), ('x', NULL); "
        "DELETE FROM events WHERE ctid = (SELECT min(ctid) FROM events WHERE kind = 'k1')",
        ("events", "+I", ("k0", 1704067200000000)),
        ("events", "+I", ("x", None)),
        ("events", "-D", ("k1", 1704067200000000)),
    )
    report = shop.verify()
    assert report.equal
    assert report.frontier_scn == frontier
    assert [table.target_rows for table in report.tables] == [1000, 51]


def test_a_truncate_above_the_frontier_is_laid_over_the_target(shop):
    shop.transaction("TRUNCATE orders", ("orders", "T", ()))
    shop.transaction("INSERT INTO orders VALUES (1, 'again')", ("orders", "+I", (1, "again", None)))
    report = shop.verify()
    assert report.equal
    assert report.tables[0].target_rows == 1


def test_a_change_that_the_log_does_not_have_is_a_difference(shop):
    shop.execute("UPDATE orders SET name = 'unseen' WHERE id = 9")
    shop.cover()
    assert only(shop, "orders") == (0, 0, 1)


def test_a_row_that_the_log_has_wrong_is_a_difference(shop):
    shop.transaction(
        "UPDATE orders SET name = 'right' WHERE id = 9", ("orders", "=U", (9, "wrong", "2.25"))
    )
    shop.cover()
    assert only(shop, "orders") == (0, 0, 1)


def test_a_patch_of_a_row_that_the_target_lacks_is_a_difference(shop):
    damaged(shop, "orders", lambda rows: [row for row in rows if row["id"] != 9])
    shop.transaction(
        "UPDATE orders SET total = 1 WHERE id = 9", ("orders", "=U", (9, MISSING, "1"))
    )
    shop.cover()
    assert only(shop, "orders") == (0, 0, 1)


def test_windows_of_chunk_rows_above_the_frontier_are_left_out(shop):
    shop.logged(0, ("orders", "+R", (9, "an older state", None)), origin=ORIGIN_SELECT)
    shop.logged(0, ("events", "T", ()), ("events", "+I", ("older", None)), origin=ORIGIN_SELECT)
    assert shop.verify().equal


@req("P05", "F20")
def test_what_somebody_else_wrote_since_the_frontier_is_seen(shop):
    target, rows = shop.targets["orders"], shop.rows("orders")
    app = app_id(PIPELINE, "public.orders")
    scn = shop.logged(0)
    target.replace(rows, txn(app, scn))
    shop.publish(scn)
    assert shop.verify("orders").equal
    target.replace(rows.slice(1))
    (report,) = shop.verify("orders").tables
    assert (report.missing, report.equal, report.target_version) == (1, False, target.version)
    # A later batch of ours is no part of the frontier.
    target.replace(rows.slice(2), txn(app, scn + 1))
    (report,) = shop.verify("orders").tables
    assert (report.missing, report.target_version) == (1, target.version - 1)


def test_commits_during_the_comparison_change_nothing(shop):
    def commit(line: str) -> None:
        if line == "comparing public.orders":
            scn = shop.transaction("UPDATE orders SET name = 'later'", *later, ("events", "T", ()))
            shop.execute("DELETE FROM events")
            shop.copy("orders", "events")
            shop.publish(scn)

    later = [("orders", "=U", (i, "later", f"{i / 4:.2f}")) for i in range(1, 1001)]
    assert shop.verify(progress=commit).equal
    assert shop.rows("orders").to_pylist()[0]["name"] == "later"
    shop.cover()
    assert shop.verify().equal


def test_old_shapes_of_rows_are_read_as_the_newest(shop):
    shop.execute("ALTER TABLE orders ADD COLUMN note text")
    shop.transaction(
        "UPDATE orders SET note = 'n' WHERE id = 4",
        ("orders", "=U", (4, "order 4", "1.00", "n")),
    )
    shop.execute("ALTER TABLE orders ALTER COLUMN total TYPE numeric(14,4)")
    shop.execute("ALTER TABLE orders ALTER COLUMN id TYPE bigint")
    assert shop.verify().equal


# -- waiting ------------------------------------------------------------------------------------


def test_a_log_that_ends_too_early_makes_unequal_tables_behind(shop):
    shop.execute("UPDATE orders SET name = 'not logged yet' WHERE id = 9")
    report = shop.verify(timeout_s=0.5)
    assert not report.equal
    assert [table.state for table in report.tables] == ["behind", "equal"]


def test_a_log_that_nobody_writes_is_compared_as_it_is_at_once(shop, monkeypatch):
    monkeypatch.setattr(verify_module, "_QUIET_S", 3_600.0)
    lines: list[str] = []
    shop.execute("CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    assert shop.verify(progress=lines.append, fed=lambda: False).equal
    assert "waiting for the change log to reach the source's snapshot" not in lines
    # Whoever writes it may be about to.
    assert shop.verify(progress=lines.append, timeout_s=0.5).equal
    assert "waiting for the change log to reach the source's snapshot" in lines


def test_what_nobody_brings_is_not_waited_for(shop):
    lines: list[str] = []
    shop.execute("CREATE TABLE other (id int PRIMARY KEY)")
    shop.execute("UPDATE orders SET name = 'not logged' WHERE id = 9")
    begun = time.monotonic()
    report = shop.verify(
        "orders", "other", progress=lines.append, timeout_s=600.0, fed=lambda: False
    )
    assert time.monotonic() - begun < 60.0
    assert [table.state for table in report.tables] == ["behind", "copying"]
    assert lines[0].startswith("not waiting for the dump of public.other: nobody runs")
    # Somebody who runs may complete it.
    lines.clear()
    shop.verify("other", progress=lines.append, timeout_s=0.5)
    assert lines[0] == "waiting for the dump of public.other"


def test_rows_that_reach_the_log_late_are_waited_for(shop):
    with shop.connection.transaction():
        shop.execute("UPDATE orders SET name = 'late' WHERE id = 9")
        row = shop.connection.execute(b"SELECT pg_current_xact_id()::text").fetchone()
    written: list[int] = []

    def write(line: str) -> None:
        if line.startswith("comparing") and not written:
            written.append(shop.logged(int(row[0]), ("orders", "=U", (9, "late", "2.25"))))
            shop.cover()

    report = shop.verify(progress=write)
    assert written
    assert report.equal


def test_a_table_that_is_copying_is_waited_for(shop):
    scn = shop.frontiers.scns()[-1]
    shop.publish(scn, "copying")
    lines = []

    def complete(line: str) -> None:
        lines.append(line)
        if line.startswith("waiting for the dump"):
            shop.publish(scn)

    assert shop.verify(progress=complete).equal
    assert lines[0] == "waiting for the dump of public.orders, public.events"


def test_a_table_that_stays_copying_is_reported_and_the_others_compared(shop):
    shop.execute("CREATE TABLE late (id int PRIMARY KEY)")
    report = shop.verify("late", "orders", timeout_s=0.4)
    assert not report.equal
    assert [table.state for table in report.tables] == ["copying", "equal"]
    assert report.tables[0].differing_keys == 0


def test_without_any_frontier_every_table_is_copying(bench):
    bench.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    report = bench.verify("orders", timeout_s=0.3)
    assert [table.state for table in report.tables] == ["copying"]
    assert report.frontier_scn is None
    assert report.to_json()["frontier_scn"] is None


def test_a_failing_table_is_compared_at_its_own_position(shop):
    before = shop.frontiers.scns()[-1]
    scn = shop.transaction(
        "UPDATE orders SET name = 'x' WHERE id = 5", ("orders", "=U", (5, "x", "1.25"))
    )
    shop.publish(scn, "failing", applied=before)
    report = shop.verify()
    assert report.equal
    assert report.tables[0].frontier_scn == before
    assert report.frontier_scn == scn


def test_a_table_that_fails_before_its_dump_was_applied_is_still_copying(shop):
    before = shop.frontiers.latest()
    entries = {
        name: TableEntry(entry.version, before.scn - 5, before.scn - 1, "failing")
        for name, entry in before.tables.items()
    }
    shop.frontiers.write(Manifest(before.scn, 0, entries, 0))
    report = shop.verify(timeout_s=0.3)
    assert [table.state for table in report.tables] == ["copying", "copying"]


def test_a_table_that_never_had_a_row_may_have_no_files(shop):
    shop.execute("CREATE TABLE empty (id int PRIMARY KEY)")
    newest = shop.frontiers.latest()
    entry = TableEntry(-1, newest.scn, newest.scn, "live")
    shop.frontiers.write(Manifest(newest.scn, 0, {**newest.tables, "public.empty": entry}, 0))
    assert shop.verify("empty").equal


# -- what stands in the way -----------------------------------------------------------------------


def test_a_table_that_the_source_lacks_is_named(shop):
    shop.execute("DROP TABLE orders")
    with pytest.raises(SourceError, match=r"public\.orders") as caught:
        shop.verify()
    assert caught.value.next_step


def test_a_target_file_that_is_gone_is_named(shop):
    folder = table_path(shop.lake, TableId("public", "orders"))
    next(folder.glob("*.parquet")).unlink()
    with pytest.raises(CorruptTable, match="orders"):
        shop.verify()


def test_a_log_that_no_longer_reaches_back_to_the_frontier_is_named(shop):
    before = shop.frontiers.scns()[-1]
    for _ in range(3):
        # More than a segment each.
        wide = [("orders", "=U", (i, "x" * 1000, "1.00")) for i in range(1, 1001)]
        scn = shop.transaction("UPDATE orders SET name = repeat('x', 1000), total = 1", *wide)
    shop.log.retain()
    assert shop.log.tail.oldest_scn > before
    shop.publish(scn, "failing", applied=before)
    with pytest.raises(ScnNotFound):
        shop.verify()


def test_columns_that_the_publication_leaves_out_are_not_compared(bench):
    bench.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, secret text, total int)",
        "INSERT INTO orders SELECT i, 's' || i, i FROM generate_series(1, 20) i",
        "CREATE PUBLICATION part FOR TABLE orders (id, total)",
    )
    source = PostgresSource(bench.url, publication="part")
    bench.reader = PostgresChunkReader(source.settings, TypeCache())
    bench.settle("orders")
    bench.cover()
    names = ("public.orders",)
    report = verify(source, names, bench.changelog, DeltaReplicas(bench.lake, PIPELINE), 20.0)
    assert report.equal
    bench.execute("UPDATE orders SET secret = 'other'")
    assert verify(source, names, bench.changelog, DeltaReplicas(bench.lake, PIPELINE), 20.0).equal
    bench.execute("UPDATE orders SET total = 0 WHERE id = 1")
    assert not verify(
        source, names, bench.changelog, DeltaReplicas(bench.lake, PIPELINE), 20.0
    ).equal


def test_columns_that_the_configuration_leaves_out_are_not_compared(bench):
    bench.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, secret text, total int)",
        "INSERT INTO orders SELECT i, 's' || i, i FROM generate_series(1, 20) i",
    )
    choice = ColumnChoice(TableId("public", "orders"), exclude=frozenset({"secret"}))
    source = PostgresSource(bench.url, columns=(choice,))
    bench.reader = PostgresChunkReader(source.settings, TypeCache())
    bench.settle("orders")
    bench.cover()
    report = verify(
        source,
        ("public.orders",),
        bench.changelog,
        DeltaReplicas(bench.lake, PIPELINE),
        20.0,
    )
    assert report.equal
