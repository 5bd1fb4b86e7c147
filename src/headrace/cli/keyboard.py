"""Single keys from a terminal, or lines where there is none."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType

__all__ = ["Keyboard"]


class Keyboard:
    """Reads keys without Enter on a terminal; elsewhere each line is one key, its first character."""

    def __init__(self) -> None:
        self._saved: list[object] | None = None

    def __enter__(self) -> Keyboard:
        if sys.stdin.isatty():
            self._saved = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._saved is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._saved)  # type: ignore[arg-type]

    def next(self) -> str:
        """Wait for a key; ``q`` at the end of the input."""
        if self._saved is not None:
            return self._key()
        line = sys.stdin.readline()
        return line[:1].strip() or " " if line else "q"

    def within(self, seconds: float) -> str:
        """Wait at most so long; "" when no key came, and always where there is no terminal."""
        if self._saved is None:
            if seconds:
                time.sleep(seconds)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return self._key() if ready else ""

    def _key(self) -> str:
        # Past Python's own buffer: what lay in it `select` would not see.
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") or "q"
