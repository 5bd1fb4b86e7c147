"""The examples do what the page about consuming says, on real databases."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from headrace.client import Consumer, Event, NoCheckpoints, Subscription
from tests.client.conftest import QUICK, running
from tests.examples.conftest import EXAMPLES, Place, busy, example
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

ROOT = EXAMPLES.parent
PAGES = {name: ROOT / "docs" / f"{name}.md" for name in ("consuming", "groups")}


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


class Told(Consumer):
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_data_event(self, event: Event) -> None:
        self.events.append(event)


def told(place: Place) -> list[Event]:
    """Return every change of the shop."""
    consumer = Told()
    Subscription(place.relay, "shop", consumer, upto=place.upto["shop"], settings=QUICK).run()
    return consumer.events


@req("P31")
def test_the_consumer_of_the_readme_has_ten_lines_and_prints_every_change(place, tmp_path):
    text = (EXAMPLES / "ten_lines.py").read_text(encoding="utf-8")
    assert text in blocks(ROOT / "README.md")
    assert len(text.splitlines()) <= 10
    program = tmp_path / "ten_lines.py"
    program.write_text(text.replace("http://127.0.0.1:7070", place.relay))
    expected = [f"{event.op} {event.table} {event.row}" for event in told(place)]
    with (tmp_path / "printed").open("w") as printed:
        process = subprocess.Popen([sys.executable, program.name], stdout=printed, cwd=tmp_path)
        try:
            until(
                lambda: len((tmp_path / "printed").read_text().splitlines()) >= len(expected),
                "every change",
            )
        finally:
            process.kill()
            process.wait()
    assert (tmp_path / "printed").read_text().splitlines() == expected
    assert (tmp_path / "printed.place").exists()


@pytest.mark.parametrize(("page", "least"), [("consuming", 6), ("groups", 2)])
def test_every_program_of_a_page_is_a_piece_of_an_example(page, least):
    programs = [path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")]
    found = blocks(PAGES[page])
    assert len(found) >= least
    for block in found:
        # Pieces are parted by an ellipsis.
        for piece in re.split(r"^ *# …\n", block, flags=re.M):
            assert any(piece.strip("\n") in program for program in programs), piece


def test_every_example_is_named_by_a_page():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.values())
    for path in EXAMPLES.glob("*.py"):
        assert f"examples/{path.name}" in text


@req("D91")
def test_asking_for_windows_gives_the_same_changes(place):
    found = example("windows").changes_per_table(
        Subscription(place.relay, "shop", None, NoCheckpoints(), upto=place.upto["shop"])
    )
    assert found == {"public.orders": len(told(place))}


@req("N30")
def test_batches_add_up_to_what_events_do(place):
    turnover = example("windows").Turnover()
    Subscription(place.relay, "shop", turnover, upto=place.upto["shop"]).run()
    expected = sum(event.row["total"] for event in told(place) if event.op in ("+I", "+R"))
    assert turnover.total == expected > 0


@req("D98", "T15")
@pytest.mark.parametrize("seed", range(3))
def test_changes_are_counted_exactly_once_whatever_fails(place, tmp_path, seed):
    module = example("exactly_once")
    rng = random.Random(seed)
    failures = []

    class Failing(module.Counted):  # type: ignore[misc, name-defined]
        def on_end_window(self, window):
            before, after = rng.random() < 0.1, rng.random() < 0.1
            if before:
                failures.append("before")
                raise RuntimeError
            answer = super().on_end_window(window)
            if after:
                failures.append("after")
                raise RuntimeError
            return answer

    settings = replace(QUICK, retries=100)
    consumer = Failing(f"sqlite:///{tmp_path}/counts.db")
    store = consumer.checkpoints.store

    def failing_store(at, **more):
        if consumer.open and rng.random() < 0.1:
            failures.append("between")
            raise RuntimeError
        store(at, **more)

    consumer.checkpoints.store = failing_store
    Subscription(
        place.relay,
        "shop",
        consumer,
        consumer.checkpoints,
        upto=place.upto["shop"],
        settings=settings,
    ).run()
    assert {"before", "between", "after"} <= set(failures)
    with consumer.engine.connect() as connection:
        found = dict(map(tuple, connection.execute(sa.select(module.COUNTS))))
    assert found == {"public.orders": len(told(place))}


def test_the_command_runs_the_exactly_once_example_and_counts_nothing_twice(place, tmp_path):
    def run() -> None:
        words = ("consume", "exactly_once:Counted", place.relay, "--source", "shop")
        subprocess.run(
            [sys.executable, "-m", "headrace.cli.main", *words, "--upto", str(place.upto["shop"])],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    (tmp_path / "exactly_once.py").write_text((EXAMPLES / "exactly_once.py").read_text())
    run()
    run()
    with sa.create_engine(f"sqlite:///{tmp_path}/counts.db").connect() as connection:
        found = connection.execute(sa.text("SELECT changes FROM counts")).scalars().all()
    assert found == [len(told(place))]


def test_a_part_of_the_stream_holds_the_rows_that_meet_the_condition(place):
    module = example("part")
    paid = module.Paid()
    module.paid_orders(place.relay, paid, upto=place.upto["shop"]).run()
    query = "SELECT id, total, status FROM orders WHERE status = 'paid' AND total >= 10"
    expected = {row[0]: row for row in place.rows("shop", query)}
    assert expected
    assert all(isinstance(order.total, Decimal) for order in paid.orders.values())
    assert {
        key: (order.id, order.total, order.status) for key, order in paid.orders.items()
    } == expected


@req("P30")
def test_an_output_in_a_form_of_ones_own(place, tmp_path):
    file = tmp_path / "keys"
    example("keys_only").keys_into(str(file), place.relay, place.upto["shop"]).run()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines == [
        {"table": "public.orders", "key": list(event.key), "op": event.op} for event in told(place)
    ]


def test_rewinding_tells_again_what_came_since(place):
    consumer = Told()
    subscription = Subscription(place.relay, "shop", consumer, settings=QUICK)
    expected = told(place)
    with running(subscription):
        until(lambda: len(consumer.events) >= len(expected), "everything")
        example("again").told_again(subscription, hours=24)
        until(lambda: len(consumer.events) >= 2 * len(expected), "everything once more")
    # Nothing is older than a day.
    assert consumer.events == 2 * expected


def search(place: Place) -> list[tuple[Any, ...]]:
    """Return what the joined table has to hold."""
    names: dict[Any, Any] = dict(place.rows("crm", "SELECT id, name FROM customers"))  # type: ignore[arg-type]
    orders = place.rows("shop", "SELECT id, customer_id, total FROM orders")
    return sorted((key, who, names.get(who), total) for key, who, total in orders)


@req("P68")
@pytest.mark.parametrize("first", ["shop", "crm", "both"])
def test_two_databases_become_one_table_whichever_comes_first(place, first):
    module = example("two_databases")
    name = f"search_{first}"
    url = place.server.create_database(name)
    engine = sa.create_engine(f"postgresql+psycopg{url.removeprefix('postgresql')}")
    try:
        for round_ in range(2):
            # The second time with what changed since, from the places of the first.
            if round_:
                busy(place, len(first), 60)
                place.catch_up()
            shop, crm = module.subscriptions(place.relay, engine, **place.upto)
            if first == "both":
                threads = [threading.Thread(target=side.run) for side in (shop, crm)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(120)
            else:
                for side in (shop, crm) if first == "shop" else (crm, shop):
                    side.run()
            with engine.connect() as connection:
                found = [tuple(row) for row in connection.execute(sa.select(module.SEARCH))]
            assert sorted(found) == search(place) != []
    finally:
        engine.dispose()
        place.server.drop_database(name)
