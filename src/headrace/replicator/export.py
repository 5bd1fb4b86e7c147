"""Where a replicator stands, as two files in the layout of the Replicator's design, for tools that know that layout.

    <folder>/<namespace>/<name>/<generation>/offset.<commit time, milliseconds>
                                            /state.json

Both are told by what the parts left on disk, and read by nobody here. The offset is that of the newest frontier:
all numbers are big-endian, lengths and the number of entries have 32 bits, the sequence and the SCN 64.
The sequence counts changes: it is the number of the last one up to the SCN.

Source: docs/requirements.md, C102 and C103.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.durable import replace_file
from headrace.errors import ConfigError, StateError
from headrace.lake.frontier import FrontierStore
from headrace.replicator.config import Config
from headrace.replicator.picture import Observer, Picture, TablePicture

__all__ = ["Exported", "Offset", "export", "state_of", "table_state"]

_NAMESPACE = re.compile(r"[A-Za-z0-9_-]+")
_HEAD = struct.Struct(">qi")
_LENGTH = struct.Struct(">i")
_LONG = struct.Struct(">q")
_STATES = {"live": "REPLICATING", "failing": "FAILING", "left": "LEFT"}
"""By phase; every other one is on its way to *live*."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A place in a source's history.

    Attributes:
        sequence: number of the last change up to it; never falls from one offset to the next.
        entries: what the source needs to go on from there.
    """

    sequence: int
    entries: Mapping[str, bytes]

    def to_bytes(self) -> bytes:
        """Return the sequence, the number of entries, and each with its key and value behind their lengths."""
        parts = [_HEAD.pack(self.sequence, len(self.entries))]
        for key, value in self.entries.items():
            for part in (key.encode(), value):
                parts += [_LENGTH.pack(len(part)), part]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Offset:
        """Read what `to_bytes` gave.

        Raises:
            StateError: the bytes are no offset.
        """
        try:
            sequence, count = _HEAD.unpack_from(data)
            place, parts = _HEAD.size, list[bytes]()
            for _ in range(2 * count):
                (length,) = _LENGTH.unpack_from(data, place)
                place += _LENGTH.size
                if not 0 <= length <= len(data) - place:
                    raise ValueError("a length beyond the end")
                parts.append(data[place : place + length])
                place += length
            if place != len(data) or count < 0:
                raise ValueError("bytes behind the last entry")
            keys = [key.decode() for key in parts[::2]]
        except (struct.error, ValueError) as error:
            raise StateError(
                f"{len(data)} bytes are no offset file ({type(error).__name__}).",
                next_step="write it anew: headrace export FILE --to FOLDER.",
            ) from None
        return cls(sequence, dict(zip(keys, parts[1::2], strict=True)))


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        offset: path of the offset file, None before the first frontier.
        state: path of the state file.
    """

    offset: Path | None
    state: Path


def export(config: Config, to: Path, namespace: str, generation: int) -> Exported:
    """Write both files; offsets of earlier commits stay.

    Args:
        config: of the replicator.
        to: folder of all exports.
        namespace: in which the replicator counts for the tools that read them.
        generation: likewise, of the replicators of one name.

    Raises:
        ConfigError: the namespace is no name of a folder.
        StateError: the folder refused.
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise ConfigError(
            "--namespace: expected letters, digits, - and _.",
            next_step="give the namespace that the reading tools know.",
        )
    folder = to / namespace / config.name / str(generation)
    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()
    frontier = FrontierStore(config.lake, config.name).at_or_below(picture.frontier_scn)
    offset = folder / f"offset.{frontier.commit_us // 1_000}" if frontier else None
    state = folder / "state.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if frontier is not None and offset is not None:
            place = Offset(frontier.changes, {"scn": _LONG.pack(frontier.scn)})
            replace_file(offset, place.to_bytes())
        replace_file(state, (json.dumps(state_of(picture), indent=2) + "\n").encode())
    except OSError as error:
        raise StateError(
            f"The folder {folder} cannot be written ({error.strerror}).",
            next_step="name a folder in which this user may write: headrace export FILE --to FOLDER.",
        ) from error
    return Exported(offset, state)


def state_of(picture: Picture) -> dict[str, Any]:
    """Return the state of source and tables in the shape of the design's ``getState``.

    Tables that left are not in it: the design forgets a table that was dropped, and has no word for one.
    """
    capture = picture.roles.get("capture")
    failed = capture.error if capture else None
    reason = failed["message"] if failed else picture.resync.get("reason", "")
    return {
        "sourceState": "FAILING" if reason else "OK",
        "sourceError": _error(reason),
        "tables": [_table(table) for table in picture.tables if table.phase != "left"],
    }


def table_state(phase: str) -> str:
    """Return the design's word for the phase of a table; ``LEFT`` is ours, for one that is gone at the source."""
    return _STATES.get(phase, "SNAPSHOTTING")


def _table(table: TablePicture) -> dict[str, Any]:
    schema, _, name = table.name.partition(".")
    error = _error(table.error)
    return {"database": schema, "table": name, "state": table_state(table.phase), "error": error}


def _error(message: str) -> dict[str, Any] | None:
    return {"message": message, "stackTrace": []} if message else None
