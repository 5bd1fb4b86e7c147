"""A registry as a folder of small files, one per schema id, readable by any process at any time."""

from __future__ import annotations

import json
import os
from pathlib import Path

from headrace.durable import NO_ROOM, make_folder, replace_file
from headrace.errors import DiskFull, HeadraceError, ProtocolError, StateError
from headrace.model.schema import TableSchema

__all__ = ["FileRegistry"]


class FileRegistry:
    """Keeps ``<schema id in hex>.json`` files; a written file never changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cache: dict[int, TableSchema] = {}

    def put(self, schema: TableSchema) -> int:
        """Keep a schema and return its id; it is on disk when this returns.

        Raises:
            DiskFull: the file system has no room for it.
            StateError: the folder cannot be written for another reason.
        """
        schema_id = schema.schema_id
        if schema_id in self._cache:
            return schema_id
        path = self._path(schema_id)
        try:
            if not path.exists():
                self._write(path, json.dumps(schema.to_json(), indent=1, sort_keys=True))
        except OSError as error:
            raise self._refused(error) from error
        self._cache[schema_id] = schema
        return schema_id

    def get(self, schema_id: int) -> TableSchema:
        """Return the schema of an id.

        Raises:
            StateError: when no such version was ever kept, or its file is damaged.
        """
        if schema_id not in self._cache:
            self._cache[schema_id] = self._read(schema_id)
        return self._cache[schema_id]

    def has(self, schema_id: int) -> bool:
        """Return whether a version was ever kept."""
        return schema_id in self._cache or self._path(schema_id).exists()

    def all(self) -> list[TableSchema]:
        """Return every version that was ever kept, in the order in which they came.

        Raises:
            StateError: a file is damaged.
        """
        if not self._folder.exists():
            return []
        found = sorted((path.stat().st_mtime_ns, path.stem) for path in self._folder.glob("*.json"))
        return [self.get(int(name, 16)) for _, name in found]

    def _write(self, path: Path, text: str) -> None:
        make_folder(self._folder)
        replace_file(path, text.encode())

    def _read(self, schema_id: int) -> TableSchema:
        try:
            value = json.loads(self._path(schema_id).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise self._unusable(schema_id, "is not there") from error
        except (OSError, ValueError) as error:
            raise self._unusable(schema_id, f"does not read ({type(error).__name__})") from error
        try:
            return TableSchema.from_json(value)
        except ProtocolError as error:
            raise self._unusable(schema_id, "is damaged") from error

    def _unusable(self, schema_id: int, what: str) -> StateError:
        return StateError(
            f"Schema {schema_id:016x} of the registry {self._folder} {what}.",
            next_step="restore the registry folder; it belongs to the change log beside it.",
        )

    def _refused(self, error: OSError) -> HeadraceError:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        kind = DiskFull if error.errno in NO_ROOM else StateError
        return kind(
            f"The registry {self._folder} cannot be written: {reason}.",
            next_step="make room on its file system, and check its rights; nothing was acknowledged.",
        )

    def _path(self, schema_id: int) -> Path:
        return self._folder / f"{schema_id:016x}.json"
