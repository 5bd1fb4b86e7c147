"""Random histories of a change log: what they may hold, and a log that has lived through one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

from headrace.changelog import ChangeLogSettings, ChangeLogWriter
from headrace.model.block import Block
from tests.changelog.windows import OTHER, TABLE, coverage, joined, window

__all__ = ["SMALL", "STEPS", "Step", "last_scn", "played"]

SMALL = ChangeLogSettings(segment_bytes=8192, retain_bytes=0)

Step = tuple[str, int, bool]
"""What happens, how much of it, and whether readers see it at once."""

STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(["window", "window", "pieces", "many", "coverage", "retain", "restart"]),
        st.integers(1, 4),
        st.booleans(),
    ),
    max_size=25,
)


@contextmanager
def played(
    folder: Path, history: Sequence[Step], meanwhile: Callable[[], None] = lambda: None
) -> Iterator[list[Block]]:
    """Write a history into a log, and give everything that was appended; the writer stays until the block ends.

    Args:
        folder: of the log.
        history: its steps.
        meanwhile: called whenever readers may see something new.
    """
    writer = ChangeLogWriter.open(folder, SMALL)
    blocks: list[Block] = []
    try:
        for kind, number, sync in history:
            if kind == "retain":
                writer.retain()
            elif kind == "restart":
                writer.close()
                writer = ChangeLogWriter.open(folder, SMALL)
            else:
                for block in _next_blocks(kind, number, last_scn(blocks)):
                    writer.append(block)
                    blocks.append(block)
            if sync:
                writer.sync()
                meanwhile()
        writer.sync()
        yield blocks
    finally:
        writer.close()


def last_scn(blocks: Sequence[Block]) -> int:
    """Return the greatest SCN of some blocks, 0 for none."""
    return max((block.last_scn for block in blocks), default=0)


def _next_blocks(kind: str, number: int, last: int) -> list[Block]:
    """Return what one step appends; SCNs have gaps."""
    scn = last + number
    match kind:
        case "window":
            return [window(scn, number * 3, tables=(TABLE, OTHER), truncate=number == 4)]
        case "pieces":
            return [
                window(scn, 9, first=9 * i, last=i == number, text="piece")
                for i in range(number + 1)
            ]
        case "many":
            return [joined(window(scn + i) for i in range(number))]
        case _:
            return [coverage(scn)]
