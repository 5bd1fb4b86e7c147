"""Change logs for tests of the client: random ones, and what a consumer of them has to be told."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from headrace.changelog import ChangeLogSettings, ChangeLogWriter
from headrace.client.rows import Rows
from headrace.model.block import (
    ORIGIN_LOG,
    ORIGIN_SELECT,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.schema import TableId, TableSchema
from headrace.registry.file import FileRegistry
from headrace.sources.scripted.database import MISSING, ScriptedDatabase, Transaction
from headrace.testing.histories import TABLES, RandomHistory
from headrace.testing.notation import MISSING as UNSENT
from headrace.testing.notation import change_batch
from tests.client.recording import Told, told_of

__all__ = ["LogFolder", "commit_us", "random_blocks", "told_by"]

_SETTINGS = ChangeLogSettings(segment_bytes=256 * 1024, budget_bytes=2**30, retain_bytes=2**30)


def commit_us(scn: int) -> int:
    """Return the commit time of a test's transaction."""
    return 1_700_000_000_000_000 + scn * 1_000_000


class LogFolder:
    """A change log and its registry, as a relay serves them.

    Attributes:
        folder: of the log.
        blocks: everything that was appended.
    """

    def __init__(self, folder: Path, settings: ChangeLogSettings = _SETTINGS) -> None:
        self.folder = folder
        self.blocks: list[Block] = []
        self.registry = FileRegistry(folder / "schemas")
        self.writer = ChangeLogWriter.open(folder, settings, sync=lambda _: None)

    def append(self, *blocks: Block) -> None:
        """Add blocks and make them readable."""
        for block in blocks:
            self.writer.append(block)
            self.blocks.append(block)
        self.writer.sync()

    def register(self, *tables: TableSchema) -> None:
        """Keep table versions."""
        for table in tables:
            self.registry.put(table)

    def close(self) -> None:
        """Stop writing."""
        self.writer.close()


def random_blocks(seed: int, steps: int = 250, first_scn: int = 0) -> list[Block]:
    """Return a random history of three tables, cut into blocks at random: many transactions in one, one over many."""
    rng = random.Random(seed)
    database = ScriptedDatabase(TABLES)
    history = RandomHistory(database, rng, Counter())
    for _ in range(steps):
        history.step()
    history.settle()
    pieces: list[tuple[Transaction, int, int]] = []
    for transaction in database.log:
        pieces += _pieces(transaction, rng)
    blocks: list[Block] = []
    at = 0
    while at < len(pieces):
        count = rng.choice([1, 1, 2, 5, 12])
        taken = [pieces[at]]
        while len(taken) < count and at + len(taken) < len(pieces):
            # A block holds at most one piece of a transaction.
            following = pieces[at + len(taken)]
            if following[0] is taken[-1][0]:
                break
            taken.append(following)
        at += len(taken)
        blocks.append(_block(taken))
        if rng.random() < 0.2 and blocks[-1].ends_complete:
            blocks.append(Block(transaction_index([]), (), (), blocks[-1].covered_scn + 3))
    return blocks


def told_by(blocks: list[Block]) -> list[Told]:
    """Return every event of the blocks, as a consumer must be told of it, sorted by place."""
    told: list[Told] = []
    for block in blocks:
        for body in block.bodies:
            schema = next(table for table in TABLES if table.table == body.table)
            events = Rows(body, schema, None).events(0, body.batch.num_rows)
            told += [told_of(event) for event in events]
        told += [told_of(event) for event in block.system]
    return sorted(told, key=lambda one: one[:2])


def _pieces(transaction: Transaction, rng: random.Random) -> Iterator[tuple[Transaction, int, int]]:
    """Cut a transaction at random, never between the two images of an update."""
    changes = transaction.changes
    cuts = [0]
    for i in range(1, len(changes)):
        if changes[i].op != "+U" and rng.random() < 0.3:
            cuts.append(i)
    cuts.append(len(changes))
    for start, stop in pairwise(cuts):
        yield transaction, start, stop


def _block(pieces: list[tuple[Transaction, int, int]]) -> Block:
    entries = []
    rows: dict[TableId, list] = {}
    system: list[SystemEvent] = []
    for transaction, start, stop in pieces:
        scn = transaction.scn
        last = stop == len(transaction.changes)
        origin = ORIGIN_SELECT if scn % 70 == 0 else ORIGIN_LOG
        entries.append((scn, commit_us(scn), transaction.xid, stop - start, origin, int(last)))
        for order in range(start, stop):
            change = transaction.changes[order]
            if change.op == "T":
                system.append(SystemEvent(scn, order, SystemKind.TRUNCATE, change.table))
            else:
                cells = tuple(UNSENT if cell is MISSING else cell for cell in change.cells)
                rows.setdefault(change.table, []).append((scn, order, change.op, cells))
    tables = {schema.table: schema for schema in TABLES}
    bodies = tuple(
        Body(tables[table].schema_id, table, change_batch(tables[table], of))
        for table, of in rows.items()
    )
    index = transaction_index(entries)
    covered = int(index["scn"][-1]) - (0 if entries[-1][5] else 1)
    assert (np.diff(index["scn"]) > 0).all()
    return Block(index, bodies, tuple(system), covered)
