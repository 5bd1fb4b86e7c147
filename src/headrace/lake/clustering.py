"""Columns by whose values somebody has a table's files clustered, by Spark's ``CLUSTER BY``.

The table says so in a domain of its metadata, by the names that files have for the columns. We keep that true through
our commits, and lay files side by side by these columns where we write some anew.

Source: Delta protocol, "Clustered Table" and "Domain Metadata".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.lake.commit import Action
from headrace.lake.mapping import in_files, name_in_files
from headrace.lake.snapshot import Snapshot

__all__ = ["FEATURES", "clustered_by", "clustering_actions"]

FEATURES = ("clustering", "domainMetadata")
"""Table features of such a table; they ask nothing of readers."""
_DOMAIN = "delta.clustering"
_COLUMNS = "clusteringColumns"

Field = Mapping[str, Any]


def clustered_by(held: Snapshot) -> tuple[str, ...]:
    """Return the columns by which a table is clustered, none for most tables."""
    names = {in_files(field): field.name for field in held.schema}
    return tuple(names[name] for name in _in_files(held) if name in names)


def clustering_actions(
    held: Snapshot, fields: Sequence[Field], names: Mapping[str, str] | None = None
) -> list[Action]:
    """Return what keeps a table's clustering true when its columns change, nothing where it stays as it is.

    Args:
        held: the table as it is.
        fields: its columns afterwards, as of the schema's text.
        names: the later name of each column, where its name in files changes; None where that stays. A column that
            goes is clustered by no more.
    """
    now = {field["name"]: name_in_files(field) for field in fields}
    if names is None:
        stays = [name for name in _in_files(held) if name in now.values()]
    else:
        stays = [now[names[name]] for name in clustered_by(held) if names.get(name) in now]
    if stays == _in_files(held):
        return []
    text = json.dumps({_COLUMNS: [[name] for name in stays]})
    return [{"domainMetadata": {"domain": _DOMAIN, "configuration": text, "removed": False}}]


def _in_files(held: Snapshot) -> list[str]:
    """Return the names that files have for the columns; ours are never parts of others."""
    text = held.domains.get(_DOMAIN)
    return ["".join(parts) for parts in json.loads(text)[_COLUMNS]] if text else []
