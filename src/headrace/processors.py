"""How a thread shares the machine's processors with others, by what Linux gives without a privilege."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

__all__ = ["ask_for_slices", "has_two"]

# Source: Linux, include/uapi/linux/sched/types.h and the tables of system calls.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_ATTR = struct.Struct("=IIQiIQQQII")


def ask_for_slices(slice_ns: int) -> None:
    """Let the system hand the processor over soon, in both directions: to others, and from them to this thread.

    Threads that it begins later inherit it. Linux listens from 6.12 on; elsewhere, and where it is refused, nothing
    changes.

    Args:
        slice_ns: how long the thread works at a stretch where others want its processor too; Linux takes no less than
            100,000.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    asked = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, asked, 0)


def has_two() -> bool:
    """Return whether this thread may run on exactly two processors, False where the system does not say."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) == 2
