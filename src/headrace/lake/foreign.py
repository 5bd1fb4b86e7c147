"""Whether an entry of a table's log is somebody else's, and changed rows that were there.

Rows that others add stand beside ours, and files that they write anew hold the same rows. Rows that went, changed or
came back as they were once are those of the source no more, and no position tells: a ``RESTORE`` keeps the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.lake.commit import APPLICATIONS, ENGINE

__all__ = ["foreign_operation"]


def foreign_operation(actions: Iterable[Mapping[str, Any]]) -> str:
    """Return the operation by which somebody else changed rows that were there; empty for one of ours, or for none.

    Args:
        actions: of one entry of the log.
    """
    operation, changes = "an operation without a name", False
    for action in actions:
        if info := action.get("commitInfo"):
            if info.get("engineInfo") == ENGINE:
                return ""
            operation = str(info.get("operation") or operation)
            changes = changes or operation == "RESTORE"
        elif (told := action.get("txn")) and str(told["appId"]).startswith(APPLICATIONS):
            # Spark writes it for us.
            return ""
        elif gone := action.get("remove"):
            changes = changes or bool(gone.get("dataChange", True))
    return operation if changes else ""
