"""What people ask of a subscription, and what it says it is doing: the one thing that several threads share."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.client.start import Start
from headrace.client.states import State

__all__ = ["Control"]


class Control:
    """Requests from any thread, carried out by the one that delivers.

    Attributes:
        state: what the subscription does.
        error: why it is suspended or ended, or what failed last.
        asked: whether something was asked for that the delivering thread has to look at.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._paused = False
        self._stopping = False
        self._resumed = 0
        self._rewind: Start | None = None
        self.state = State.INIT
        self.error: Exception | None = None
        self.asked = False

    # -- asking -----------------------------------------------------------------------------------

    def pause(self) -> None:
        """Ask for a pause."""
        self._ask(lambda: setattr(self, "_paused", True))

    def resume(self) -> None:
        """Ask to go on."""

        def resume() -> None:
            self._paused = False
            self._resumed += 1

        self._ask(resume)

    def rewind(self, to: Start) -> None:
        """Ask to begin again elsewhere."""
        self._ask(lambda: setattr(self, "_rewind", to))

    def stop(self) -> None:
        """Ask for the end."""
        self._ask(lambda: setattr(self, "_stopping", True))

    def _ask(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self.asked = self._paused or self._stopping or self._rewind is not None
            self._changed.notify_all()

    # -- carrying out -----------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether the end was asked for."""
        return self._stopping

    def enter(self, state: State) -> None:
        """Say what the subscription does from now on."""
        with self._changed:
            self.state = state
            self._changed.notify_all()

    def sleep(self, seconds: float) -> bool:
        """Wait; return False, at once, when somebody wants an end or another place."""
        with self._changed:
            self._changed.wait_for(lambda: self._turned, seconds)
            return not self._turned

    def hold(self) -> bool:
        """Wait as long as the subscription is paused; return False when somebody wants an end or another place."""
        with self._changed:
            if self._paused and not self._turned:
                self.state = State.PAUSED
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._paused or self._turned)
                if not self._turned:
                    self.state = State.RESUMED
            return not self._turned

    def suspend(self, error: Exception, tell: Callable[[Exception], object]) -> bool:
        """Wait for a person; return False when that one wants an end or another place.

        Args:
            error: why.
            tell: is given it; whoever answers at once is heard.
        """
        with self._changed:
            self.state, self.error = State.SUSPENDED_ON_ERROR, error
            before = self._resumed
            self._changed.notify_all()
        tell(error)
        with self._changed:
            self._changed.wait_for(lambda: self._resumed != before or self._turned)
            if not self._stopping:
                self.state = State.RESUMED
            return not self._turned

    def taken_rewind(self) -> Start | None:
        """Return where somebody wants to begin again, once; None when nobody does."""
        with self._changed:
            to, self._rewind = self._rewind, None
            self.asked = self._paused or self._stopping
            return to

    def ended(self) -> None:
        """Say that it is over; what was asked for is forgotten."""
        with self._changed:
            self.state = State.SHUTDOWN
            self._stopping = False
            self.asked = self._paused or self._rewind is not None
            self._changed.notify_all()

    @property
    def _turned(self) -> bool:
        return self._stopping or self._rewind is not None
