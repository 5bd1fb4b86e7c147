"""What Spark throws, as errors of ours.

Tasks and the Python side of a data source hand their errors over as text. Values of rows may stand in
that text, so only the parts that we know are taken from it; the original stays chained for a debugger.
"""

from __future__ import annotations

import re

from headrace import errors
from headrace.errors import (
    ApplyInterrupted,
    HeadraceError,
    MissingBase,
    NegativeCount,
    TargetConflict,
    TargetError,
    TargetUnwritable,
)
from headrace.model.schema import TableId, TableSchema
from headrace.spark.columns import mask_columns

__all__ = ["MISSING_BASE", "NEGATIVE_COUNT", "known", "translate"]

MISSING_BASE = "headrace-missing-base:"
"""What a statement raises, followed by the mask in hexadecimal, when a patch finds no row."""
NEGATIVE_COUNT = "headrace-negative-count"
"""What a statement raises when a row would be held fewer than zero times."""

_MISSING = re.compile(MISSING_BASE + r"([0-9A-Fa-f]*)")
_OURS = re.compile(r"headrace\.(?:\w+\.)*errors\.(\w+): ([^\n]*)")
_CONFLICT = re.compile(r"DELTA_CONCURRENT_\w+|Concurrent\w+Exception|DELTA_METADATA_CHANGED")
_INTERRUPTED = re.compile(
    r"Python worker failed to connect back|Python worker exited unexpectedly|ExecutorLostFailure"
    r"|SparkContext was shut down|ConnectionRefusedError|Py4JNetworkError|FetchFailed"
    r"|SparkConnectGrpcException|RetriesExceeded|StatusCode\.UNAVAILABLE"
    # Of a server of Spark Connect that was started anew and knows nothing of us.
    r"|NO_ACTIVE_SESSION|NO_ACTIVE_EXECUTOR|INVALID_HANDLE\.SESSION_\w+"
)
_UNWRITABLE = re.compile(
    r"Permission denied|No space left|Read-only file system|Mkdirs failed|AccessDenied|Not a directory"
    r"|Disk quota exceeded|FileAlreadyExistsException|Is a directory|NoSuchFileException"
)


def known(error: Exception) -> HeadraceError | None:
    """Return the error of ours that ``error`` is, or carries as text from a Python worker; None when it is neither."""
    if isinstance(error, HeadraceError):
        return error
    match = _OURS.search(str(error))
    return _rebuilt(match[1], match[2]) if match else None


def translate(error: Exception, table: TableId, schema: TableSchema | None) -> HeadraceError:
    """Return the error of ours that says what ``error`` means for a table."""
    if isinstance(error, HeadraceError):
        return error
    text = str(error)
    if schema and (match := _MISSING.search(text)):
        return MissingBase(
            str(table), f"({', '.join(schema.key)})", mask_columns(match[1], schema.names)
        )
    if NEGATIVE_COUNT in text:
        return NegativeCount(
            f"{table} has no key, and a change removes a row more often than the target holds it.",
            next_step=f"copy the table again: headrace dump start FILE --table {table}.",
        )
    if ours := known(error):
        return ours
    if match := _CONFLICT.search(text):
        return TargetConflict(
            f"Another writer changed the target table of {table} during a commit ({match[0]}).",
            next_step="let headrace be the only writer of the table; the batch is tried again.",
        )
    if match := _UNWRITABLE.search(text):
        return TargetUnwritable(
            f"The target table of {table} cannot be written: {match[0]}.",
            next_step="give this process room and write permission there; the batch is tried again.",
        )
    if match := _INTERRUPTED.search(f"{type(error).__name__} {text}"):
        return ApplyInterrupted(
            f"Spark was interrupted on the target table of {table}: {match[0]}.",
            next_step="the batch is tried again; if it happens often, give the machine room.",
        )
    return TargetError(
        f"Spark failed on the target table of {table}: {_kind(error)}.",
        next_step="the batch is tried again; HEADRACE_DEBUG=1 puts Spark's whole error into the apply log.",
    )


def _rebuilt(name: str, text: str) -> HeadraceError:
    """Return an error of ours that came as text from another process."""
    kind = getattr(errors, name, HeadraceError)
    if not (isinstance(kind, type) and issubclass(kind, HeadraceError)):
        kind = HeadraceError
    message, _, next_step = text.partition(" Next step: ")
    found = kind.__new__(kind)
    HeadraceError.__init__(found, message, next_step=next_step)
    return found


def _kind(error: Exception) -> str:
    """Return the name of an error without its text, which may hold values."""
    condition = getattr(error, "getCondition", None)
    name = condition() if callable(condition) else None
    if name:
        return str(name)
    found = re.search(r"(?:[\w$]+\.)+(\w*(?:Exception|Error))", str(error))
    return found[1] if found else type(error).__name__
