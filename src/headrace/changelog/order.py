"""What may be appended after what."""

from __future__ import annotations

from pathlib import Path

from headrace.changelog.progress import Progress
from headrace.errors import ProtocolError
from headrace.model.block import Block

__all__ = ["check_follows", "split_open"]


def check_follows(block: Block, at: Progress, folder: Path) -> None:
    """Return when the block's transactions follow the log's, or carry on its open one.

    Raises:
        ProtocolError: when one would stand before or inside a transaction that is there.
    """
    if not len(block.index):
        return
    first_scn = block.first_scn
    continues = at.is_open and first_scn == at.last_scn
    if not continues and (at.is_open or first_scn <= at.last_scn):
        raise ProtocolError(
            f"A block that begins at SCN {first_scn} cannot follow SCN {at.last_scn} "
            f"({'open' if at.is_open else 'whole'}) in the change log {folder}.",
            next_step="start capture again: it leaves out what the log already has.",
        )
    if len(block.index) == 1:
        return
    scns = block.index["scn"]
    if not (scns[1:] > scns[:-1]).all() or not block.index["last_piece"][:-1].all():
        raise ProtocolError(
            f"The transactions of a block from SCN {block.first_scn} to {block.last_scn} do not rise.",
            next_step="report this as a defect of the source adapter.",
        )


def split_open(block: Block) -> list[Block]:
    """Return the block, or two: in the log a block with an open transaction holds nothing else.

    So an unfinished transaction can be cut off between two blocks, and no whole one goes with it.
    """
    if block.ends_complete or block.first_scn == block.last_scn:
        return [block]
    ended = int(block.index["scn"][-2])
    return [block.upto(ended), block.after(ended)]
