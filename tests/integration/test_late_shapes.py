"""Changes of shape that the log tells of long after the catalog has moved on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemKind
from headrace.model.schema import TableId
from headrace.model.succession import Numbers, successors, told_numbers
from headrace.registry.file import FileRegistry
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.stream import PostgresLogReader
from tests.faults.faulty import PUBLIC_T, AtWork, at_work, follows, rows_of
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(60)]


def shape(running: AtWork) -> str:
    """Return what the last look at the catalog found of the table."""
    tables = json.loads(running.state.get("catalog") or "{}")["tables"]
    (found,) = (shape for *name, shape in tables.values() if TableId(*name) == PUBLIC_T)
    return str(found)


def is_past(running: AtWork, before: str) -> bool:
    """Whether a look found another shape, or none is to be expected while the table is read again."""
    return shape(running) != before or not running.dumped()


def unclear(folder: Path) -> bool:
    """Whether the log leaves open what became of a column; targets stop by name there."""
    blocks = list(ChangeLogReader(folder / "changelog").blocks(0))
    told: dict[int, Numbers] = {}
    for event in (event for block in blocks for event in block.system):
        told |= told_numbers(event.payload) if event.kind is SystemKind.SCHEMA else {}
    registry = FileRegistry(folder / "changelog" / "schemas")
    *older, newest = dict.fromkeys(body.schema_id for block in blocks for body in block.bodies)
    names = registry.get(newest).names
    return any(
        successors(registry.get(one).names, names, told.get(one, {}), told.get(newest, {})) is None
        for one in older
    )


def holds(running: AtWork, url: str) -> bool:
    """Whether the log amounts to what the source holds."""
    return running.holds(PUBLIC_T, rows_of(url, str(PUBLIC_T)))


@contextmanager
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the server's log come only after the block, while the catalog is looked at."""
    with monkeypatch.context() as patch:
        patch.setattr(PostgresLogReader, "_drain", lambda _self: None)
        yield


@req("P33")
def test_a_column_that_came_back_while_the_log_lay_behind_holds_nothing_of_before(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, a text, b text)", "INSERT INTO t VALUES (1, 'x', 'y')")
    with at_work(PostgresSource(database, name="late"), tmp_path) as running:
        until(running.dumped, "the first copy")
        running.judged = False
        with late(monkeypatch):
            sql("INSERT INTO t VALUES (2, 'x', 'old')")
            before = shape(running)
            sql("ALTER TABLE t DROP b")
            until(lambda: shape(running) != before, "a look without the column")
            before = shape(running)
            sql("ALTER TABLE t ADD b text")
            until(lambda: shape(running) != before, "a look with the other column")
            sql("INSERT INTO t VALUES (3, 'x', 'new')")
        follows(running, database)


@req("P33")
@pytest.mark.parametrize("seed", range(6))
def test_random_changes_of_shape_that_are_told_late_end_as_at_the_source(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chosen = random.Random(seed)
    names, rows = ["a", "b", "c"], count(1)
    sql("CREATE TABLE t (id int PRIMARY KEY, a text, b text, c text)")

    def write() -> None:
        values = ", ".join(f"'{chosen.randrange(1000)}'" for _ in names)
        sql(f"INSERT INTO t (id, {', '.join(names)}) VALUES ({next(rows)}, {values})")
        sql(f"UPDATE t SET {chosen.choice(names)} = 'u' WHERE id % 3 = 1")

    def alter() -> str:
        free = [name for name in "abcdefghijkl" if name not in names]
        kind = chosen.choice(["rename", "swap", "drop", "add", "replace"])
        place = chosen.randrange(len(names))
        if kind == "rename":
            old, names[place] = names[place], chosen.choice(free)
            return f"ALTER TABLE t RENAME {old} TO {names[place]}"
        if kind == "swap" and len(names) > 1:
            one, two = chosen.sample(range(len(names)), 2)
            a, b = names[one], names[two]
            names[one], names[two] = b, a
            return (
                f"BEGIN; ALTER TABLE t RENAME {a} TO x; ALTER TABLE t RENAME {b} TO {a};"
                f" ALTER TABLE t RENAME x TO {b}; COMMIT"
            )
        if kind == "drop" and len(names) > 1:
            return f"ALTER TABLE t DROP {names.pop(place)}"
        if kind == "replace":
            name = names.pop(place)
            names.append(name)
            return f"ALTER TABLE t DROP {name}, ADD {name} text"
        names.append(chosen.choice(free))
        return f"ALTER TABLE t ADD {names[-1]} text"

    for _ in range(4):
        write()
    with at_work(PostgresSource(database, name="late"), tmp_path) as running:
        until(running.dumped, "the first copy")
        running.judged = False
        for _ in range(2):
            with late(monkeypatch):
                for _ in range(chosen.randrange(1, 5)):
                    before = shape(running)
                    statement = alter()
                    sql(statement)
                    if chosen.random() < 0.5:
                        # A table that is read again waits for the log, and so do the looks.
                        until(partial(is_past, running, before), "a look")
                    if chosen.random() < 0.7:
                        write()
                write()
            until(lambda: unclear(tmp_path) or holds(running, database), "the source's rows")
            if unclear(tmp_path):
                return
