"""Frontier manifests: which version of every target table shows the source as of one SCN.

After each batch one small JSON file ``<lake>/_headrace/<pipeline>/frontier/<scn:020d>.json`` is
written, so that reading all its tables at the versions it names shows them as of one source commit.
A bounded number is kept. Written by the apply job alone, read by anybody at any time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from headrace.errors import TargetUnwritable
from headrace.lake.counts import NO_COUNTS, NO_TOTALS, TableCounts, Totals
from headrace.lake.errors import CorruptFrontier
from headrace.store import Location, located, store_of

__all__ = ["FrontierStore", "Manifest", "TableEntry", "TableMode"]

_KEEP = 2_000
"""Manifests kept by default."""
_NAME = re.compile(r"(\d{20})\.json")

TableMode = Literal["copying", "live", "failing", "left"]
"""A table that is copying or failing, or that left the source, is listed with its own SCN and is not part of the
frontier."""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One target table at a frontier.

    Attributes:
        version: the Delta version to read.
        applied_scn: position up to which that version holds the source's changes.
        complete_scn: position at which the table's dump was complete, None while it runs.
        state: whether the table is part of the frontier ("live") or why it is not.
        reason: why it left, empty otherwise.
        counts: what of its history the target has.
        since_scn: what came up to here went with a target table that somebody removed; 0 when none was.
    """

    version: int
    applied_scn: int
    complete_scn: int | None
    state: TableMode
    reason: str = ""
    counts: TableCounts = NO_COUNTS
    since_scn: int = 0

    def __post_init__(self) -> None:
        if self.state not in get_args(TableMode):
            raise ValueError(f"{self.state!r} is not a state of a table")

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` restores an equal entry."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**plain, "counts": self.counts.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableEntry:
        """Restore what `to_json` gave; an entry that did not count yet begins to."""
        counts = value.get("counts", {"scn": value["applied_scn"]})
        return cls(**{**value, "counts": TableCounts.from_json(counts)})


@dataclass(frozen=True, slots=True)
class Manifest:
    """One frontier.

    Attributes:
        scn: every live table holds exactly the transactions up to this one.
        commit_us: commit time of that transaction, microseconds since 1970 UTC.
        tables: entry per ``schema.table``.
        written_us: when the manifest was written, same clock.
        changes: change rows and system events of the change log up to the SCN, since its first; the number of the
            last of them, counting from 1. Counted from 0 on behind manifests that did not tell it.
        totals: what was counted up to there, likewise.
        log: identity of the change log that the tables were filled from, empty where that is not known.
    """

    scn: int
    commit_us: int
    tables: Mapping[str, TableEntry]
    written_us: int
    changes: int = 0
    totals: Totals = NO_TOTALS
    log: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` restores an equal manifest."""
        return {
            "scn": self.scn,
            "commit_us": self.commit_us,
            "tables": {name: entry.to_json() for name, entry in self.tables.items()},
            "written_us": self.written_us,
            "changes": self.changes,
            "totals": self.totals.to_json(),
            "log": self.log,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Manifest:
        """Restore what `to_json` gave.

        Raises:
            KeyError: a field is missing.
            TypeError: a field is unknown or of another shape.
            ValueError: a value is impossible.
        """
        tables = {str(name): TableEntry.from_json(entry) for name, entry in value["tables"].items()}
        scn, commit_us, written_us = (int(value[n]) for n in ("scn", "commit_us", "written_us"))
        totals = Totals.from_json(value["totals"]) if "totals" in value else NO_TOTALS
        changes, log = int(value.get("changes", 0)), str(value.get("log", ""))
        return cls(scn, commit_us, tables, written_us, changes, totals, log)


class FrontierStore:
    """The manifests of one pipeline.

    Args:
        lake: root folder of the target tables.
        pipeline: name of the pipeline.
        keep: how many manifests stay; older ones are removed after a write.
    """

    def __init__(self, lake: Location | str, pipeline: str, keep: int = _KEEP) -> None:
        self.folder = located(lake) / "_headrace" / pipeline / "frontier"
        self._store = store_of(self.folder)
        self._keep = max(keep, 1)

    def write(self, manifest: Manifest) -> None:
        """Add a manifest, whole or not at all; durable when this returns.

        Raises:
            TargetUnwritable: the folder takes no more; the frontier is what it was.
        """
        text = json.dumps(manifest.to_json(), sort_keys=True)
        try:
            self._store.put(self._path(manifest.scn), text.encode())
            self._store.delete([self._path(scn) for scn in self.scns()[: -self._keep]])
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise TargetUnwritable(
                f"The frontier in {self.folder} cannot be written: {reason}.",
                next_step="give this process room and write permission there; the batch is tried again.",
            ) from error

    def scns(self) -> tuple[int, ...]:
        """Return the SCNs of all manifests, lowest first.

        Raises:
            CorruptFrontier: a file lies there that is neither a manifest, nor a temporary one, nor hidden.
        """
        found = []
        for name in self._store.names(self.folder):
            if match := _NAME.fullmatch(name):
                found.append(int(match[1]))
            elif not name.startswith(".") and not name.endswith(".tmp"):
                raise CorruptFrontier(
                    f"{name} in {self.folder} is not a frontier manifest.",
                    next_step="move the file elsewhere; only the apply job writes there.",
                )
        return tuple(sorted(found))

    def list(self) -> tuple[Manifest, ...]:
        """Return all manifests, lowest SCN first."""
        manifests = (self._read(scn) for scn in self.scns())
        return tuple(manifest for manifest in manifests if manifest is not None)

    def oldest(self) -> Manifest | None:
        """Return the oldest manifest, None when there is none."""
        for scn in self.scns():
            if (manifest := self._read(scn)) is not None:
                return manifest
        return None

    def latest(self) -> Manifest | None:
        """Return the newest manifest, None when there is none."""
        return self.at_or_below(2**63 - 1)

    def at_or_below(self, scn: int) -> Manifest | None:
        """Return the newest manifest that is not above ``scn``, None when there is none."""
        for candidate in reversed(self.scns()):
            if candidate <= scn and (manifest := self._read(candidate)) is not None:
                return manifest
        return None

    def cut(self, scn: int) -> None:
        """Remove every manifest above an SCN, the newest last: readers find the old frontier until it is gone.

        They stay away once this has returned.

        Raises:
            OSError: the folder refused.
        """
        gone = [self._path(above) for above in self.scns() if above > scn]
        self._store.delete(gone)
        if gone:
            # Else a power cut might bring one back, which shows versions of before.
            self._store.sync([self.folder])

    def not_after(self, commit_us: int) -> Manifest | None:
        """Return the newest manifest whose commit is not after a time, in microseconds since 1970 UTC.

        One from before the first commit has no time: nobody who names one means that there was nothing yet.
        """
        for scn in reversed(self.scns()):
            if (manifest := self._read(scn)) is not None and 0 < manifest.commit_us <= commit_us:
                return manifest
        return None

    def _read(self, scn: int) -> Manifest | None:
        """Return a manifest, None when retention removed it meanwhile."""
        path = self._path(scn)
        try:
            manifest = Manifest.from_json(json.loads(self._store.read(path)))
            if manifest.scn != scn:
                raise ValueError("the name says another SCN")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFrontier(
                f"The frontier manifest {path.name} in {self.folder} does not read.",
                next_step="delete that file; the next batch writes a newer one.",
            ) from error
        return manifest

    def _path(self, scn: int) -> Location:
        return self.folder / f"{scn:020d}.json"
