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
        return [line for file in printed for line in file.read_text().splitlines()]

    expected = Counter(
        f"public.orders ({order},) {op}" for event in told(place) for order, op in moves(event)
    )
    try:
        with ExitStack() as stack:
            for file in printed:
                process = started(program, file)
                stack.callback(process.wait)
                stack.callback(process.kill)
            until(
                lambda: (
                    {line.partition(" ")[2] for line in lines()} >= set(expected)
                    and len(lines()) >= expected.total()
                ),
                "every change",
            )
    finally:
        place.server.drop_database("example_mail")
    seen = Counter(line.partition(" ")[2] for line in lines())
    # What a partition that moved was told behind its last checkpoint comes once more.
    assert all(seen[line] >= count for line, count in expected.items())
    assert set(seen) == set(expected)
    assert len({line.split()[0] for line in lines()}) > 1


@req("D10", "D110")
def test_the_exactly_once_program_notes_each_change_once_while_members_and_partitions_change(
    place: Place, tmp_path: Path
) -> None:
    database = place.server.create_database("example_kept")
    engine = sa.create_engine(placed(database))
    module = example("group_exactly_once")
    groups: list[Group] = [module.kept(place.relay, engine) for _ in range(2)]
    threads = [threading.Thread(target=group.run, daemon=True) for group in groups]

    def noted() -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        query = sa.select(module.CHANGES).order_by(module.CHANGES.c.id)
        with engine.connect() as connection:
            for row in connection.execute(query):
                found.setdefault(row.order_id, []).append(row.op)
        return found

    expected: dict[int, list[str]] = {}
    for event in told(place):
        for order, op in moves(event):
            expected.setdefault(order, []).append(op)
    try:
        threads[0].start()
        until(noted, "the first changes")
        groups[0].resize(3)
        threads[1].start()
        until(lambda: sum(map(len, noted().values())) >= sum(map(len, expected.values())), "all")
        assert noted() == expected
    finally:
        for group, thread in zip(groups, threads, strict=True):
            group.stop()
            thread.join(60)
        engine.dispose()
        place.server.drop_database("example_kept")


def moves(event: Event) -> list[tuple[int, str]]:
    """Return what an event says of each order: an update that changes the key moves between two."""
    if event.before is None or event.before["id"] == event.key[0]:
        return [(event.key[0], event.op)]
    return [(event.before["id"], "-D"), (event.key[0], "+I")]
