"""The watermark window: which marks may arrive in which order.

Pure. A window is opened with a token, its low mark comes back through the log, then its high mark, and nothing else
with our run id may. Marks of other runs are orphans of a dead process and are drained silently; marks of windows we
gave up come late and are drained too. Anything else means that the log, or somebody in it, is not what the
algorithm assumes, and capture stops with the broken rule's name.

Source: DBLog, Algorithm 1 steps 1 to 7.
"""

from __future__ import annotations

from enum import Enum, auto

from headrace.errors import WatermarkOutOfOrder
from headrace.model.mark import Mark, MarkKind

__all__ = ["Window", "WindowState"]


class WindowState(Enum):
    """Where a window stands."""

    NONE = auto()
    """No window; no mark of ours may arrive."""
    OPENING = auto()
    """The low mark is on its way."""
    OPEN = auto()
    """The low mark was received; log events may collide with the chunk."""
    CLOSING = auto()
    """An end mark is on its way; there is no chunk."""


class Window:
    """One window at a time; validates each mark that the log brings.

    Args:
        run_id: of this process; marks of other runs are ignored.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.state = WindowState.NONE
        self.token = ""
        self._given_up: set[str] = set()
        self._closed: set[str] = set()

    def open(self, token: str, *, chunk: bool = True) -> None:
        """Expect the marks of a new window: low and high around a chunk, or a single end mark."""
        self.token = token
        self.state = WindowState.OPENING if chunk else WindowState.CLOSING

    def give_up(self) -> None:
        """Void the window; its marks may still come and are drained."""
        if self.token:
            self._given_up.add(self.token)
        self.token, self.state = "", WindowState.NONE

    def receive(self, mark: Mark) -> bool:
        """Take a mark from the log; return whether it ends the window.

        Raises:
            WatermarkOutOfOrder: the mark breaks a rule; the message names it.
        """
        if mark.run_id != self.run_id or mark.token in self._given_up:
            return False
        if mark.token in self._closed:
            raise _broken("duplicate mark", mark, "a window's marks arrive once")
        if mark.token != self.token:
            raise _broken("unknown token", mark, "only the open window's marks arrive")
        if mark.kind is MarkKind.LOW and self.state is WindowState.OPENING:
            self.state = WindowState.OPEN
            return False
        if mark.kind is MarkKind.LOW and self.state is WindowState.OPEN:
            raise _broken("duplicate low mark", mark, "the low mark arrives once")
        if mark.kind is MarkKind.HIGH and self.state is WindowState.OPENING:
            raise _broken("high mark first", mark, "the low mark arrives before the high mark")
        ends = {WindowState.OPEN: MarkKind.HIGH, WindowState.CLOSING: MarkKind.END}
        if ends.get(self.state) is not mark.kind:
            raise _broken(
                "unexpected mark", mark, f"no {mark.kind.value} mark belongs to this window"
            )
        self._closed.add(self.token)
        self.token, self.state = "", WindowState.NONE
        return True

    def reconnected(self) -> None:
        """Void the window, and expect marks that came before to come again."""
        self.give_up()
        self._given_up |= self._closed
        self._closed.clear()


def _broken(what: str, mark: Mark, rule: str) -> WatermarkOutOfOrder:
    return WatermarkOutOfOrder(
        f"Watermark out of order: {what} (kind {mark.kind.value}); the rule is that {rule}.",
        next_step="find out who else writes headrace's watermarks at the source, then restart capture.",
    )
