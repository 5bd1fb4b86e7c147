"""A new copy of a table beside the old one, which readers see until the new one is whole.

The copy is a Delta table of its own in ``<lake>/_headrace/<pipeline>/recopy/<schema>/<table>``, and everything that is
applied meanwhile goes there. One commit to the table itself then removes all old files and names all new ones, which
lie in its folder too by then, as hard links or copies; so readers see the old rows or the new ones and nothing between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import unquote

from headrace.lake import mapping
from headrace.lake.clustering import clustering_actions
from headrace.lake.commit import Action, commit_info, put_commit, transaction
from headrace.lake.copies import Copy
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import create_actions, with_features
from headrace.lake.ledger import table_path
from headrace.lake.partitioning import UNPARTITIONED, Partitioning
from headrace.lake.remembered import numbers_of
from headrace.lake.settle import removal
from headrace.lake.snapshot import Snapshot
from headrace.lake.vectors import vector_name
from headrace.model.schema import TableId, TableSchema
from headrace.model.succession import successors
from headrace.store import Location, store_of

__all__ = [
    "aside_path",
    "asked_again",
    "begin_copy",
    "copy_of",
    "discarded",
    "take_place",
]

_REQUEST = "headrace.copy.request"
"""Property of a copy: the request that fills it. Of a table: the copy that it is."""
_AFTER = "headrace.copy.after"
"""Property of a copy: the SCN behind which it began."""


def aside_path(lake: Location, pipeline: str, table: TableId) -> Location:
    """Return where a new copy of a table is made."""
    return table_path(lake / "_headrace" / pipeline / "recopy", table)


def begin_copy(
    folder: Location,
    schema: TableSchema,
    application: str,
    copy: Copy,
    *,
    vectors: bool,
    partitioning: Partitioning = UNPARTITIONED,
) -> None:
    """Make an empty copy; one that was begun before goes.

    Args:
        folder: of the copy.
        schema: its columns.
        application: under which positions are committed.
        copy: what it says of itself.
        vectors: whether its rows may be removed by deletion vectors.
        partitioning: the columns that lie in paths and not in files.

    Raises:
        ConfigError: it cannot be partitioned by these columns.
        IncompatibleSchemaChange: a column's name is none that Delta takes.
        OSError: the folder refused.
    """
    discarded(folder)
    properties = {_REQUEST: copy.request, _AFTER: str(copy.after_scn)}
    actions = create_actions(
        schema, vectors=vectors, partitioning=partitioning, properties=properties
    )
    put_commit(folder, 0, [*actions, transaction(application, copy.after_scn)])


def copy_of(folder: Location, table: Location) -> Copy | None:
    """Return what the copy in a folder says of itself, None when there is none that is still to be made.

    Args:
        folder: of the copy.
        table: folder of the table that it is a copy of.
    """
    held = DeltaTable(folder).latest()
    if held is None:
        return None
    shown = DeltaTable(table).latest()
    copy = Copy(held.properties[_REQUEST], int(held.properties[_AFTER]))
    if shown is not None and shown.properties.get(_REQUEST) == copy.request:
        # It has taken the table's place, and a crash left it here.
        discarded(folder)
        return None
    return copy


def asked_again(folder: Location, request: str) -> None:
    """Let another dump fill a copy."""
    held = DeltaTable(folder).snapshot()
    configuration = {**held.properties, _REQUEST: request}
    metadata = {"metaData": {**held.metadata, "configuration": configuration}}
    put_commit(folder, held.version + 1, [metadata, commit_info("SET TBLPROPERTIES")])


def take_place(shown: Snapshot, copy: Snapshot, application: str) -> None:
    """Put a copy in its table's place, in one commit.

    Args:
        shown: the table.
        copy: the whole of its new copy.
        application: under which positions are committed.

    Raises:
        CommitConflict: somebody else has written the table since it was read.
        OSError: a folder refused.
    """
    store_of(copy.folder).share(copy.folder, shown.folder, list(_files(copy)))
    configuration, fields = dict(copy.properties), json.loads(copy.metadata["schemaString"])
    if mapping.is_on(shown.properties) and not mapping.is_on(configuration):
        # A table that is mapped stays so for its readers; files know the columns by their own names.
        mapping.switch_on(fields["fields"], configuration)
    del configuration[_AFTER]
    own = {name: text for name, text in shown.properties.items() if name not in configuration}
    metadata = {
        **copy.metadata,
        "id": shown.metadata["id"],
        "schemaString": json.dumps(fields),
        "configuration": {**own, **configuration},
    }
    features = [*copy.protocol.get("readerFeatures", ())]
    if mapping.is_on(configuration):
        features.append(mapping.FEATURE)
    actions: list[Action] = [
        commit_info("REPLACE TABLE"),
        {"metaData": metadata},
        transaction(application, copy.transactions[application]),
        *clustering_actions(shown, fields["fields"], _later(shown, copy)),
        *({"remove": removal(file)} for file in shown.files),
        *({"add": {**file.action, "dataChange": True}} for file in copy.files),
    ]
    protocol = with_features(shown.protocol, features)
    if protocol != dict(shown.protocol):
        actions.insert(0, {"protocol": protocol})
    put_commit(shown.folder, shown.version + 1, actions)
    discarded(copy.folder)


def discarded(folder: Location) -> None:
    """Remove a table's folder, whole or not at all for whoever looks for it.

    Raises:
        OSError: the folder refused.
    """
    store_of(folder).discard(folder, "_delta_log")


def _later(shown: Snapshot, copy: Snapshot) -> dict[str, str]:
    """Return the name in a copy of each column of its table that lives on; by its own name where nobody knows."""
    names = shown.schema.names
    found = successors(names, copy.schema.names, numbers_of(shown), numbers_of(copy))
    return {name: name for name in names} if found is None else found


def _files(held: Snapshot) -> Iterator[str]:
    """Yield the names of a table's own files."""
    for file in held.files:
        yield unquote(file.action["path"])
        if file.vector and file.vector["storageType"] == "u":
            yield vector_name(file.vector)
