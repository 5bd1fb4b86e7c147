"""Putting aside what a target will never take, so that the rest of its table goes on.

In: a step that failed on its changes. Out: the same step in halves, until the one transaction stands alone that is to
blame; that is kept as a dead letter, durably, before its table goes on behind it. A table is told by its letters which
transactions to leave out, so a crash at any point repeats no decision and loses none.

Only where `TableSettings.sets_aside` says so; other tables wait for a person.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from headrace.changelog.dead_letters import DeadLetter, DeadLetterStore, LetterState
from headrace.changelog.reader import ChangeLogReader
from headrace.errors import FoldError, HeadraceError, UndecodableValue, UnplacedValue
from headrace.lake.settings import SettingsByTable, settings_for
from headrace.model.block import Block, SystemKind, transaction_index
from headrace.model.schema import TableId, TableSchema
from headrace.registry.file import FileRegistry
from headrace.spark.at_work import TableAtWork, Work
from headrace.spark.plan import Range, Step, steps_of

__all__ = ["Aside", "Replayed"]

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3
"""Failures before anything is put aside: what the log brings a little later may mend it."""
_UNDELIVERABLE = (FoldError, UndecodableValue, UnplacedValue)
"""Errors of the changes themselves, which no pause mends."""

Replayed = Callable[[str], bool | None]
"""Says of a request whether its rows have come; False when they will not, None while they may."""


class Aside:
    """The dead letters of one job.

    Args:
        folder: of the letters, None where nothing is put aside.
        reader: of the change log.
        registry: versions of tables.
        given: what was asked for single tables.
        replayed: asked about replays that are under way.
    """

    def __init__(
        self,
        folder: Path | None,
        reader: ChangeLogReader,
        registry: FileRegistry,
        given: SettingsByTable,
        replayed: Replayed | None,
    ) -> None:
        self._store = None if folder is None else DeadLetterStore(folder)
        self._reader = reader
        self._registry = registry
        self._given = given
        self._replayed = replayed
        self._letters: dict[TableId, list[DeadLetter]] = {}

    def look(self) -> None:
        """Read all letters anew, and see whether replays have ended.

        Raises:
            StateError: one does not read, or cannot be written.
        """
        self._letters = {}
        for letter in self._store.all() if self._store is not None else ():
            self._letters.setdefault(letter.table, []).append(self._settled(letter))

    def lacking(self, table: TableAtWork) -> int:
        """Return how many letters hold what a table lacks where it is."""
        return sum(letter.lacks(table.position) for letter in self._letters.get(table.id, ()))

    def steps(
        self, part: Range, table: TableAtWork, max_rows: int, current: TableSchema | None
    ) -> list[Step]:
        """Return a table's steps to the end of a range, without the transactions that were put aside."""
        steps: list[Step] = []
        begin = table.position
        for letter in self._letters.get(table.id, ()):
            if begin < letter.scn <= part.upto_scn:
                steps += self._between(table.id, begin, letter.scn - 1, max_rows, current)
                begin = letter.scn
                current = steps[-1].schema if steps else current
        if begin == table.position:
            return steps_of(part, table.id, table.position, max_rows, current)
        return steps + self._between(table.id, begin, part.upto_scn, max_rows, current)

    def takes(self, item: Work, error: HeadraceError) -> bool:
        """Narrow a step that failed to what is to blame, or put that aside; false where the table waits instead.

        Raises:
            StateError: the letter cannot be written.
        """
        table, step = item.table, item.steps[0]
        wanted = settings_for(table.id, self._given).sets_aside and self._store is not None
        if not wanted or table.attempts < _ATTEMPTS or not isinstance(error, _UNDELIVERABLE):
            return False
        smaller = self._narrowed(table, step)
        if smaller is None and not self._put(table, step, error):
            return False
        item.steps.popleft()
        item.steps.extendleft(reversed(smaller or ()))
        if smaller is None:
            table.position = step.upto_scn
        return True

    def _narrowed(self, table: TableAtWork, step: Step) -> list[Step] | None:
        """Return what a step that failed is to be tried as: smaller ones; None when it is one transaction already."""
        scns = sorted(self._transactions(table.id, step))
        current = self._registry.get(table.schema_id) if table.schema_id else None
        if len(scns) > 1:
            ends = [scns[(len(scns) - 1) // 2], step.upto_scn]
        elif scns and (step.after_scn, step.upto_scn) != (scns[0] - 1, scns[0]):
            ends = sorted({scns[0] - 1, scns[0], step.upto_scn} - {step.after_scn})
        else:
            return None
        found: list[Step] = []
        begin = step.after_scn
        for end in ends:
            found += self._between(table.id, begin, end, 2**62, current)
            begin, current = end, found[-1].schema if found else current
        return found

    def _put(self, table: TableAtWork, step: Step, error: HeadraceError) -> bool:
        """Keep the one transaction of a step as a letter; False when it tells of the table's shape, and cannot wait.

        Raises:
            StateError: it cannot be written.
        """
        assert self._store is not None
        scn = step.upto_scn
        if step.announced and step.schema.schema_id != table.schema_id:
            return False
        found = list(self._blocks(table.id, step))
        kinds: Counter[str] = Counter()
        for block in found:
            for body in block.bodies:
                kinds.update(body.batch.column("_op").to_pylist())
        letter = DeadLetter(
            table.id,
            scn,
            int(found[0].index["commit_us"][0]),
            kinds.total(),
            dict(kinds),
            step.truncated,
            {
                "name": type(error).__name__,
                "message": error.message,
                "next_step": error.next_step,
            },
            time.time_ns() // 1_000,
        )
        self._store.put(letter, iter(found))
        self._letters.setdefault(table.id, []).append(letter)
        _LOG.warning("%s is put aside: %s", letter.letter_id, error.message)
        return True

    def _settled(self, letter: DeadLetter) -> DeadLetter:
        """Return a letter, of which a replay may have ended."""
        if letter.state is not LetterState.REPLAYING or self._replayed is None:
            return letter
        assert self._store is not None
        came = self._replayed(letter.request)
        if came is None:
            return letter
        if came:
            covered = self._reader.tail().covered_scn
            return self._store.update(letter, state=LetterState.REPLAYED, settled_scn=covered)
        reason = f"Request {letter.request} did not read its rows."
        return self._store.update(letter, state=LetterState.WAITING, reason=reason)

    def _between(
        self, table: TableId, after: int, upto: int, max_rows: int, current: TableSchema | None
    ) -> list[Step]:
        if upto <= after:
            return []
        part = Range(self._reader, self._registry, after, upto)
        return steps_of(part, table, after, max_rows, current)

    def _blocks(self, table: TableId, step: Step) -> Iterator[Block]:
        """Yield what the blocks of a step hold of the table's own."""
        for ref in step.refs:
            whole = self._reader.load(ref, step.schema_ids)
            block = whole.after(step.after_scn).upto(step.upto_scn)
            bodies = tuple(body for body in block.bodies if body.schema_id in step.schema_ids)
            events = tuple(
                event
                for event in block.system
                if event.table == table and event.kind is SystemKind.TRUNCATE
            )
            if not bodies and not events:
                continue
            rows = sum(body.batch.num_rows for body in bodies) + len(events)
            entries = [
                (*(int(entry[name]) for name in ("scn", "commit_us", "xid")), rows)
                + (int(entry["origin"]), int(entry["last_piece"]))
                for entry in block.index
            ]
            yield Block(transaction_index(entries), bodies, events, block.covered_scn)

    def _transactions(self, table: TableId, step: Step) -> set[int]:
        found: set[int] = set()
        for block in self._blocks(table, step):
            found.update(event.scn for event in block.system)
            for body in block.bodies:
                found.update(body.batch.column("_scn").unique().to_pylist())
        return found
