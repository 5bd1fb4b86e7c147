"""A word in a page that several processes have mapped: who waits for it to change sleeps in the kernel.

In: a mapped page and a place in it. Out: a count that rises with each `Bell.ring`, and `Bell.wait`, which returns
within microseconds of it, in whatever process. Where the system has no such call, who waits looks every half
millisecond.

Source: futex(2); its number on each machine from the kernel's system call tables.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
import time

import numpy as np

__all__ = ["Bell"]

_POLL_S = 0.0005
"""How often is looked where nobody can be woken: a look costs microseconds, and who waits wants to know at once."""

_WAIT, _WAKE = 0, 1
_EVERYBODY = 2**31 - 1
_CALLS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_COUNTS = 2**32


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64))


def _number() -> int:
    """Return the number of the call, 0 where there is none that is known."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return 0
    return _CALLS.get(platform.machine(), 0)


_NUMBER = _number()
_call = ctypes.CDLL(None).syscall
_call.argtypes = (
    ctypes.c_long,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.POINTER(_Time),
    ctypes.c_void_p,
    ctypes.c_uint32,
)
_call.restype = ctypes.c_long


class Bell:
    """A word of 32 bits, little-endian, at a multiple of four.

    Args:
        page: shared with other processes; whoever only waits may have mapped it for reading alone.
        offset: of the word in it.
    """

    def __init__(self, page: mmap.mmap, offset: int) -> None:
        self._word = np.frombuffer(page, "<u4", 1, offset)
        self._address = self._word.ctypes.data

    @property
    def rung(self) -> int:
        """How often it rang; begins anew after four thousand million times."""
        return int(self._word[0])

    def ring(self) -> None:
        """Let everybody look who waits. For the one process that writes the page."""
        self._word[0] = (self.rung + 1) % _COUNTS
        if _NUMBER:
            _call(_NUMBER, self._address, _WAKE, _EVERYBODY, None, None, 0)

    def wait(self, rung: int, timeout_s: float) -> None:
        """Return when it has rung since it had rung so often, or after a while; now and then for no reason at all."""
        if not _NUMBER:
            time.sleep(min(_POLL_S, timeout_s))
            return
        seconds, rest = divmod(max(0.0, timeout_s), 1.0)
        limit = _Time(int(seconds), int(rest * 1e9))
        # What the caller saw is compared again under the kernel's own lock, so nothing rings unheard in between.
        _call(_NUMBER, self._address, _WAIT, rung, limit, None, 0)

    def close(self) -> None:
        """Let the page go, which cannot be closed before."""
        del self._word
        self._address = 0
