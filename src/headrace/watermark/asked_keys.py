"""Requests that name their keys: how they begin, and what becomes of them when the table has another key by then.

A key is a text per column of the key that the table had when it was given. Looked for under another one it is found
nowhere, or is somebody else's: the rows that were asked for would be left out, and those keys deleted from the target.
So none is read by another key than the one it was given for.
"""

from __future__ import annotations

import logging

from headrace.watermark.reads import KeysStart
from headrace.watermark.tasks import Phase, Task, TaskQueue

__all__ = ["begin_keys", "fail_keyed_otherwise", "names_keys"]

_LOG = logging.getLogger(__name__)


def names_keys(task: Task) -> bool:
    """Return whether what a task reads was named to it, by people or by a comparison: it cannot find it anew."""
    return bool(task.request.keys) or task.repairs


def begin_keys(queue: TaskQueue, task: Task, start: KeysStart) -> None:
    """Read requested keys from the first on, or give them up.

    From the first also when some were read before a restart: rows that came and went since make one key of two given
    texts, or two of one, so a place among the keys of before is none among these. Keys that had no row are looked for
    again with them.
    """
    if task.is_keyed_otherwise(start.key_order, keyless=start.keyless):
        fail_keyed_otherwise(queue, task)
        return
    if refused := start.refused or task.refused:
        queue.fail(task, refused)
        return
    task.keys, task.phase = start.keys, Phase.KEYS
    _forget_missing(queue, task)
    queue.update(
        task,
        state="copying",
        rows_estimated=len(start.keys),
        keys_done=0,
        key_order=start.key_order,
    )


def _forget_missing(queue: TaskQueue, task: Task) -> None:
    if task.missing:
        task.missing, request_id = (), task.request.request_id
        queue.pending.append(lambda w: w.request_missing(request_id, ()))


def fail_keyed_otherwise(queue: TaskQueue, task: Task) -> None:
    """Give up keys that are of another key than the table has now; a gap stays open, and is compared again."""
    table = task.progress.table
    _LOG.warning("%s: its key or the key's order was changed before its rows were read.", table)
    then = "It is compared again." if task.repairs else "Ask again with keys as they are now."
    queue.fail(
        task,
        f"{table} has another key, or orders it otherwise, than when the keys to read were given. {then}",
    )
