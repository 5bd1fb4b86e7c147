"""What capture does without, for it answers in milliseconds.

pyarrow imports pandas, where it is installed, before it makes its first array: capture would pay with start-up time and
memory for a library that Spark needs and capture never touches. Arrow's own allocator keeps what it has had, a quarter
of the memory of a busy capture; the C library's gives it back, once it is told to keep large blocks out of its heaps.
numpy starts threads for matrices that nobody multiplies. Python's collector would walk over every imported module
each time it looks for garbage. And the thread that reads a table's rows would hold up the one that follows the log,
as would a process beside, which the system lets work for milliseconds before it hands the processor over.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.abc
import os
import sys

from headrace.processors import ask_for_slices

__all__ = ["begin_lean", "leave_to_stay"]


# Source: mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BYTES, _KEPT_BYTES = 4 << 20, 64 << 20
_SWITCH_S = 0.0005
"""How long a thread waits for another one's lock on the interpreter; Python's own 5 ms are longer than the whole way of
a commit into the log, on which the lock is let go and taken again a dozen times."""

_SLICE_NS = 300_000
"""How long this process works at a stretch where others want its processor too. In return it need not wait until they
have had theirs: Linux lets who asks for little go first, from 6.12 on, and takes no notice before."""


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
    sys.setswitchinterval(_SWITCH_S)
    ask_for_slices(_SLICE_NS)
    _keep_large_blocks_apart()


def _keep_large_blocks_apart() -> None:
    """Let freed batches go back to the system, each by itself.

    glibc moves its bound for that up to the largest block that was ever freed. Batches then lie in heaps among small
    blocks that outlive them, and the holes fit the next batch or do not: half as much again as is in use, by chance.
    What is free at a heap's end stays, as it does when glibc moves the bound; else each batch would begin with faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def leave_to_stay() -> None:
    """Keep the collector of garbage from looking again at what exists by now."""
    gc.collect()
    gc.freeze()
