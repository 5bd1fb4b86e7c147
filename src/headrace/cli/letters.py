"""The dead letters that a command means: those of a file, or of a control plane's replicator, as plain values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from headrace.cli.server import Server

if TYPE_CHECKING:
    from headrace.replicator.dead_letters import DeadLetters

__all__ = ["Letters", "letters_at", "letters_of"]

_MOST = 10_000
"""Letters, and changes of one, that a control plane gives in one answer."""


class Letters(Protocol):
    """What the commands do with letters; refusals as of `headrace.replicator.dead_letters.DeadLetters`."""

    def all(self, table: str | None, *, ended: bool) -> list[dict[str, Any]]:
        """Return the letters, those that have ended too where asked for."""
        ...

    def show(self, letter: str) -> dict[str, Any]:
        """Return one letter."""
        ...

    def rows(self, letter: str) -> Iterator[dict[str, Any]]:
        """Yield its changes."""
        ...

    def replay(self, letter: str) -> dict[str, Any]:
        """Ask for its rows at the source, and return it."""
        ...

    def discard(self, letter: str) -> dict[str, Any]:
        """Do without its changes, and return it."""
        ...


@contextlib.contextmanager
def letters_of(file: Path) -> Iterator[Letters]:
    """Open the letters of the replicator that a file describes.

    Raises:
        ConfigError: the file cannot be used.
    """
    from headrace.replicator import config_file
    from headrace.replicator.dead_letters import DeadLetters

    with DeadLetters(config_file.load(file)) as letters:
        yield _OfFile(letters)


def letters_at(server: Server, name: str) -> Letters:
    """Return the letters of a control plane's replicator."""
    return _AtServer(server, f"replicators/{quote(name)}/dead-letters")


class _OfFile:
    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters
        self.rows = letters.rows

    def all(self, table: str | None, *, ended: bool) -> list[dict[str, Any]]:
        return [letter.to_json() for letter in self._letters.all(table, ended=ended)]

    def show(self, letter: str) -> dict[str, Any]:
        return self._letters.show(letter).to_json()

    def replay(self, letter: str) -> dict[str, Any]:
        return self._letters.replay(letter).to_json()

    def discard(self, letter: str) -> dict[str, Any]:
        return self._letters.discard(letter).to_json()


class _AtServer:
    def __init__(self, server: Server, path: str) -> None:
        self._server, self._path = server, path

    def all(self, table: str | None, *, ended: bool) -> list[dict[str, Any]]:
        asked = {"table": table, "ended": str(ended).lower(), "limit": _MOST}
        found: list[dict[str, Any]] = self._server.within("GET", self._path, **asked)["letters"]
        return found

    def show(self, letter: str) -> dict[str, Any]:
        found: dict[str, Any] = self._server.within("GET", self._of(letter))
        return found

    def rows(self, letter: str) -> Iterator[dict[str, Any]]:
        yield from self._server.within("POST", f"{self._of(letter)}/rows", limit=_MOST)["rows"]

    def replay(self, letter: str) -> dict[str, Any]:
        return self._steered(letter, "replay")

    def discard(self, letter: str) -> dict[str, Any]:
        return self._steered(letter, "discard")

    def _of(self, letter: str) -> str:
        return f"{self._path}/{quote(letter, safe='')}"

    def _steered(self, letter: str, verb: str) -> dict[str, Any]:
        moved: dict[str, Any] = self._server.within("POST", f"{self._of(letter)}/{verb}")
        return moved
