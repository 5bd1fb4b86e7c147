"""``tables.json`` of a feed: who it is, and what its tables look like, every version of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ProtocolError, SourceError, SourceUnavailable
from headrace.model.schema import TableId, TableSchema

__all__ = ["MANIFEST", "Manifest", "read_manifest"]

MANIFEST = "tables.json"
"""Name of the file in the feed's folder."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a feed says of itself.

    Attributes:
        feed: its name, which another feed does not have.
        first: the version that each table begins with.
        versions: every version, by its id.
    """

    feed: str
    first: Mapping[TableId, TableSchema]
    versions: Mapping[int, TableSchema]

    def version(self, schema_id: int) -> TableSchema:
        """Return a version.

        Raises:
            SourceError: the feed does not describe it.
        """
        if schema_id not in self.versions:
            raise SourceError(
                f"The feed {self.feed} tells of a table version {schema_id}, which {MANIFEST} does not describe.",
                next_step=f"add the version to {MANIFEST}; versions that were there stay.",
            )
        return self.versions[schema_id]


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a feed.

    Raises:
        SourceUnavailable: it is not there, or may not be read.
        SourceError: it is malformed.
    """
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SourceUnavailable(
            f"{path} cannot be read: {error.strerror}.",
            next_step="see that the feed's folder is there, with its description of the tables.",
        ) from error
    try:
        value = json.loads(text)
        feed = value["feed"]
        schemas = [TableSchema.from_json(one) for one in value["tables"]]
        if not isinstance(feed, str) or not feed:
            raise ValueError("feed has no name")
    except (ValueError, KeyError, TypeError, ProtocolError) as error:
        raise SourceError(
            f"{path} is malformed ({type(error).__name__}).",
            next_step="write it as docs/files.md has it.",
        ) from error
    first: dict[TableId, TableSchema] = {}
    for schema in schemas:
        first.setdefault(schema.table, schema)
    return Manifest(feed, first, {schema.schema_id: schema for schema in schemas})
