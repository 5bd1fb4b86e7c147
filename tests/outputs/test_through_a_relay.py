"""Outputs behind a real relay leave what the source has, filtered and not."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from headrace.client import Backoff, Result, Settings, Subscription
from headrace.lake.sql.session import Warehouse
from headrace.model.schema import TableSchema
from headrace.outputs import HttpOutput, NdjsonOutput, WebhookSettings
from headrace.outputs.sql import SqlOutput
from headrace.sources.scripted.database import ScriptedDatabase
from headrace.testing.histories import BAG, TABLES, WHOLE, RandomHistory
from headrace.wire.place import Place
from tests.changelog.windows import TABLE as SMALL
from tests.changelog.windows import window
from tests.client.conftest import log, relay
from tests.client.logs import LogFolder, random_blocks
from tests.lake.sql.warehouses import content, counted, made
from tests.outputs.receiver import receiving

pytest.importorskip("duckdb", reason="installed without the extra duckdb")

__all__ = ["log", "relay"]

SEED = 5
STEPS = 250
OFTEN = Settings(checkpoint_every=20)


@pytest.fixture
def top(log: LogFolder) -> int:
    """Put a random history into the log, and return its end."""
    blocks = random_blocks(SEED)
    log.append(*blocks)
    return blocks[-1].covered_scn


@pytest.fixture(params=["duckdb", "sqlite"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Return an empty file of each kind."""
    return made(request.param, request, tmp_path)


def truth(schema: TableSchema) -> Counter[tuple[object, ...]]:
    """Return what the same history leaves at its source."""
    database = ScriptedDatabase(TABLES)
    history = RandomHistory(database, random.Random(SEED), Counter())
    for _ in range(STEPS):
        history.step()
    history.settle()
    return +database.state_at(database.log[-1].scn)[schema.table]


def test_a_database_has_the_sources_rows(relay: str, top: int, warehouse: Warehouse) -> None:
    output = SqlOutput(warehouse, "copy")
    Subscription(relay, "shop", output, output, upto=top, settings=OFTEN).run()
    for schema in (WHOLE, BAG):
        assert counted(content(warehouse, schema, "copy")) == truth(schema)
    place = SqlOutput(warehouse, "copy").load()
    assert place is not None
    assert place.scn == top


def test_a_condition_leaves_its_rows_alone(relay: str, top: int, warehouse: Warehouse) -> None:
    output = SqlOutput(warehouse, "copy")
    wanted = {"tables": ["public.whole"], "where": {"public.whole": "k > 5"}}
    Subscription(relay, "shop", output, output, filter=wanted, upto=top, settings=OFTEN).run()
    kept = Counter({row: n for row, n in truth(WHOLE).items() if int(str(row[0])) > 5})
    assert kept
    assert counted(content(warehouse, WHOLE, "copy")) == kept


def test_batches_say_which_columns_a_filter_left(
    relay: str, top: int, warehouse: Warehouse
) -> None:
    output = SqlOutput(warehouse, "copy")
    wanted = {"tables": ["public.whole"], "columns": {"public.whole": ["k"]}}
    Subscription(
        relay,
        "shop",
        output,
        output,
        filter=wanted,
        upto=top,
        settings=OFTEN,
        on_suspended="raise",
    ).run()
    found = counted(content(warehouse, WHOLE, "copy"))
    assert found == Counter({row[:1]: n for row, n in truth(WHOLE).items()})


def test_lines_hold_the_columns_that_were_wanted(relay: str, top: int, tmp_path: Path) -> None:
    lines = NdjsonOutput(tmp_path / "changes.ndjson")
    wanted = {"tables": ["public.whole"], "columns": {"public.whole": ["k"]}}
    Subscription(
        relay, "shop", lines, tmp_path / "place", filter=wanted, upto=top, settings=OFTEN
    ).run()
    told = [json.loads(line) for line in (tmp_path / "changes.ndjson").read_bytes().splitlines()]
    rows = [line["row"] for line in told if line.get("op") in ("+I", "+U", "=U")]
    assert rows
    assert all(set(row) == {"k"} for row in rows)


@pytest.mark.parametrize("across", [False, True])
def test_workers_neither_lose_nor_mix_what_goes_out_in_order(
    log: LogFolder, relay: str, tmp_path: Path, across: bool
) -> None:
    """A webhook knows a call by its first change, and what waits for the next one waits in one place."""
    log.register(SMALL)
    log.append(*(window(scn, 40) for scn in range(1, 6)))
    wanted = [(scn, order) for scn in range(1, 6) for order in range(40)]
    settings = Settings(workers=4, across_windows=across)
    with receiving() as receiver:
        calls = HttpOutput(WebhookSettings(receiver.url), most_changes=3)
        Subscription(relay, "shop", calls, upto=5, settings=settings).run()
        called = [(one["scn"], one["ord"]) for body in receiver.taken for one in body["changes"]]
    assert called == wanted
    lines = NdjsonOutput(tmp_path / "changes.ndjson")
    Subscription(relay, "shop", lines, upto=5, settings=settings).run()
    told = [json.loads(line) for line in (tmp_path / "changes.ndjson").read_bytes().splitlines()]
    assert [(one["scn"], one["ord"]) for one in told if "op" in one] == wanted


@pytest.mark.parametrize("rotate_bytes", [None, 2000])
def test_a_checkpoint_that_took_too_long_doubles_no_line(
    relay: str, top: int, tmp_path: Path, rotate_bytes: int | None
) -> None:
    late = [0.0]

    class Slow(NdjsonOutput):
        """Each third of its checkpoints takes longer than it may, by the subscription's clock."""

        checkpoints = 0

        def on_checkpoint(self, place: Place) -> Result | None:
            answer = super().on_checkpoint(place)
            self.checkpoints += 1
            if self.checkpoints % 3 == 0:
                late[0] += 0.3
            return answer

    output = Slow(tmp_path / "changes.ndjson", rotate_bytes=rotate_bytes)
    settings = Settings(checkpoint_every=20, budget_s=0.25, retry=Backoff(0.01))
    subscription = Subscription(
        relay,
        "shop",
        output,
        tmp_path / "place",
        upto=top,
        settings=settings,
        clock=lambda: time.monotonic() + late[0],
    )
    subscription.run()
    assert output.checkpoints > 5
    files = sorted(tmp_path.glob("changes*"), key=lambda file: (file.stem == "changes", file.name))
    assert (len(files) > 1) is (rotate_bytes is not None)
    told = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    ends = [line["scn"] for line in told if "end" in line]
    assert ends == sorted(set(ends))
    places = [(line["scn"], line["ord"]) for line in told if "ord" in line]
    assert len(places) == len(set(places))
