"""Runs the readable window scenarios through the scripted source and the whole of capture.

A scenario is a text file::

    # what it shows, and its source
    table k,c1            columns, the first is the key, if there is one
    no key                the table has none: its dump is one window, a truncate and then every row
    rows 41,a 42,b        what the table holds before the log begins; 1..40 stands for 40 rows
    chunk 10              rows of a chunk
    start                 what commits before the dump begins, streamed only afterwards
    at N PLACE            what commits around the N-th chunk of the dump: "before low", "after low",
                          "after select" or "after high"; terms as in headrace.testing.notation
    hidden …              the same, streamed but not visible yet;  reveal  makes everything visible
    expect                the change log's windows in order, LOG or SELECT with their rows; T is a truncate
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from headrace.model.block import ORIGIN_LOG, SystemKind
from headrace.model.change import missing_matrix
from headrace.model.schema import KeyCheck, TableSchema
from headrace.registry.file import FileRegistry
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.sources.scripted.database import MISSING, Change
from headrace.state.store import StateStore
from headrace.testing.notation import parse_history, table_of
from headrace.testing.oracle import LedgerOracle
from headrace.testing.scripted import run_dry, scripted_capture
from headrace.watermark.settings import DumpSettings
from tests.scenarios.crashing_log import open_log

PLACES = ("before low", "after low", "before select", "after select", "before high", "after high")
"""Where the scripted source lets something happen, in order, around one chunk."""


START = (0, "start")
"""Before capture begins."""


class Scenario:
    """One parsed file."""

    def __init__(self, text: str) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.actions: dict[tuple[int, str], list[str]] = {}
        self.expected: list[str] = []
        self.chunk = 10
        self.columns = 2
        self.check = KeyCheck.IMMEDIATE
        place: tuple[int, str] | None = None
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


class Player:
    """Plays a scenario; `windows` is what the change log then holds."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.schema: TableSchema = table_of(scenario.columns, check=scenario.check)
        self.database = ScriptedDatabase([self.schema])
        self.database.load(self.schema.table, scenario.rows)
        self.source = ScriptedSource(self.database, self._weather, most=1_000)
        self.folder = folder
        self.registry = FileRegistry(folder / "schemas")
        self.calls = 0
        self.polling = True
        self.windows: list[str] = []
        self.log_rows_before_select: list[int] = []

    def play(self) -> None:
        """Dump the table once, with everything that happens around its chunks."""
        log, lose = open_log(self.folder)
        state = StateStore(self.folder / "state.db")
        dump = DumpSettings(chunk_rows=self.scenario.chunk, snapshot_interval_s=3_600.0)
        capture = scripted_capture(self.source, self.folder, log, state, dump)
        for line in self.scenario.actions.get(START, ()):
            self._act(line)
        capture.start()
        assert run_dry(capture, state), "the scenario does not end"
        oracle = LedgerOracle(self.registry.get)
        lines: dict[int, str] = {}
        for block in log.blocks(0):
            oracle.feed(block)
            rows: dict[int, list[tuple[int, str]]] = {}
            for event in block.system:
                if event.kind is SystemKind.TRUNCATE:
                    rows.setdefault(event.scn, []).append((event.ord, "T"))
            for body in block.bodies:
                missing = missing_matrix(body.batch.column("_missing"), len(self.schema.columns))
                for place, row in enumerate(body.batch.to_pylist()):
                    cells = [
                        "?" if hole else str(row[name])
                        for name, hole in zip(self.schema.names, missing[place], strict=True)
                    ]
                    term = f"{row['_op']}({','.join(cells)})"
                    rows.setdefault(row["_scn"], []).append((row["_ord"], term))
            for entry in block.index:
                scn = int(entry["scn"])
                kind = "LOG" if entry["origin"] == ORIGIN_LOG else "SELECT"
                if changes := [term for _, term in sorted(rows.get(scn, ()))]:
                    # A window in pieces is one line.
                    lines[scn] = f"{lines.get(scn, kind)} {' '.join(changes)}"
        self.windows = list(lines.values())
        state.close()
        lose()

    def _weather(self) -> None:
        """Called at the six places around each chunk, once at the poll, and around the end mark."""
        caller = self._caller()
        if caller == "poll":
            return
        number, place = divmod(self.calls, len(PLACES))
        self.calls += 1
        for line in self.scenario.actions.get((number + 1, PLACES[place]), ()):
            self._act(line)

    def _caller(self) -> str:
        import sys

        return sys._getframe(2).f_code.co_name

    def _act(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if line == "reveal":
            for transaction in list(self.database.hidden):
                self.database.reveal(transaction)
            return
        hidden = word == "hidden"
        for text in (rest if hidden else line).split("|"):
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
