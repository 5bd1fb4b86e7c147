"""A registry as a folder of small files, one per schema id, readable by any process at any time."""

from __future__ import annotations

import json
import os
from pathlib import Path

from headrace.errors import StateError
from headrace.model.schema import TableSchema

__all__ = ["FileRegistry"]


class FileRegistry:
    """Keeps ``<schema id in hex>.json`` files; a written file never changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cache: dict[int, TableSchema] = {}

    def put(self, schema: TableSchema) -> int:
        """Keep a schema and return its id; it is on disk when this returns."""
        schema_id = schema.schema_id
        if schema_id in self._cache:
            return schema_id
        path = self._path(schema_id)
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}.tmp")
            with draft.open("w", encoding="utf-8") as file:
                json.dump(schema.to_json(), file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self._cache[schema_id] = schema
        return schema_id

    def get(self, schema_id: int) -> TableSchema:
        """Return the schema of an id.

        Raises:
            StateError: when no such version was ever kept.
        """
        if schema_id not in self._cache:
            try:
                text = self._path(schema_id).read_text(encoding="utf-8")
            except FileNotFoundError as error:
                raise StateError(
                    f"Schema {schema_id:016x} is not in the registry {self._folder}.",
                    next_step="restore the registry folder; it belongs to the change log beside it.",
                ) from error
            self._cache[schema_id] = TableSchema.from_json(json.loads(text))
        return self._cache[schema_id]

    def _path(self, schema_id: int) -> Path:
        return self._folder / f"{schema_id:016x}.json"
