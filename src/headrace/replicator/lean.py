"""What capture does without, for it answers in milliseconds.

pyarrow imports pandas, where it is installed, before it makes its first array: capture would pay with start-up time and
memory for a library that Spark needs and capture never touches. Arrow's own allocator keeps what it has had, a quarter
of the memory of a busy capture; the C library's gives it back. numpy starts threads for matrices that nobody
multiplies. And Python's collector would walk over every imported module each time it looks for garbage.
"""

from __future__ import annotations

import gc
import importlib.abc
import os
import sys

__all__ = ["begin_lean", "leave_to_stay"]


class _NoPandas(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)


def begin_lean() -> None:
    """Settle what libraries do when they are first imported; what was imported before stays as it is."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())


def leave_to_stay() -> None:
    """Keep the collector of garbage from looking again at what exists by now."""
    gc.collect()
    gc.freeze()
