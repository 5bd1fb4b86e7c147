"""Let go of log and data files that no promised version needs.

A version is promised while a frontier manifest names it. Everything from the oldest promised version on stays, and what
is older stays for a while too: readers of the table itself know nothing of frontiers. Files that no version ever named,
which a crash leaves behind, go after as long as any writer may take to commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from headrace.lake.actions import TableState
from headrace.lake.commit import now_ms
from headrace.lake.delta_log import DeltaTable
from headrace.lake.errors import VersionNotFound
from headrace.lake.retention import files_kept_ms, log_kept_ms
from headrace.lake.vectors import vector_path
from headrace.store import Location, store_of

__all__ = ["tidy"]

_STRAY_AFTER_MS = 7 * 86_400_000
"""Age of a file from which on nobody will commit it any more; the same week that Delta's own ``VACUUM`` gives."""
_DATA_FILE = re.compile(r"part-.*\.parquet|deletion_vector_.*\.bin")
_LOG_FILE = re.compile(r"(\d{20})\.(?:json|checkpoint\..*)")


def tidy(folder: Location, promised: int) -> int:
    """Delete what is old enough, and return how many files went.

    Args:
        folder: of the table.
        promised: oldest version that somebody may ask for by a frontier.

    Raises:
        CorruptTable: the log does not read.
        OSError: the folder refused.
    """
    table = DeltaTable(folder)
    try:
        base = table.state(promised)
        latest = table.latest_version() or promised
        newest = table.state(latest)
        strays = _strays(table, (promised, base), (latest, newest), now_ms() - _STRAY_AFTER_MS)
    except VersionNotFound:
        # Somebody else has cleaned further than we would.
        return 0
    properties = (newest.metadata or {}).get("configuration") or {}
    gone = _forgotten(folder, base, newest, now_ms() - files_kept_ms(properties))
    base_version = table.checkpoint(promised)
    old = _old_log(folder / "_delta_log", base_version, now_ms() - log_kept_ms(properties))
    store = store_of(folder)
    return store.delete(gone | strays) + store.delete(old)


def _forgotten(
    folder: Location, base: TableState, newest: TableState, before_ms: float
) -> set[Location]:
    """Return the files that were removed long ago, and that neither version nor any between them shows."""

    def is_old(action: Mapping[str, Any]) -> bool:
        return int(action.get("deletionTimestamp") or 0) < before_ms

    kept = _paths(folder, base.files.values()) | _paths(folder, newest.files.values())
    kept |= _paths(folder, (action for action in newest.removed.values() if not is_old(action)))
    return _paths(folder, filter(is_old, base.removed.values())) - kept


def _strays(
    table: DeltaTable,
    base: tuple[int, TableState],
    newest: tuple[int, TableState],
    before_ms: float,
) -> set[Location]:
    """Return the old files that no version from the promised one on has ever named.

    Args:
        table: whose folder is looked through.
        base: the promised version and its number.
        newest: the newest likewise.
        before_ms: what is younger may still be committed.
    """
    old = _data_files(table.path, before_ms)
    for _, state in (base, newest):
        old -= _paths(table.path, state.files.values())
        old -= _paths(table.path, state.removed.values())
    if old:
        # A file may have come and gone in between, and its removal be forgotten; rare enough to read all of it again.
        between = table.commits(base[0], newest[0])
        old -= _paths(table.path, (action["add"] for action in between if "add" in action))
    return old


def _data_files(folder: Location, before_ms: float) -> set[Location]:
    """Return the old ones of what looks like files of rows or vectors, in a table's folder and in its partitions'."""
    # Not the log, nor what others keep beside the rows; a partition's folder says which value it has.
    files = store_of(folder).walk(
        folder, lambda name: "=" in name, lambda name: bool(_DATA_FILE.fullmatch(name))
    )
    return {file.path for file in files if file.modified_ms < before_ms}


def _paths(folder: Location, actions: Iterable[Mapping[str, Any]]) -> set[Location]:
    """Return the data files and the files of vectors that actions name; those of other stores are not ours."""
    found = set()
    for action in actions:
        if "://" not in action["path"]:
            found.add(folder / unquote(action["path"].removeprefix("file:")))
        vector = action.get("deletionVector")
        if vector and vector["storageType"] == "u":
            found.add(vector_path(folder, vector))
    return found


def _old_log(log: Location, base: int, before_ms: float) -> set[Location]:
    """Return the log files that the checkpoint of a version stands for."""

    def is_below(name: str) -> bool:
        match = _LOG_FILE.fullmatch(name)
        return match is not None and int(match[1]) < base

    files = store_of(log).walk(log, lambda _: False, is_below)
    return {file.path for file in files if file.modified_ms < before_ms}
