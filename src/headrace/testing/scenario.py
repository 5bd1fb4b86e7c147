"""Runs readable window scenarios through the scripted source and the whole of capture.

A scenario is a text file::

    # what it shows, and its source
    table k,c1            columns, the first is the key, if there is one
    no key                the table has none: its dump is one window, a truncate and then every row
    rows 41,a 42,b        what the table holds before the log begins; 1..40 stands for 40 rows
    chunk 10              rows of a chunk
    start                 what commits before the dump begins, streamed only afterwards
    at N PLACE            what commits around the N-th chunk: "before low", "after low",
                          "after select" or "after high", or behind it around the end mark: "before end" or
                          "after end"; terms as in headrace.testing.notation
    then                  what happens when everything so far is carried out; may stand several times
    expect                the change log's windows in order, LOG or SELECT with their rows; T is a truncate

Beside terms these may happen::

    hidden …              a commit that is streamed and not visible yet;  reveal  makes everything visible
    request               the table is asked for again
    pace N                a person sets the rows of the chunks that follow
    away MS               the tap's reader is gone for so long
    traffic N             N seeded transactions of one row each
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from headrace.model.block import ORIGIN_LOG, Block, SystemKind
from headrace.model.change import missing_matrix
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import KeyCheck, TableSchema
from headrace.observe.tap import NO_TAP, Tap
from headrace.registry.file import FileRegistry
from headrace.relay.log import Log
from headrace.sources.base import LogItem, LogReader, SchemaStore, WatermarkWriter
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.sources.scripted.database import MISSING, Change
from headrace.state.store import Scope, StateStore
from headrace.testing.notation import parse_history, table_of
from headrace.testing.oracle import LedgerOracle
from headrace.testing.scripted import run_dry, scripted_capture
from headrace.watermark.settings import DumpSettings

__all__ = ["AROUND", "Place", "Player", "Scenario", "windows_of"]

Place = tuple[int, str]

START: Place = (0, "start")
"""Before capture begins."""

AROUND = {
    MarkKind.LOW: ["before low", "after low", "before select", "after select"],
    MarkKind.HIGH: ["before high", "after high"],
    MarkKind.END: ["before end", "after end"],
}
"""Where something may happen, from a mark to the next one."""


class Scenario:
    """One parsed file.

    Raises:
        ValueError: a line that nobody understands.
    """

    def __init__(self, text: str) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.actions: dict[Place, list[str]] = {}
        self.expected: list[str] = []
        self.chunk = 10
        self.columns = 2
        self.check = KeyCheck.IMMEDIATE
        self.acts = 0
        place: Place | None = None
        for raw in text.splitlines():
            line = raw.split("#")[0].strip()
            word, _, rest = line.partition(" ")
            if not line:
                continue
            if word == "table":
                self.columns = rest.count(",") + 1
            elif line == "no key":
                self.check = KeyCheck.NONE
            elif word == "rows":
                self.rows += self._rows(rest)
            elif word == "chunk":
                self.chunk = int(rest)
            elif word == "start":
                place = START
            elif word == "at":
                number, _, name = rest.partition(" ")
                place = (int(number), name)
            elif word == "then":
                self.acts += 1
                place = (self.acts, "then")
            elif word == "expect":
                place = None
            elif word in ("LOG", "SELECT"):
                self.expected.append(line)
            elif place is not None:
                self.actions.setdefault(place, []).append(line)
            else:
                raise ValueError(f"a scenario line nobody understands: {raw!r}")

    def _rows(self, text: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for word in text.split():
            if span := re.fullmatch(r"(\d+)\.\.(\d+)", word):
                keys = range(int(span[1]), int(span[2]) + 1)
                rows += [(key, *("v" for _ in range(self.columns - 1))) for key in keys]
            else:
                key, *cells = word.split(",")
                rows.append((int(key), *cells))
        return rows


def windows_of(
    blocks: Iterable[Block], schema_of: Callable[[int], TableSchema], names: Sequence[str]
) -> list[str]:
    """Return what a change log of one table holds in the words of a scenario's ``expect``.

    Args:
        blocks: all of it.
        schema_of: returns the schema of an id.
        names: the table's columns.

    Raises:
        OracleViolation: the change log contradicts itself.
    """
    oracle = LedgerOracle(schema_of)
    lines: dict[int, str] = {}
    for block in blocks:
        oracle.feed(block)
        rows: dict[int, list[tuple[int, str]]] = {}
        for event in block.system:
            if event.kind is SystemKind.TRUNCATE:
                rows.setdefault(event.scn, []).append((event.ord, "T"))
        for body in block.bodies:
            missing = missing_matrix(body.batch.column("_missing"), len(names))
            for place, row in enumerate(body.batch.to_pylist()):
                cells = [
                    "?" if hole else str(row[name])
                    for name, hole in zip(names, missing[place], strict=True)
                ]
                term = f"{row['_op']}({','.join(cells)})"
                rows.setdefault(row["_scn"], []).append((row["_ord"], term))
        for entry in block.index:
            scn = int(entry["scn"])
            kind = "LOG" if entry["origin"] == ORIGIN_LOG else "SELECT"
            if changes := [term for _, term in sorted(rows.get(scn, ()))]:
                # A window in pieces is one line.
                lines[scn] = f"{lines.get(scn, kind)} {' '.join(changes)}"
    return list(lines.values())


class Player:
    """Plays a scenario; `windows` is what the change log then holds.

    Args:
        scenario: what happens.
        folder: empty folder for change log and state.
        log: the change log in it, opened for writing; the caller closes it.
        tap: told every step.
        clock: monotonic seconds.
        away: called with milliseconds where the scenario says so.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        log: Log,
        *,
        tap: Tap = NO_TAP,
        clock: Callable[[], float] = lambda: 0.0,
        away: Callable[[int], None] = lambda _ms: None,
    ) -> None:
        self.scenario = scenario
        self.schema: TableSchema = table_of(scenario.columns, check=scenario.check)
        self.database = ScriptedDatabase([self.schema])
        self.database.load(self.schema.table, scenario.rows)
        self.source = _StagedSource(self.database, self)
        self.registry = FileRegistry(folder / "schemas")
        self.state = StateStore(folder / "state.db")
        self.windows: list[str] = []
        self._log = log
        self._away = away
        self._traffic = random.Random(42)
        self._number = 0
        self._places: list[str] = []
        self._polling = False
        dump = DumpSettings(
            chunk_rows=scenario.chunk, snapshot_interval_s=3_600.0, request_interval_s=0.0
        )
        self._capture = scripted_capture(
            self.source, folder, log, self.state, dump, clock=clock, tap=tap
        )

    def play(self) -> None:
        """Dump the table, with everything that happens around its chunks.

        Raises:
            OracleViolation: the change log contradicts itself.
            AssertionError: the scenario does not end.
        """
        self._act(START)
        self._capture.start()
        assert run_dry(self._capture, self.state), "the scenario does not end"
        for act in range(self.scenario.acts):
            self._act((act + 1, "then"))
            assert run_dry(self._capture, self.state), "the scenario does not end"
        self.windows = windows_of(self._log.blocks(0), self.registry.get, self.schema.names)
        self.state.close()

    # -- what the staged source says --------------------------------------------------------------

    def mark(self, mark: Mark) -> None:
        """A mark is about to be written."""
        self._number += mark.kind is MarkKind.LOW
        self._places = list(AROUND[mark.kind])

    def weather(self) -> None:
        """Something may happen now."""
        if self._places and not self._polling:
            self._act((self._number, self._places.pop(0)))

    def poll(self, poll: Callable[[], LogItem | None]) -> LogItem | None:
        """Read the log, during which nothing happens."""
        self._polling = True
        try:
            return poll()
        finally:
            self._polling = False

    # -- what happens -----------------------------------------------------------------------------

    def _act(self, place: Place) -> None:
        for line in self.scenario.actions.get(place, ()):
            word, _, rest = line.partition(" ")
            if word == "reveal":
                for transaction in list(self.database.hidden):
                    self.database.reveal(transaction)
            elif word == "request":
                self.state.submit(Scope.TABLE, self.schema.table)
            elif word == "pace":
                self.state.set_pace(chunk_rows=int(rest))
            elif word == "away":
                self._away(int(rest))
            elif word == "traffic":
                for _ in range(int(rest)):
                    self._commit(self._any_change())
            elif word == "hidden":
                self._commit(rest, hidden=True)
            else:
                self._commit(line)

    def _any_change(self) -> str:
        """Return a change of one row, chosen by the seed."""
        keys = sorted(row[0] for row in +self._committed())
        what = self._traffic.choice(("insert", "update", "update", "delete"))
        value = f"v{self._traffic.randrange(1000)}"
        if what == "insert" or len(keys) < 2:
            return f"+I({max(keys, default=0) + 1},{value})"
        key = self._traffic.choice(keys)
        return f"-D({key})" if what == "delete" else f"=U({key},{value})"

    def _commit(self, line: str, *, hidden: bool = False) -> None:
        for text in line.split("|"):
            transaction = self.database.begin()
            self._write(transaction, text)
            self.database.commit(transaction)
            if not hidden:
                self.database.reveal(transaction)

    def _write(self, transaction: Any, text: str) -> None:
        """Write log rows, and what they do to the rows a reader sees."""
        table = self.schema.table
        if self.schema.key_check is KeyCheck.NONE:
            self._write_keyless(transaction, text)
            return
        held = {row[0]: row for row in +self._committed()}
        moving: tuple[Any, ...] | None = None
        for _, _, op, cells in parse_history(text).rows:
            padded = (*cells, *("?" for _ in range(self.scenario.columns - len(cells))))
            logged = tuple(MISSING if cell == "?" else cell for cell in padded)
            transaction.changes.append(Change(table, op, logged))
            key = cells[0]
            old = held.pop(key, None) if op in ("=U", "-D", "-U") else None
            if old is not None:
                transaction.puts.append((table, "remove", old))
            if op == "-U":
                moving = old
            if op in ("+I", "=U", "+U"):
                base = (moving if op == "+U" else old) or (None,) * len(logged)
                new = tuple(b if c is MISSING else c for b, c in zip(base, logged, strict=True))
                held[key] = new
                transaction.puts.append((table, "add", new))

    def _write_keyless(self, transaction: Any, text: str) -> None:
        """Write log rows of a table that is a multiset, and what they do to it."""
        table, history = self.schema.table, parse_history(text)
        terms = [(order, op, cells) for _, order, op, cells in history.rows]
        terms += [(order, "T", ()) for _, order in history.truncates]
        for _, op, cells in sorted(terms, key=lambda term: term[0]):
            transaction.changes.append(Change(table, op, cells))
            what = {"T": "truncate", "+": "add", "-": "remove"}[op[0]]
            transaction.puts.append((table, what, cells))

    def _committed(self) -> Counter[tuple[Any, ...]]:
        return self.database.state_at(1 << 60)[self.schema.table]


class _StagedSource(ScriptedSource):
    """Says where it is: at a mark, between two, or at the log."""

    def __init__(self, database: ScriptedDatabase, player: Player) -> None:
        super().__init__(database, player.weather, most=1_000)
        self._player = player

    def open(self, schemas: SchemaStore) -> Any:
        """Open the log."""
        return _StagedLog(super().open(schemas), self._player)

    def watermarks(self) -> Any:
        """Open the writer of marks."""
        return _StagedMarks(super().watermarks(), self._player)


class _StagedLog:
    def __init__(self, log: LogReader, player: Player) -> None:
        self._log = log
        self._player = player
        self.acknowledge = log.acknowledge
        self.close = log.close

    def poll(self, timeout_s: float) -> LogItem | None:
        return self._player.poll(lambda: self._log.poll(timeout_s))


class _StagedMarks:
    def __init__(self, marks: WatermarkWriter, player: Player) -> None:
        self._marks = marks
        self._player = player
        self.close = marks.close

    def write(self, mark: Mark) -> None:
        self._player.mark(mark)
        self._marks.write(mark)
