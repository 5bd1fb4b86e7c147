"""headrace keeps copies of live databases correct and fresh.

It reads a database's log, merges full-state reads of the tables into it without locks, keeps the
merged stream in a change log, and folds that with Spark into Delta tables.

``headrace.read``, ``headrace.as_of`` and ``headrace.frontier`` read those tables as of one source commit;
``headrace.compare`` compares two of them.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["__version__", "as_of", "compare", "frontier", "read"]

__version__ = "0.1.0"

_HOME = {
    "as_of": "headrace.replicator.reading",
    "compare": "headrace.spark.compare",
    "frontier": "headrace.replicator.reading",
    "read": "headrace.replicator.reading",
}


def __getattr__(name: str) -> Any:
    """Load what reads tables only when somebody asks for it: no process of ours pays for Spark it does not use."""
    if home := _HOME.get(name):
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
