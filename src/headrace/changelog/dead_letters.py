"""Changes of a table that its target did not take: put aside one transaction at a time, for a person and for a replay.

In: the transaction's changes of that table, as the change log has them, and the error that they met. Out: two files per
letter, durable and readable by their owner alone: the blocks, and behind them what is known of the letter, which a
crash leaves there or not. Written by the apply job, and by whoever replays or discards a letter.

Source: docs/requirements.md, C67.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from headrace.durable import make_folder, replace_file, sync_folder
from headrace.errors import StateError
from headrace.model.block import Block
from headrace.model.schema import TableId
from headrace.observe.failpoints import failpoint
from headrace.wire.block import decode_block, encode_block, read_header

__all__ = ["DeadLetter", "DeadLetterStore", "LetterState"]


_LONGEST_NAME = 255
"""Bytes that a name may have in the file systems that there are."""


class LetterState(Enum):
    """What became of a letter."""

    WAITING = "waiting"
    """Nobody has seen to it: its table lacks these changes."""
    REPLAYING = "replaying"
    """Its rows were asked for at the source, and are on their way."""
    REPLAYED = "replayed"
    """Its rows came again."""
    DISCARDED = "discarded"
    """Somebody does without them."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The changes that one transaction made to one table.

    Attributes:
        table: the table.
        scn: of the transaction.
        commit_us: its commit, microseconds since 1970 UTC.
        rows: change rows.
        operations: of them, by operation.
        truncated: whether all rows of the table ceased to be in it.
        error: name, message and next step of what its target refused it with.
        aside_us: when it was put aside, same clock.
        state: what became of it.
        request: that reads its rows again, empty for none.
        reason: why the last replay came to nothing, empty otherwise.
        settled_scn: the change log has its rows again up to here, 0 before.
    """

    table: TableId
    scn: int
    commit_us: int
    rows: int
    operations: Mapping[str, int]
    truncated: bool
    error: Mapping[str, str]
    aside_us: int
    state: LetterState = LetterState.WAITING
    request: str = ""
    reason: str = ""
    settled_scn: int = field(default=0)

    @property
    def letter_id(self) -> str:
        """Name for people: ``schema.table@scn``."""
        return f"{self.table}@{self.scn}"

    def lacks(self, position: int) -> bool:
        """Return whether a table at a position lacks these changes, and whatever took their place."""
        if self.state is LetterState.DISCARDED or self.scn > position:
            return False
        return self.state is not LetterState.REPLAYED or position < self.settled_scn

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` restores an equal letter."""
        plain = {**asdict(self), "table": str(self.table), "state": self.state.value}
        return {"letter": self.letter_id, **plain}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Restore what `to_json` gave.

        Raises:
            KeyError: a field is missing.
            TypeError: a field is unknown.
            ValueError: a value is impossible.
        """
        plain = {name: cell for name, cell in value.items() if name != "letter"}
        table, state = TableId.parse(plain["table"]), LetterState(plain["state"])
        return cls(**{**plain, "table": table, "state": state})


class DeadLetterStore:
    """The letters of one replicator.

    Args:
        folder: made with the first letter.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, letter: DeadLetter, blocks: Iterator[Block]) -> None:
        """Keep a letter, durably: wholly or not at all; one that is there already stays as it is.

        Args:
            letter: what is known of it.
            blocks: its changes, in order; read one by one.

        Raises:
            StateError: it cannot be written.
        """
        place = self._place(letter.table, letter.scn)
        if place.exists():
            return
        try:
            make_folder(place.parent, 0o700)
            path = place.with_suffix(".blocks")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                for block in blocks:
                    file.write(encode_block(block))
                file.flush()
                os.fsync(file.fileno())
            sync_folder(place.parent)
            sync_folder(self._folder)
            failpoint("letters.rows_written")
            self._note(letter)
        except OSError as error:
            raise _unwritable(letter, error) from error
        failpoint("letters.put")

    def update(self, letter: DeadLetter, **changed: Any) -> DeadLetter:
        """Note what became of a letter, and return it.

        Raises:
            StateError: it cannot be written.
        """
        moved = replace(letter, **changed)
        try:
            self._note(moved)
            if moved.state is LetterState.DISCARDED:
                self._place(moved.table, moved.scn).with_suffix(".blocks").unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(letter, error) from error
        return moved

    def forget(self, letter: DeadLetter) -> None:
        """Remove a letter, whose transaction is applied again."""
        place = self._place(letter.table, letter.scn)
        place.unlink(missing_ok=True)
        place.with_suffix(".blocks").unlink(missing_ok=True)
        sync_folder(place.parent)

    def of(self, table: TableId) -> Sequence[DeadLetter]:
        """Return the letters of a table, in order of their transactions.

        Raises:
            StateError: one does not read.
        """
        return [self._read(path) for path in sorted(self._folder_of(table).glob("*.json"))]

    def all(self) -> Sequence[DeadLetter]:
        """Return every letter, table by table; errors as of `of`."""
        return [self._read(path) for path in sorted(self._folder.glob("*/*.json"))]

    def blocks(self, letter: DeadLetter) -> Iterator[Block]:
        """Yield the changes of a letter; none where they were discarded.

        Raises:
            ProtocolError: the file is damaged.
        """
        path = self._place(letter.table, letter.scn).with_suffix(".blocks")
        data = memoryview(path.read_bytes() if path.exists() else b"")
        while data:
            length = read_header(data).length
            yield decode_block(data[:length])
            data = data[length:]

    def _note(self, letter: DeadLetter) -> None:
        text = json.dumps(letter.to_json(), indent=2, sort_keys=True)
        replace_file(self._place(letter.table, letter.scn), text.encode())

    def _folder_of(self, table: TableId) -> Path:
        name = quote(str(table), safe="")
        if len(name) > _LONGEST_NAME:
            # A letter beyond ASCII becomes up to nine; who looks into the folder reads the name in its files.
            digest = hashlib.sha256(str(table).encode()).hexdigest()
            name = f"{name[: _LONGEST_NAME - len(digest) - 1]}~{digest}"
        return self._folder / name

    def _place(self, table: TableId, scn: int) -> Path:
        return self._folder_of(table) / f"{scn:020d}.json"

    def _read(self, path: Path) -> DeadLetter:
        try:
            return DeadLetter.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"The dead letter {path} does not read ({type(error).__name__}).",
                next_step="restore it from a backup; without it its table takes these changes for new ones.",
            ) from error


def _unwritable(letter: DeadLetter, error: OSError) -> StateError:
    return StateError(
        f"The dead letter {letter.letter_id} cannot be written ({error.strerror or type(error).__name__}).",
        next_step="make room in the state folder; the batch is tried again.",
    )
