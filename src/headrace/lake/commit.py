"""One version of a table: a log entry that only one writer can create.

In: the version and its actions. Out: a durable ``_delta_log`` entry, or `CommitConflict` when somebody was faster.
Every file that the actions name has to be durable before.

Source: Delta protocol, "Delta Log Entries".
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.errors import TargetConflict
from headrace.store import Location, store_of

__all__ = [
    "APPLICATIONS",
    "ENGINE",
    "Action",
    "CommitConflict",
    "commit_info",
    "put_commit",
    "transaction",
]

APPLICATIONS = "headrace/"
"""What the application ids of all pipelines begin with."""
ENGINE = "headrace"
"""How our entries of a log say whose they are."""

Action = Mapping[str, Any]
"""One line of a log entry: the kind of the action and its body."""


class CommitConflict(TargetConflict):
    """Another writer created this version of the table first; nothing was written."""


def now_ms() -> int:
    """Return the time in the log's unit."""
    return time.time_ns() // 1_000_000


def transaction(application: str, version: int) -> Action:
    """Return the action that carries an application's position."""
    return {"txn": {"appId": application, "version": version, "lastUpdated": now_ms()}}


def commit_info(operation: str, **parameters: str) -> Action:
    """Return the action that tells people what a commit did."""
    body = {
        "timestamp": now_ms(),
        "operation": operation,
        "operationParameters": parameters,
        "isBlindAppend": False,
        "engineInfo": ENGINE,
        # Tells our entry of a log from anybody else's when the answer to its writing was lost.
        "txnId": str(uuid.uuid4()),
    }
    return {"commitInfo": body}


def put_commit(folder: Location, version: int, actions: Iterable[Action]) -> None:
    """Create one version of a table, durably and only if nobody has.

    Args:
        folder: of the table.
        version: one above the newest.
        actions: what it says; one is a `commit_info`, whose identifier no other entry has.

    Raises:
        CommitConflict: the version exists.
        OSError: the folder refused.
        TargetError: its store gives no answer, or refuses; the version may exist all the same, and is then ours.
    """
    store, log = store_of(folder), folder / "_delta_log"
    text = "".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions)
    try:
        store.put_if_absent(log / f"{version:020d}.json", text.encode())
    except FileExistsError as error:
        raise CommitConflict(
            f"Another writer created version {version} of the table {folder.name}.",
            next_step="let headrace be the only writer of the table; the batch is tried again.",
        ) from error
    if version == 0:
        store.sync([folder])
