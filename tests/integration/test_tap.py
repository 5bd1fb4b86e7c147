"""H20: the tap of a real PostgreSQL under writes: every line fits its schema, and the lines tell the change log."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import ORIGIN_LOG
from headrace.observe import failpoints
from headrace.observe.tap.lines import Envelope
from headrace.observe.tap.reading import follow, parse
from headrace.observe.tap.recorder import Recorder
from headrace.observe.tap.recording import RecordingTap
from headrace.observe.tap.teaching import Bookmark, TeachingTap
from headrace.replicator import config_file, runner
from headrace.replicator.paths import StatePaths
from headrace.replicator.tap import tap_file
from headrace.sources.postgres import PostgresSource
from headrace.state.store import Scope
from headrace.watermark.settings import DumpSettings
from tests.integration.running import running_capture
from tests.observe.json_schema import assert_valid
from tests.observe.taps import check_windows
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


OPS = {"+I": "INSERT", "+R": "INSERT", "=U": "UPDATE", "+U": "UPDATE", "-D": "DELETE"}

Windows = dict[tuple[str, str], list[tuple[str, str, str]]]


def windows_of_log(folder: Path) -> Windows:
    """Return operation, table and key of every row, by SCN and origin, out of the change log itself."""
    found: Windows = {}
    for block in ChangeLogReader(folder / "changelog").blocks(0):
        origins = {
            int(entry["scn"]): "LOG" if entry["origin"] == ORIGIN_LOG else "SELECT"
            for entry in block.index
        }
        rows = []
        for body in block.bodies:
            names = {"orders": ["id"], "items": ["order_id", "line"], "events": []}[body.table.name]
            for row in body.batch.to_pylist():
                key = ",".join(str(row[name]) for name in names)
                rows.append((row["_scn"], row["_ord"], row["_op"], str(body.table), key))
        for scn, _, op, table, key in sorted(rows):
            if op != "-U":
                place = (str(scn), origins[scn])
                found.setdefault(place, []).append((OPS[op], table, key))
    return found


def windows_of_tap(events: list[dict[str, Any]]) -> Windows:
    found: Windows = {}
    for event in events:
        if event["kind"] == "sink.event":
            row = (event["op"], event["table"], event["pk"])
            found.setdefault((event["lsn"], event["origin"]), []).append(row)
    return found


@req("H20", "F17", "N15", "H02")
def test_every_line_is_valid_and_the_lines_tell_the_windows_of_the_change_log(
    database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as shop:
        for statement in (
            "CREATE TABLE orders (id int PRIMARY KEY, note text)",
            "CREATE TABLE items (order_id int, line text, n int, PRIMARY KEY (order_id, line))",
            "CREATE TABLE events (kind text)",
            "ALTER TABLE events REPLICA IDENTITY FULL",
            "ALTER TABLE items REPLICA IDENTITY FULL",
            "INSERT INTO orders SELECT n, 'v' FROM generate_series(1, 300) n",
            "INSERT INTO items SELECT n, chr(97 + n % 3), n FROM generate_series(1, 100) n",
            "INSERT INTO events SELECT 'k' || n % 5 FROM generate_series(1, 20) n",
        ):
            shop.execute(statement.encode())
        path = tmp_path / "tap" / "tap.ndjson"
        tap = RecordingTap(Recorder(path, 64 << 20), Envelope(), capacity=1_000_000)
        source = PostgresSource(database, ["public.*"])
        with contextlib.closing(tap):
            dump = DumpSettings(chunk_rows=25, delay_s=0.01)

            def meet() -> None:
                # Of each chunk one row changes behind its select and before its high mark.
                with psycopg.connect(database, autocommit=True) as other:
                    other.execute(b"UPDATE orders SET note = note || '!' WHERE id % 25 = 0")

            failpoints.arm("window.after_select", meet)
            with running_capture(source, tmp_path, dump, tap) as running:
                for number in range(1_000):
                    shop.execute(
                        b"UPDATE orders SET note = %s WHERE id BETWEEN %s AND %s",
                        (f"n{number}", number * 7 % 300, number * 7 % 300 + 6),
                    )
                    shop.execute(
                        b"UPDATE items SET line = line || 'x' WHERE order_id = %s", (number % 100,)
                    )
                    shop.execute(b"INSERT INTO events VALUES (%s)", (f"k{number % 5}",))
                    if running.dumped():
                        break
                running.state.submit(
                    Scope.PRIMARY_KEYS, source.tables()[-1].table, [("7",), ("9999",)]
                )
                shop.execute(b"TRUNCATE events")
                shop.execute(b"ALTER TABLE orders ADD COLUMN more int")
                shop.execute(b"INSERT INTO orders VALUES (1000, 'last', 1)")
                until(running.dumped, "the keys")
                last = shop.execute(
                    b"SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
                ).fetchone()
                assert last is not None
                running.wait_for_scn(int(last[0]))
        assert tap.dropped == 0
    lines = list(follow(path))
    assert_valid(lines)
    events = [json.loads(line) for line in lines]
    assert windows_of_tap(events) == windows_of_log(tmp_path)
    assert check_windows(events) >= 300 / 25 + 100 / 25 + 1 + 1
    kinds = Counter(event["kind"] for event in events)
    assert kinds["chunk.collision"] >= 300 / 25
    assert sum(event["not_seen"] for event in events if event["kind"] == "chunk.visibility") > 0
    assert kinds["table.completed"] == 3
    assert kinds["table.truncated"] == 1
    assert kinds["checkpoint.advanced"] > 3
    assert kinds["schema.changed"] > 0
    modes = {event["mode"] for event in events if event["kind"] == "chunk.selected"}
    assert modes == {"range", "table", "keys"}
    assert all("from_pk" in e for e in events if e["kind"] == "cdc" and e["table"] == "public.items"
               and e["op"] == "UPDATE")  # fmt: skip
    states = [event["state"] for event in events if event["kind"] == "request.transition"]
    assert states[-1] == "COMPLETED"
    assert {event["run_id"] for event in events} == {events[0]["run_id"]}


@req("H20", "H21")
def test_a_teaching_capture_takes_each_step_when_it_was_read(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as shop:
        shop.execute(b"CREATE TABLE orders (id int PRIMARY KEY)")
        shop.execute(b"INSERT INTO orders SELECT generate_series(1, 5)")
    path, stop = tmp_path / "tap.ndjson", threading.Event()
    bookmark = Bookmark(tmp_path / "bookmark")
    with contextlib.closing(Recorder(path, 1 << 20)) as recorder:
        tap = TeachingTap(recorder, Envelope(), bookmark.get, stop.is_set)
        source = PostgresSource(database, ["public.*"])
        with running_capture(source, tmp_path, DumpSettings(), tap, stop) as running:
            read = 0
            for text in follow(path, stop=lambda: running.error is not None):
                line = parse(text)
                assert line is not None
                if line["seq"] is None:
                    continue
                assert line["seq"] == read
                # Nothing is behind the line that waits for us.
                assert len(path.read_text().splitlines()) >= read + 1
                assert json.loads(path.read_text().splitlines()[-1])["seq"] in (read, None)
                read += 1
                bookmark.put(line["run_id"], line["seq"])
                if line["kind"] == "table.completed":
                    break
            # Nobody reads any more, and it ends all the same.
            stop.set()
    assert_valid(list(follow(path)))


@req("H20")
def test_a_configured_capture_tells_hashed_keys_to_its_owner_alone(
    database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as shop:
        shop.execute(b"CREATE TABLE people (mail text PRIMARY KEY, seen int)")
        shop.execute(b"INSERT INTO people SELECT 'ann' || n, n FROM generate_series(1, 50) n")
        file = tmp_path / "shop.yaml"
        file.write_text(
            "name: shop\n"
            f"source: {{type: postgres, url: '{database}', tables: ['public.*']}}\n"
            "target: {type: delta, path: ./lake}\n"
            "dump: {chunk_rows: 10}\n"
            "tap: {enabled: true, keys: hashed}\n"
        )
        config = config_file.load(file)
        paths, stop = StatePaths.of(config), threading.Event()
        paths.create()
        reports: list[dict[str, Any]] = []
        with runner.capture(config, paths, stop, reports.append) as capture:
            worker = threading.Thread(target=capture.run, args=(stop,))
            worker.start()
            shop.execute(b"UPDATE people SET mail = 'ann-moved' WHERE mail = 'ann7'")
            path = tap_file(paths.tap)
            # The copy may be done before the key moves.
            for told in ('"table.completed"', '"UPDATE"'):
                until(lambda told=told: told in path.read_text(), told)  # type: ignore[misc]
            stop.set()
            worker.join(60)
        PostgresSource(database, ["public.*"], name="shop").drop()
    lines = list(follow(path))
    assert_valid(lines)
    assert b"ann" not in path.read_bytes()
    events = [json.loads(line) for line in lines]
    assert check_windows(events) >= 5
    assert events[0]["keys"] == "hashed"
    (moved,) = (e for e in events if e["kind"] == "cdc" and e["op"] == "UPDATE")
    assert moved["from_pk"] != moved["pk"]
    assert {event["source_id"] for event in events} == {"shop"}
    assert reports[-1]["tap_dropped"] == 0
