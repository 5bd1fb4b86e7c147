"""A Delta table on disk, read without Spark.

In: the table's folder. Out: `headrace.lake.snapshot.Snapshot` of any version that the log still
describes. The folder is listed each time, so the file ``_last_checkpoint``, which may be old, is
not needed. Used by verify, the ledger, and tests; writes nothing.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.lake.actions import (
    TableState,
    check_protocol,
    read_checkpoint,
    read_commit,
    unsupported,
)
from headrace.lake.delta_types import arrow_schema
from headrace.lake.errors import CorruptTable, VersionNotFound
from headrace.lake.foreign import foreign_operation
from headrace.lake.snapshot import DataFile, Snapshot
from headrace.store import Found, Location, located, store_of

__all__ = ["DeltaTable", "FollowedTable"]

_COMMIT = re.compile(r"(\d{20})\.json")
_SINGLE = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_UUID = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")


@dataclass(slots=True)
class _Listing:
    """What lies in a ``_delta_log`` folder."""

    commits: set[int] = field(default_factory=set)
    checkpoints: dict[int, list[str]] = field(default_factory=dict)
    v2_checkpoints: set[int] = field(default_factory=set)


class DeltaTable:
    """One table's folder; nothing is read before it is asked for."""

    def __init__(self, path: Location | str) -> None:
        self.path = located(path)
        self._store = store_of(self.path)
        self._log = self.path / "_delta_log"
        self._name = self.path.name

    def latest_version(self) -> int | None:
        """Return the newest version, None when there is no table."""
        listing = self._list()
        known = listing.commits | listing.checkpoints.keys() | listing.v2_checkpoints
        return max(known, default=None)

    def latest(self) -> Snapshot | None:
        """Return the newest version's snapshot, None when there is no table."""
        version = self.latest_version()
        return None if version is None else self.snapshot(version)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the table as of a version, the newest by default.

        Raises:
            VersionNotFound: no table, no such version, or its log is gone.
            CorruptTable: a log file is missing or does not read.
            UnsupportedTableFeature: the table asks for a reader that this is not.
        """
        listing = self._list()
        if version is None:
            version = self.latest_version()
        if version is None:
            raise VersionNotFound(
                f"There is no Delta table in {self._name}.",
                next_step="wait for the first batch, or correct the target path.",
            )
        return self._build(version, self._replay(version, listing))

    def follow(self) -> FollowedTable:
        """Return the newest version as one that is brought up to date commit by commit."""
        return FollowedTable(self)

    def state(self, version: int) -> TableState:
        """Return what the log's actions add up to at a version, for who writes a checkpoint.

        Raises: as `snapshot`.
        """
        return self._replay(version, self._list())

    def checkpoint(self, upto: int) -> int:
        """Return the version of the newest checkpoint from which a version is read, -1 where it takes all commits."""
        return _base(self._list(), upto)

    def commits(self, after: int, upto: int) -> Iterator[Mapping[str, Any]]:
        """Yield the actions of every version above ``after`` and up to ``upto``.

        Raises:
            VersionNotFound: one of them is not in the log any more.
            CorruptTable: one does not read.
        """
        for version in range(after + 1, upto + 1):
            path = self._commit(version)
            if not self._store.exists(path):
                raise self._gap(version, [version], self._list())
            yield from read_commit(path, self._name)

    def _list(self) -> _Listing:
        """List the log folder; what is not a commit or checkpoint is none of our business."""
        listing = _Listing()
        parts: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
        for name in self._store.names(self._log):
            if match := _COMMIT.fullmatch(name):
                listing.commits.add(int(match[1]))
            elif match := _SINGLE.fullmatch(name):
                listing.checkpoints[int(match[1])] = [name]
            elif match := _PART.fullmatch(name):
                parts[int(match[1]), int(match[3])][int(match[2])] = name
            elif match := _UUID.fullmatch(name):
                listing.v2_checkpoints.add(int(match[1]))
        for (version, count), found in parts.items():
            # A checkpoint with a part missing was never finished: the commits say the same.
            if len(found) == count:
                listing.checkpoints[version] = [found[part] for part in sorted(found)]
        return listing

    def _replay(self, version: int, listing: _Listing) -> TableState:
        state = TableState()
        base = _base(listing, version)
        needed = range(base + 1, version + 1)
        missing = [
            v
            for v in needed
            if v not in listing.commits and not self._store.exists(self._commit(v))
        ]
        if missing:
            raise self._gap(version, missing, listing)
        if base >= 0:
            paths = [self._log / name for name in listing.checkpoints[base]]
            state.apply(read_checkpoint(paths, self._name))
        for commit in needed:
            state.apply(read_commit(self._commit(commit), self._name))
        return state

    def _gap(self, version: int, missing: list[int], listing: _Listing) -> Exception:
        """Say why the commits up to ``version`` cannot be replayed."""
        newest = max(listing.commits | listing.checkpoints.keys(), default=-1)
        if any(v <= version for v in listing.v2_checkpoints):
            return unsupported("v2Checkpoint", self._name)
        # Retention removes commits from the oldest on, once a checkpoint above them exists.
        cleaned = min(listing.commits, default=version) >= missing[-1] and listing.checkpoints
        if version < 0 or version > newest or cleaned:
            return VersionNotFound(
                f"Version {version} of the table {self._name} is not in its log, whose newest "
                f"version is {newest}.",
                next_step="ask for a version that the log still describes.",
            )
        return CorruptTable(
            f"The log of the table {self._name} lacks the commit of version {missing[0]}.",
            next_step="restore the file from a backup, or delete the table and dump it again.",
        )

    def _build(self, version: int, state: TableState) -> Snapshot:
        if state.metadata is None or state.protocol is None:
            raise CorruptTable(
                f"The log of the table {self._name} has no metadata or protocol up to version "
                f"{version}.",
                next_step="restore its _delta_log from a backup.",
            )
        properties = dict(state.metadata.get("configuration") or {})
        check_protocol(state.protocol, properties, self._name)
        files = [DataFile.from_action(self.path, add) for add in state.files.values()]
        return Snapshot(
            folder=self.path,
            version=version,
            schema=arrow_schema(state.metadata["schemaString"], self._name),
            partition_columns=tuple(state.metadata.get("partitionColumns") or ()),
            files=tuple(files),
            transactions={
                name: int(action["version"]) for name, action in state.transactions.items()
            },
            properties=properties,
            domains={name: action["configuration"] for name, action in state.domains.items()},
            metadata=state.metadata,
            protocol=state.protocol,
        )

    def _commit(self, version: int) -> Location:
        return self._log / f"{version:020d}.json"


def _base(listing: _Listing, version: int) -> int:
    return max((v for v in listing.checkpoints if v <= version), default=-1)


class FollowedTable:
    """The newest version of a table for one who asks often: only later commits are read, no folder is listed.

    A log may hold a day of commits; a writer asks before and after each of its own. For one thread at a time.

    Attributes:
        foreign: what somebody else has last done to rows that were there, while the table was followed, as
            ``RESTORE, version 12``; empty for nothing.
    """

    def __init__(self, table: DeltaTable) -> None:
        self.foreign = ""
        self._table = table
        self._state = TableState()
        self._version = -1
        self._mark: Hashable = None
        self._snapshot: Snapshot | None = None

    def latest(self) -> Snapshot | None:
        """Return the newest version's snapshot, None when there is no table; errors as of `DeltaTable.snapshot`."""
        table = self._table
        found = [] if self._snapshot is None else self._onwards()
        if not found or found[0].tag != self._mark:
            # Another table lies there than the one that was followed, or none.
            version = table.latest_version()
            self._snapshot, self.foreign = None, ""
            if version is None:
                return None
            self._state = table.state(version)
            self._version = version
            found = self._onwards()
        before = self._version
        for later in found[1:]:
            actions = read_commit(later.path, table._name)
            self._state.apply(actions)
            self._version += 1
            if operation := foreign_operation(actions):
                self.foreign = f"{operation}, version {self._version}"
        if self._snapshot is None or self._version > before:
            self._snapshot = table._build(self._version, self._state)
            # Without the entry itself, which a checkpoint may outlive, all is read again the next time.
            self._mark = found[-1].tag if found else None
        return self._snapshot

    def state(self) -> TableState:
        """Return what the log's actions add up to at the version that `latest` returned."""
        return self._state

    def _onwards(self) -> list[Found]:
        """Return the commit of the version that is known, and those behind it."""
        commits = map(self._table._commit, itertools.count(self._version))
        return self._table._store.consecutive(commits)
