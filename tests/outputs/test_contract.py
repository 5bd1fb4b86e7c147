"""What every output promises: after failures and rollbacks anywhere nothing is missing, and the newest came last."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.client import Batch, Consumer, Event
from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.lake.sql.session import Warehouse
from headrace.lake.sql.sqlite_file import SqliteWarehouse
from headrace.outputs import HttpOutput, NdjsonOutput, Webhook, WebhookSettings
from headrace.outputs.sql import SqlOutput
from headrace.testing.notation import change_batch
from headrace.wire.place import Place
from tests.lake.sql.warehouses import content, counted
from tests.outputs.receiver import Receiver, receiving
from tests.outputs.windows import TABLE, change, insert, window_of
from tests.requirements import req

Rows = dict[int, str]


class Subject(NamedTuple):
    """An output, and what whoever reads it holds at the end."""

    output: Consumer
    shown: Callable[[], Rows]


def followed(changes: list[dict[str, Any]]) -> Rows:
    """Return what a reader holds that follows changes as they came."""
    rows: Rows = {}
    for said in changes:
        if said["op"] == "-D":
            rows.pop(said["row"]["k"], None)
        else:
            rows[said["row"]["k"]] = said["row"]["c1"]
    return rows


def ndjson(folder: Path, _: Receiver) -> Subject:
    path = folder / "changes.ndjson"

    def shown() -> Rows:
        told = [json.loads(line) for line in path.read_bytes().splitlines()]
        return followed([said for said in told if "op" in said])

    return Subject(NdjsonOutput(path), shown)


def webhook(_: Path, receiver: Receiver) -> Subject:
    settings = WebhookSettings(receiver.url, retries=1)
    return Subject(
        HttpOutput(Webhook(settings, sleep=lambda _: None), most_changes=2),
        lambda: followed([said for call in receiver.taken for said in call["changes"]]),
    )


def duckdb_file(folder: Path, _: Receiver) -> Subject:
    return database(DuckdbWarehouse(folder / "copy.duckdb"))


def sqlite_file(folder: Path, _: Receiver) -> Subject:
    return database(SqliteWarehouse(folder / "copy.sqlite"))


def database(warehouse: Warehouse) -> Subject:
    def shown() -> Rows:
        rows = counted(content(warehouse, TABLE, "copy"))
        return {int(str(row[0])): str(row[1]) for row in rows}

    return Subject(SqlOutput(warehouse, "copy"), shown)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def tell(output: Consumer, scn: int, events: list[Event], *, stop: int | None) -> None:
    """Tell a window, events or batches as the output takes them; only the first ``stop`` changes when it is broken."""
    output.on_start_window(window_of(scn))
    told = events[:stop]
    if type(output).on_data_batch is Consumer.on_data_batch:
        for event in told:
            output.on_data_event(event)
    elif told:
        rows = [(e.scn, e.ord, e.op, (e.row["k"], e.row.get("c1", "?"))) for e in told]
        output.on_data_batch(Batch(TABLE.table, TABLE, change_batch(TABLE, rows)))
    if stop is None:
        output.on_end_window(window_of(scn))


def random_windows(rng: random.Random, count: int) -> tuple[list[list[Event]], Rows]:
    """Return windows of whole changes, and the rows at their end."""
    rows: Rows = {}
    windows = []
    for scn in range(1, count + 1):
        events: list[Event] = []
        for order in range(rng.randrange(5)):
            key = rng.randrange(6)
            if key not in rows:
                rows[key] = f"i{scn}.{order}"
                events.append(insert(scn, order, key, rows[key]))
            elif rng.random() < 0.4:
                del rows[key]
                events.append(change(scn, order, "-D", k=key))
            else:
                rows[key] = f"u{scn}.{order}"
                events.append(change(scn, order, "=U", k=key, c1=rows[key]))
        windows.append(events)
    return windows, rows


@req("P30")
@pytest.mark.parametrize(
    "make", [ndjson, webhook, duckdb_file, sqlite_file], ids=lambda make: make.__name__
)
def test_nothing_is_missing_and_the_newest_came_last_whatever_failed(make, tmp_path, receiver):
    rng = random.Random(7)
    windows, rows = random_windows(rng, 40)
    output, shown = make(tmp_path, receiver)
    output.on_start()
    at = stored = 0
    seen: Counter[str] = Counter()
    while at < len(windows):
        broken = rng.random() < 0.2
        tell(output, at + 1, windows[at], stop=rng.randrange(3) if broken else None)
        at += 1
        if broken:
            seen["rollbacks"] += 1
            output.on_rollback(Place(stored))
            at = stored
        elif rng.random() < 0.5:
            assert output.on_checkpoint(Place(at)) is None
            stored = at
            if rng.random() < 0.2:
                seen["restarts"] += 1
                output.on_stop()
                output.on_start()
    assert output.on_checkpoint(Place(at)) is None
    output.on_stop()
    assert min(seen["rollbacks"], seen["restarts"]) > 1
    assert shown() == rows
