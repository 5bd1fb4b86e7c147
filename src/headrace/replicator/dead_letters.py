"""The dead letters of a replicator: look at them, replay them, do without them. Command line and API do nothing else.

A replay reads the rows that a letter speaks of from the source again, through a watermark window: what comes is as new
as everything else, so no row ever goes back to what it was when the letter was written. Rows that the source no longer
has are deleted. It works whether or not the replicator runs::

    with DeadLetters(config) as letters:
        for letter in letters.all():
            print(letter.letter_id, letter.error["message"])
        letters.replay("public.orders@81")
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from headrace.changelog.dead_letters import DeadLetter, DeadLetterStore, LetterState
from headrace.client import Window
from headrace.client.rows import Rows
from headrace.errors import CommandRefused, ConfigError, NotFound
from headrace.lake.modes import Mode
from headrace.lake.settings import settings_for
from headrace.outputs.formats import Format
from headrace.registry.file import FileRegistry
from headrace.replicator.asked import table_settings
from headrace.replicator.config import Config, DatabaseConfig
from headrace.replicator.databases import open_database
from headrace.replicator.known_tables import refuse_unknown
from headrace.replicator.paths import StatePaths
from headrace.state.records import RequestState, Scope
from headrace.state.store import StateStore

__all__ = ["MOST_KEYS", "DeadLetters", "replayed"]

MOST_KEYS = 10_000
"""Rows of one letter that are read again one by one; behind that it is the whole table."""
_REREADABLE = (Mode.MIRROR, Mode.SOFT_DELETE)


def replayed(database: Path, request: str) -> bool | None:
    """Return whether a replay's request has read its rows; False when it will not, None while it may."""
    with contextlib.closing(StateStore(database)) as store:
        found = store.request(request)
    if found is None or found.state in (RequestState.FAILED, RequestState.CANCELLED):
        return False
    return True if found.state is RequestState.COMPLETED else None


class DeadLetters:
    """The dead letters of one replicator; use it in a ``with`` block."""

    def __init__(self, config: Config) -> None:
        paths = StatePaths.of(config)
        self._config = config
        self._store = DeadLetterStore(paths.dead_letters)
        self._registry = FileRegistry(paths.registry)
        self._state = StateStore(paths.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._state.close()

    def all(self, table: str | None = None, *, ended: bool = False) -> list[DeadLetter]:
        """Return the letters, table by table in order of their transactions.

        Args:
            table: only of this one, ``schema.name``.
            ended: those too that were replayed or discarded.

        Raises:
            StateError: one does not read.
            UnknownTable: the replicator has no such table, and never put anything of one aside.
        """
        open_ = (LetterState.WAITING, LetterState.REPLAYING)
        letters = [letter for letter in self._store.all() if table in (None, str(letter.table))]
        if table is not None and not letters:
            refuse_unknown(self._config, table)
        return [letter for letter in letters if ended or letter.state in open_]

    def show(self, letter: str) -> DeadLetter:
        """Return one letter.

        Raises:
            NotFound: there is none of that name.
        """
        for found in self._store.all():
            if found.letter_id == letter:
                return found
        raise NotFound(
            f"Replicator {self._config.name} has no dead letter {letter}.",
            next_step="list them: headrace dead-letters list FILE --all.",
        )

    def rows(self, letter: str) -> Iterator[dict[str, Any]]:
        """Yield the changes of a letter, as the lines of a relay have them; none where they were discarded.

        Raises:
            NotFound: as `show`.
        """
        form, found = Format(), self.show(letter)
        window = Window(self._config.name, found.scn, found.scn, 1, found.commit_us, 0, "log")
        for block in self._store.blocks(found):
            for event in block.system:
                yield form.system(window, event)
            for body in block.bodies:
                schema = self._registry.get(body.schema_id)
                for change in Rows(body, schema, None).events(0, body.batch.num_rows):
                    yield form.change(window, change)

    def replay(self, letter: str) -> DeadLetter:
        """Ask for a letter's rows at the source, and return it; one whose replay is under way stays as it is.

        Raises:
            NotFound: as `show`.
            CommandRefused: it was replayed or discarded.
            ConfigError: its rows cannot be read again: the changes come from a relay, or the table keeps more than
                the present.
        """
        found = self.show(letter)
        if found.state is LetterState.REPLAYING:
            return found
        _refuse_ended(found)
        self._refuse_unreadable(found)
        keys = self._keys(found)
        if keys is None:
            request = self._state.submit(Scope.TABLE, found.table)
        else:
            request = self._state.submit(Scope.PRIMARY_KEYS, found.table, keys, delete_missing=True)
        return self._store.update(found, state=LetterState.REPLAYING, request=request, reason="")

    def discard(self, letter: str) -> DeadLetter:
        """Do without a letter's changes, which are deleted; its table comes back into the frontier without them.

        Raises:
            NotFound: as `show`.
            CommandRefused: it was replayed, or is being replayed.
        """
        found = self.show(letter)
        if found.state is LetterState.DISCARDED:
            return found
        if found.state is LetterState.REPLAYING:
            raise CommandRefused(
                f"Dead letter {letter} is being replayed by request {found.request}.",
                next_step=f"wait for it, or cancel it first: headrace dump cancel FILE {found.request}.",
            )
        _refuse_ended(found)
        return self._store.update(found, state=LetterState.DISCARDED)

    def _refuse_unreadable(self, letter: DeadLetter) -> None:
        if not isinstance(self._config.source, DatabaseConfig):
            raise ConfigError(
                f"{self._config.name} reads its changes from a relay, which reads no row again for it.",
                next_step="ask for the rows where the source's capture runs, then discard the letter.",
            )
        mode = settings_for(letter.table, table_settings(self._config)).mode
        if mode not in _REREADABLE:
            raise ConfigError(
                f"{letter.table} keeps what was ({mode.value}), and the source only has what is.",
                next_step="correct the cause and rewind to before the letter: headrace rewind FILE; or discard it.",
            )

    def _keys(self, letter: DeadLetter) -> list[tuple[str, ...]] | None:
        """Return the keys of a letter's rows as the source renders them, None where the whole table is read."""
        database, found = open_database(self._config), dict[tuple[str, ...], None]()
        for block in self._store.blocks(letter):
            for body in block.bodies:
                schema = self._registry.get(body.schema_id)
                if not schema.key or letter.truncated or len(found) > MOST_KEYS:
                    return None
                found.update(dict.fromkeys(database.render_keys(schema, body.batch)))
        return list(found) if 0 < len(found) <= MOST_KEYS else None


def _refuse_ended(letter: DeadLetter) -> None:
    if letter.state in (LetterState.REPLAYED, LetterState.DISCARDED):
        raise CommandRefused(
            f"Dead letter {letter.letter_id} was {letter.state.value}.",
            next_step="there is nothing to do; headrace dead-letters list FILE shows those that wait.",
        )
