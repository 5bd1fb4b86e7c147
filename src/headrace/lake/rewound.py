"""A table goes back to one of its versions, by one more commit.

In: a version that the log still describes, and the position whose rows it shows. Out: a version with the same rows,
columns and properties, that counts under another identity from that position on. Older versions stay as they are.

Source: Delta protocol, "Delta Log Entries"; docs/adr/0055-a-rewind-is-a-commit-forward.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.lake.commit import Action, commit_info, put_commit, transaction
from headrace.lake.delta_log import DeltaTable
from headrace.lake.errors import VersionNotFound
from headrace.lake.settle import removal
from headrace.lake.snapshot import DataFile, Snapshot
from headrace.lake.vectors import vector_id, vector_path
from headrace.plural import be, counted
from headrace.store import Location, store_of

__all__ = ["check_restorable", "restore"]


def check_restorable(folder: Location, version: int) -> None:
    """Return when a version can be gone back to.

    Raises:
        VersionNotFound: its log or one of its files is gone.
    """
    table = DeltaTable(folder)
    held = table.snapshot(version)
    if gone := store_of(folder).missing(folder, set(_files(held))):
        raise VersionNotFound(
            f"{counted(gone, 'file')} of version {version} of the table {folder.name} {be(gone)} gone.",
            next_step="choose a later frontier; delta.deletedFileRetentionDuration says how long files stay.",
        )


def restore(folder: Location, version: int, application: str, scn: int) -> None:
    """Commit a version's rows, columns and properties once more, as those of a position.

    Args:
        folder: of the table.
        version: to go back to.
        application: identity under which the table counts from now on.
        scn: its position under that.

    Raises:
        VersionNotFound: the log no longer describes it.
        CommitConflict: somebody else has written the table meanwhile; nothing was changed.
        OSError: the folder refused.
    """
    table = DeltaTable(folder)
    now, then = table.snapshot(), table.snapshot(version)
    held = {_name(file.action) for file in now.files}
    wanted = {_name(file.action) for file in then.files}
    metadata = {**then.metadata, "id": now.metadata["id"]}
    actions: list[Action] = [
        commit_info("RESTORE", version=str(version), scn=str(scn)),
        {"metaData": metadata},
        transaction(application, scn),
        *_domains(now, then),
        *({"remove": removal(file)} for file in now.files if _name(file.action) not in wanted),
        *(
            {"add": {**file.action, "dataChange": True}}
            for file in then.files
            if _name(file.action) not in held
        ),
    ]
    put_commit(folder, now.version + 1, actions)


def _domains(now: Snapshot, then: Snapshot) -> Iterator[Action]:
    """Yield what brings the domains back; readers of an older protocol know of none."""
    for domain, configuration in {**now.domains, **then.domains}.items():
        if now.domains.get(domain) != then.domains.get(domain):
            gone = domain not in then.domains
            body = {"domain": domain, "configuration": configuration, "removed": gone}
            yield {"domainMetadata": body}


def _name(add: Mapping[str, Any]) -> tuple[str, str]:
    return add["path"], vector_id(add.get("deletionVector"))


def _files(held: Snapshot) -> Iterator[Location]:
    for file in held.files:
        yield file.path
        if _has_vector_file(file):
            assert file.vector is not None
            yield vector_path(held.folder, file.vector)


def _has_vector_file(file: DataFile) -> bool:
    return file.vector is not None and file.vector["storageType"] != "i"
