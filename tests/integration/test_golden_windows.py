"""F2 on real servers: the golden windows of ``tests/scenarios/windows`` come out as drawn.

Left out are those with a commit that is streamed and not visible: a server does that only when it is made to, and
MariaDB never before a mark, which waits behind it (`test_mariadb_visibility`, `test_visibility_gap`); and the one that
empties a table while a snapshot reads it, for which either server waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import KeyCheck
from headrace.state.records import Scope
from headrace.testing.notation import MISSING, parse_history
from headrace.testing.scenario import AROUND, Place, Scenario, windows_of
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import AtWork, at_work
from tests.fixtures_binlog import mariadb_server, mysql_server
from tests.integration.either import EACH_SERVER, MYSQL, Either, on_either
from tests.requirements import req
from tests.scenarios.test_windows import FILES
from tests.waiting import until

__all__ = ["mariadb_server", "mysql_server"]

SCENARIOS = {file.stem: file.read_text() for file in FILES}
VISIBLE = [
    name
    for name, text in SCENARIOS.items()
    if "\nhidden" not in text and name != "keyless_truncate"
]
PLAYED = [
    pytest.param(*kind.values, name, marks=kind.marks)
    for kind in [*EACH_SERVER, MYSQL]
    for name in VISIBLE
    # A moved row lacks its other column in MINIMAL images; PostgreSQL leaves out large values alone.
    if (*kind.values, name) != ("postgres", "moved_into_covered_range")
    and ((*kind.values,) != ("mysql",) or "keyless" not in name)
]


@pytest.fixture
def either(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Either]:
    with on_either(kind, request, tmp_path) as made:
        yield made


class Stage:
    """Lets a scenario's transactions happen around the marks and selects of a real source."""

    def __init__(self, scenario: Scenario, either: Either) -> None:
        self.scenario = scenario
        self._either = either
        self.running: AtWork | None = None
        self._number = 0
        self._places: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._either.source, name)

    def fill(self) -> None:
        """Create the table and its rows."""
        columns = [f"c{n} text" for n in range(1, self.scenario.columns)]
        keyed = self.scenario.check is not KeyCheck.NONE
        key = "k bigint PRIMARY KEY" if keyed else "k bigint"
        self._either.says(f"CREATE TABLE t ({', '.join([key, *columns])})")
        if self._either.kind != "postgres":
            # What the log then has is what the scenarios tell, hole for hole.
            self._either.says(f"SET SESSION binlog_row_image = {'MINIMAL' if keyed else 'FULL'}")
        elif not keyed:
            self._either.says("ALTER TABLE t REPLICA IDENTITY FULL")
        for row in self.scenario.rows:
            self._either.says(f"INSERT INTO t VALUES ({_values(row)})")

    def chunks(self) -> Any:
        """Open a chunk reader."""
        return _Staged(self._either.source.chunks(), self)

    def watermarks(self) -> Any:
        """Open a watermark writer."""
        return _Staged(self._either.source.watermarks(), self)

    def mark(self, mark: Mark) -> None:
        """A mark is about to be written."""
        self._number += mark.kind is MarkKind.LOW
        self._places = list(AROUND[mark.kind])

    def passes(self) -> None:
        """Something may happen now."""
        if self._places:
            self.act((self._number, self._places.pop(0)))

    def act(self, place: Place) -> None:
        """Do what the scenario has for a place."""
        assert self.running is not None
        for line in self.scenario.actions.get(place, ()):
            word, _, rest = line.partition(" ")
            if word == "pace":
                self.running.state.set_pace(chunk_rows=int(rest))
            elif word == "request":
                self.running.state.submit(Scope.TABLE, self._either.table("t"))
            else:
                for transaction in line.split("|"):
                    self._either.says("BEGIN", *self._statements(transaction), "COMMIT")

    def _statements(self, text: str) -> list[str]:
        """Return what a server has to be told for the changes of one transaction."""
        history, found = parse_history(text), []
        terms = [(order, op, cells) for _, order, op, cells in history.rows]
        terms += [(order, "T", ()) for _, order in history.truncates]
        before: tuple[Any, ...] = ()
        for _, op, cells in sorted(terms, key=lambda term: term[0]):
            if op == "-U":
                before = cells
            elif op == "T":
                found.append("TRUNCATE TABLE t")
            elif op == "+I":
                found.append(f"INSERT INTO t VALUES ({_values(cells)})")
            else:
                which = before if op == "+U" else cells
                where = self._where(which if op != "=U" else which[:1])
                sets = [
                    f"{name} = {_value(cell)}"
                    for name, cell in zip(self.names, cells, strict=False)
                    if cell != MISSING and (op == "+U" or name != "k")
                ]
                found.append(
                    f"DELETE FROM t {where}"
                    if op == "-D"
                    else f"UPDATE t SET {', '.join(sets)} {where}"
                )
        return found

    @property
    def names(self) -> Sequence[str]:
        """The table's columns."""
        return ["k", *(f"c{n}" for n in range(1, self.scenario.columns))]

    def _where(self, cells: tuple[Any, ...]) -> str:
        told = zip(self.names, cells, strict=False)
        condition = " AND ".join(f"{name} = {_value(cell)}" for name, cell in told)
        if self.scenario.check is KeyCheck.NONE:
            return self._either.one_of("t", condition)
        return f"WHERE {condition}"


class _Staged:
    """A chunk reader or a writer of marks that lets things happen around what it does."""

    def __init__(self, real: Any, stage: Stage) -> None:
        self._real = real
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name not in ("read", "read_keys", "read_table"):
            return found

        def passed(*arguments: Any) -> Any:
            self._stage.passes()
            given = found(*arguments)
            self._stage.passes()
            return given

        return passed

    def write(self, mark: Mark) -> None:
        self._stage.mark(mark)
        self._stage.passes()
        self._real.write(mark)
        self._stage.passes()


_IN_PLACE = re.compile(r"-U\((\d+)(?:,\?)*\) \+U\(\1((?:,[^)]*)?)\)")
"""An update in place whose old image has only the key, as MariaDB sends it: no more than ``=U`` says."""


def _value(cell: Any) -> str:
    return f"'{cell}'" if isinstance(cell, str) else str(cell)


def _values(cells: tuple[Any, ...]) -> str:
    return ", ".join(map(_value, cells))


@req("F2", "P17", "P35", "P43", "P45", "P53", "H04", "A-6")
@pytest.mark.parametrize(("kind", "name"), PLAYED)
def test_a_golden_window_comes_out_as_drawn(
    kind: str, name: str, either: Either, tmp_path: Path
) -> None:
    stage = Stage(Scenario(SCENARIOS[name]), either)
    stage.fill()
    dump = DumpSettings(
        chunk_rows=stage.scenario.chunk, request_interval_s=0.0, look_interval_s=3_600.0
    )
    expected = stage.scenario.expected

    def windows() -> list[str]:
        log = ChangeLogReader(tmp_path / "state" / "changelog")
        told = windows_of(log.blocks(0), running.registry.get, stage.names)
        return [_IN_PLACE.sub(r"=U(\1\2)", window) for window in told]

    with at_work(stage, tmp_path / "state", dump=dump) as running:
        stage.running = running
        until(running.dumped, "the dump")
        until(lambda: running.error or len(windows()) >= len(expected), "all of the log")
        assert windows() == expected
