"""headrace keeps copies of live databases correct and fresh.

It reads a database's log, merges full-state reads of the tables into it without locks, keeps the
merged stream in a change log, and folds that with Spark into Delta tables.

``headrace.read`` and ``headrace.frontier`` read those tables as of one source commit.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["__version__", "frontier", "read"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load what reads tables only when somebody asks for it: no process of ours pays for Spark it does not use."""
    if name in ("frontier", "read"):
        return getattr(importlib.import_module("headrace.replicator.reading"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
