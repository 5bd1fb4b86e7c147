"""Chunk after chunk of a source that cannot say of each transaction whether a select has seen it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from headrace.testing.notation import table_of
from headrace.watermark.reconciler import Reconciler
from tests.requirements import req
from tests.watermark.test_reconciler import block_at, block_of, chunk_rows, emitted, saw

THREE = table_of(3)
KEYS = range(4)

Row = tuple[int | str, ...]
Change = tuple[str, Row]
State = dict[int, Row]


@dataclass
class Transaction:
    """Changes as the log has them, the keys that it locked, and what it does to a table."""

    changes: list[Change] = field(default_factory=list)
    keys: set[int] = field(default_factory=set)
    sets: list[tuple[int, int, str | int]] = field(default_factory=list)
    """Key, column and new value; of column 0 the whole row's, nothing for a row that goes, or where it moves to."""

    def apply(self, state: State) -> None:
        for key, column, value in self.sets:
            if column:
                row = list(state[key])
                row[column] = value
                state[key] = tuple(row)
            elif isinstance(value, int):
                state[value] = (value, *state.pop(key)[1:])
            elif value:
                state[key] = (key, value, value)
            else:
                del state[key]


def transaction(rng: random.Random, state: State, number: int) -> Transaction:
    """Return one that changes some keys at random, and carry it out."""
    made = Transaction()
    for key in rng.sample(KEYS, rng.randint(1, 2)):
        value = f"v{number}"
        made.keys.add(key)
        free = next((k for k in KEYS if k not in state and k not in made.keys), None)
        if key in state and free is not None and rng.random() < 0.3:
            # The rest of the row is not sent.
            made.keys.add(free)
            made.changes += [("-U", (key, "?", "?")), ("+U", (free, "?", "?"))]
            made.sets.append((key, 0, free))
            break
        if key not in state:
            made.changes.append(("+I", (key, value, value)))
            made.sets.append((key, 0, value))
        elif rng.random() < 0.2:
            made.changes.append(("-D", (key, "?", "?")))
            made.sets.append((key, 0, ""))
        else:
            column = rng.randint(1, 2)
            sent: Row = (key, value, "?") if column == 1 else (key, "?", value)
            before: list[Change] = [("-U", (key, "?", "?"))] if rng.random() < 0.5 else []
            made.changes += [*before, ("+U" if before else "=U", sent)]
            made.sets.append((key, column, value))
    made.apply(state)
    return made


def visible(rng: random.Random, log: list[Transaction], before: set[int]) -> set[int]:
    """Return transactions that a later select sees: all before one on each of its keys, for that held the locks."""
    seen: set[int] = set()
    held: set[int] = set()
    for scn, one in enumerate(log, 1):
        if scn in before or (not one.keys & held and rng.random() < 0.8):
            seen.add(scn)
        else:
            held |= one.keys
    return seen


def read(log: list[Transaction], seen: set[int]) -> pa.RecordBatch:
    """Return what a select has that sees just some transactions."""
    state: State = {}
    for scn in sorted(seen):
        log[scn - 1].apply(state)
    return chunk_rows(THREE, [state[key] for key in sorted(state)])


@req("P49", "P50")
@pytest.mark.parametrize("runs", [400, pytest.param(5_000, marks=pytest.mark.long)])
def test_no_row_leaves_that_is_not_what_the_log_amounts_to(runs: int) -> None:
    """Later ones are seen before earlier ones of other keys; of some nobody says whether they were seen."""
    left = 0
    for seed in range(runs):
        rng = random.Random(seed)
        reconciler = Reconciler(lambda _: THREE)
        log: list[Transaction] = []
        seen: set[int] = set()
        now: State = {}
        for _ in range(6):
            for _ in range(rng.randint(1, 4)):
                log.append(transaction(rng, now, len(log)))
                reconciler.remember(block_at(THREE, len(log), log[-1].changes))
            seen = visible(rng, log, seen)
            doubt = rng.choice((0.0, 0.3, 0.8))
            unknown = {scn for scn in range(1, len(log) + 1) if rng.random() < doubt}
            said = saw(*(seen - unknown), unknown=tuple(unknown))
            result = reconciler.reconcile(THREE, read(log, seen), said)
            reconciler.forget(said)
            for cells in emitted(result.rows):
                assert cells in now.values(), f"seed {seed}, {len(log)} transactions"
                left += 1
    assert left > 3 * runs


def test_a_seen_change_behind_a_doubtful_one_is_remembered_as_long_as_the_doubt() -> None:
    """Without it the next chunk, whose row has both, would be patched with the doubtful one alone."""
    reconciler = Reconciler(lambda _: THREE)
    reconciler.remember(block_of(THREE, "=U(1,x,?) | =U(1,y,z)"))
    said = saw(2, unknown=(1,))
    chunk = chunk_rows(THREE, [(1, "y", "z")])
    for _ in range(2):
        assert emitted(reconciler.reconcile(THREE, chunk, said).rows) == [(1, "y", "z")]
        reconciler.forget(said)
    assert reconciler.remembered == 2
    reconciler.forget(saw(1, 2))
    assert reconciler.remembered == 0


def test_a_row_that_came_back_to_its_key_is_read_again_where_another_one_may_have_been_there() -> (
    None
):
    """In between the chunk saw the other row: patched with nothing it would leave as what the key holds."""
    reconciler = Reconciler(lambda _: THREE)
    log = "-U(3,?,?) +U(2,?,?) | +I(3,other,other) | -U(3,?,?) +U(1,?,?) | -U(2,?,?) +U(3,?,?)"
    reconciler.remember(block_of(THREE, log))
    chunk = chunk_rows(THREE, [(2, "own", "own"), (3, "other", "other")])
    result = reconciler.reconcile(THREE, chunk, saw(unknown=(1, 2, 3, 4)))
    assert emitted(result.rows) == []
    assert [row["k"] for row in result.unsettled.to_pylist()] == [3]
