"""The programs of the page about groups, run as it says: as often as one likes, and resized meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from headrace.client import Event, Group
from tests.examples.conftest import EXAMPLES, Place, example
from tests.examples.test_examples import told
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]


def placed(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def started(program: Path, printed: Path) -> subprocess.Popen[bytes]:
    with printed.open("w") as output:
        return subprocess.Popen([sys.executable, program.name], stdout=output, cwd=program.parent)


@req("D10")
def test_two_processes_of_the_first_program_print_every_change_between_them(
    place: Place, tmp_path: Path
) -> None:
    database = place.server.create_database("example_mail")
    text = (EXAMPLES / "group.py").read_text(encoding="utf-8")
    text = text.replace("http://relay:7070", place.relay)
    program = tmp_path / "group.py"
    program.write_text(text.replace("postgresql+psycopg://app@db/app", placed(database)))
    printed = [tmp_path / name for name in ("one", "other")]

    def lines() -> list[str]:
        return [one for file in printed for one in file.read_text().splitlines()]

    events = told(place)
    stays = Counter(line(event.key, event.op) for event in events if not is_move(event))

    try:
        with ExitStack() as stack:
            for file in printed:
                process = started(program, file)
                stack.callback(process.wait)
                stack.callback(process.kill)
            until(lambda: Counter(map(said, lines())) >= stays, "every change that moves no row")
            until(lambda: len(lines()) >= len(events), "the others")
    finally:
        place.server.drop_database("example_mail")
    # A row that moves leaves one partition and comes into another, or is told of once if they are the same.
    moves = {
        line(key, op)
        for event in events
        if is_move(event) and event.before is not None
        for key, op in ((event.key, "+U"), (event.key, "+I"), ((event.before["id"],), "-D"))
    }
    # What a partition that moved was told behind its last checkpoint comes once more, and nothing else.
    assert set(map(said, lines())) <= {*stays, *moves}
    assert len({printed.split()[0] for printed in lines()}) > 1


@req("D10", "D110")
def test_the_exactly_once_program_notes_each_change_once_while_members_and_partitions_change(
    place: Place, tmp_path: Path
) -> None:
    database = place.server.create_database("example_kept")
    engine = sa.create_engine(placed(database))
    module = example("group_exactly_once")
    groups: list[Group] = [module.kept(place.relay, engine) for _ in range(2)]
    threads = [threading.Thread(target=group.run, daemon=True) for group in groups]

    def noted() -> list[tuple[int, int, int]]:
        of = module.CHANGES.c
        with engine.connect() as connection:
            rows = connection.execute(sa.select(of.order_id, of.scn, of.ord).order_by(of.id))
            return [(row.order_id, row.scn, row.ord) for row in rows]

    events = told(place)
    expected = {(event.scn, event.ord) for event in events}
    # A row that moves to another partition leaves its own one ordinal before.
    left = {(event.scn, event.ord - 1) for event in events if is_move(event)}
    try:
        threads[0].start()
        until(noted, "the first changes")
        groups[0].resize(3)
        threads[1].start()
        until(lambda: expected <= {found[1:] for found in noted()}, "everything")
        places = Counter(found[1:] for found in noted())
        assert set(places.values()) == {1}
        assert set(places) <= expected | left
        by_order: dict[int, list[tuple[int, ...]]] = {}
        for order, *at in noted():
            by_order.setdefault(order, []).append(tuple(at))
        assert all(of == sorted(of) for of in by_order.values())
    finally:
        for group, thread in zip(groups, threads, strict=True):
            group.stop()
            thread.join(60)
        engine.dispose()
        place.server.drop_database("example_kept")


def is_move(event: Event) -> bool:
    """Whether an event gives a row another key."""
    return event.before is not None and event.before["id"] != event.key[0]


def line(key: tuple[object, ...], op: str) -> str:
    return f"public.orders {key} {op}"


def said(printed: str) -> str:
    """Return a line without the number of its partition."""
    return printed.partition(" ")[2]
