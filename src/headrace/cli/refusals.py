"""What becomes of a command when the system refuses it something: a full disk, a file in the way, too few rights.

In: what Python says of it. Out: one line for people and an exit code; or nothing, where a command only shows how far
it is, and what it looks after goes on.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from headrace.cli.output import EXIT_ERROR, show_error
from headrace.durable import NO_ROOM
from headrace.errors import HeadraceError, StateError

__all__ = ["naming_refusals", "pass_over_no_room"]


@contextmanager
def naming_refusals() -> Iterator[None]:
    """End with exit code 2 and a readable message when the system refuses something inside the block.

    Letters that the output's encoding lacks are shown by their numbers, the bytes of a file's name among them.
    """
    _open_what_is_closed()
    _show_every_letter()
    try:
        yield
    except OSError as error:
        # A reader that has gone is no error: the library under us ends for it without a word.
        if error.errno == errno.EPIPE or os.environ.get("HEADRACE_DEBUG"):
            raise
        told = _told(error)
        # What the output did not take would be tried again at the very end, which is an error once more.
        pass_over_no_room()
        show_error(told)
        sys.exit(EXIT_ERROR)


def pass_over_no_room(*, output: bool = True) -> None:
    """Let what is said get lost from now on where there is no room for it: on a full disk, that is the least matter.

    Args:
        output: the standard output too; False where that is what the command is for.
    """
    # Who was started without one has None.
    if output and sys.stdout is not None:
        sys.stdout = cast(TextIO, _WithoutRoom(sys.stdout))
    if sys.stderr is not None:
        sys.stderr = cast(TextIO, _WithoutRoom(sys.stderr))


class _WithoutRoom:
    """A text file that loses what there is no room for."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write a text, or pass it over."""
        with _passing_over():
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what was held back, or leave it there."""
        with _passing_over():
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def _passing_over() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM | {errno.EBADF}:
            raise


def _open_what_is_closed() -> None:
    """Let an output that we were started without refuse what is written to it, and what is said beside it get lost.

    Their numbers are taken so: else the next file that is opened would be the output.
    """
    for number, name, mode in ((1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, mode)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


def _show_every_letter() -> None:
    with suppress(AttributeError, ValueError):
        # Of another's making, or closed, it stays as it is.
        if sys.stdout.errors == "strict":
            cast(Any, sys.stdout).reconfigure(errors="backslashreplace")


def _told(error: OSError) -> HeadraceError:
    """Return what an error of the system means; a file's name is all that is repeated of it."""
    reason = error.strerror or type(error).__name__
    if error.filename is not None:
        return StateError(
            f"{error.filename} cannot be used ({reason}).",
            next_step="look what lies there, who may read and write it, and whether its disk has room.",
        )
    if error.errno in NO_ROOM:
        return HeadraceError(
            f"There is no room for what the command writes ({reason}).",
            next_step="make room where its output goes, or let it go elsewhere.",
        )
    if error.errno == errno.EBADF:
        return HeadraceError(
            "The output of the command is closed.",
            next_step="let it go somewhere: >FILE, or >/dev/null.",
        )
    return HeadraceError(
        f"The system refused what the command needs ({reason}).",
        next_step="HEADRACE_DEBUG=1 shows where.",
    )
