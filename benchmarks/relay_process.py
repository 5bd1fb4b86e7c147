"""A relay in a process of its own, for the parts of the relay benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import Child, python, running

__all__ = ["LIMIT_S", "READY_S", "SEED", "Run", "relay"]

SEED = 5
READY_S = 120.0
LIMIT_S = 600.0

Run = dict[str, Any]


@contextmanager
def relay(**logs: Path) -> Iterator[tuple[Child, str]]:
    """Give a relay in a process of its own, and its address."""
    pairs = [f"{name}={folder}" for name, folder in logs.items()]
    with running(python("benchmarks.relay_server", *pairs)) as child:
        child.until_said("at http", READY_S)
        yield child, child.line("at http").removeprefix("at ")
