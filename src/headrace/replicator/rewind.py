"""Brings a replicator's tables back to an earlier frontier, from where the change log is applied once more.

In: a frontier that is kept, by SCN or commit time, and an apply job that does not run. Out: tables with the rows that
they had there, under a new identity of their ledger, because an applied SCN never goes back; and that frontier as the
newest one. What is to be done is noted durably before anything is: killed before that nothing has happened, killed
behind it the next start of the apply job, or the next rewind, does the rest.

Source: docs/requirements.md, C101; docs/adr/0055-a-rewind-is-a-commit-forward.md.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.changelog.dead_letters import DeadLetterStore
from headrace.changelog.jobs import jobs, register_job
from headrace.changelog.reader import ChangeLogReader
from headrace.durable import replace_file, sync_folder
from headrace.errors import CommandRefused, ConfigError, ScnNotFound, StateError
from headrace.lake.aside import aside_path
from headrace.lake.delta_log import DeltaTable
from headrace.lake.errors import VersionNotFound
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.ledger import app_id, rewinds, table_path
from headrace.lake.rewound import check_restorable, restore
from headrace.lake.settings import settings_for
from headrace.model.schema import TableId
from headrace.observe.failpoints import failpoint
from headrace.replicator import lock
from headrace.replicator.asked import table_settings
from headrace.replicator.config import Config, TargetConfig
from headrace.replicator.paths import StatePaths
from headrace.store import Location, store_of

__all__ = ["Rewound", "finish", "rewind"]


@dataclass(frozen=True, slots=True)
class Rewound:
    """Where a replicator stands after a rewind.

    Attributes:
        scn: of the frontier.
        commit_us: of its last transaction, microseconds since 1970 UTC.
        tables: that were brought back to it.
        removed: that did not exist yet, and come again by the change log.
        was_scn: of the frontier before.
    """

    scn: int
    commit_us: int
    tables: tuple[str, ...]
    removed: tuple[str, ...]
    was_scn: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values for programs."""
        return {
            "scn": self.scn,
            "commit_us": self.commit_us,
            "tables": list(self.tables),
            "removed": list(self.removed),
            "was_scn": self.was_scn,
        }


def rewind(config: Config, to: str) -> Rewound:
    """Bring the tables back to the newest kept frontier that is not behind ``to``.

    Args:
        config: of the replicator, whose apply job must not run.
        to: an SCN, or a commit time in ISO 8601; UTC where it names no zone.

    Raises:
        ConfigError: ``to`` is neither, or the target has no versions.
        CommandRefused: nobody can go back there; nothing was changed.
        LeaseLost: the apply job runs.
    """
    if not isinstance(config.target, TargetConfig):
        raise ConfigError(
            f"rewind: a target of type {config.target.type} keeps no earlier versions.",
            next_step="copy its tables again: headrace dump start FILE --table all.",
        )
    paths = StatePaths.of(config)
    paths.create()
    with lock.held(paths.lock("apply"), "apply"):
        finish(config)
        frontiers = FrontierStore(config.lake, config.name)
        newest = frontiers.latest()
        position = _position(to)
        if newest is not None:
            _refuse_what_is_not_behind(newest, position, to)
        manifest = position.in_(frontiers)
        if newest is None or manifest is None:
            raise _no_frontier(frontiers, to)
        change = _Change.of(config, manifest, newest)
        change.check()
        _hold_log(paths.changelog, config.name, manifest)
        note = {"scn": manifest.scn, "number": change.number, "was_scn": newest.scn}
        replace_file(_note(paths), json.dumps(note).encode())
        failpoint("rewind.noted")
        return _carry_out(config, change, newest.scn)


def finish(config: Config) -> None:
    """Do what is left of a rewind that a crash cut short; the caller holds the apply job's lock.

    Raises:
        StateError: the note of it does not read.
    """
    paths = StatePaths.of(config)
    place = _note(paths)
    if not place.exists():
        return
    try:
        note = json.loads(place.read_bytes())
        scn, number, was_scn = (int(note[name]) for name in ("scn", "number", "was_scn"))
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"{place} does not read ({type(error).__name__}).",
            next_step="restore it from a backup; the tables may be at two frontiers without it.",
        ) from error
    frontiers = FrontierStore(config.lake, config.name)
    manifest, newest = frontiers.at_or_below(scn), frontiers.latest()
    assert manifest is not None
    assert newest is not None
    _carry_out(config, _Change.of(config, manifest, newest, number), was_scn)


@dataclass(frozen=True, slots=True)
class _Change:
    """What a rewind does to the tables.

    Attributes:
        config: of the replicator.
        manifest: the frontier to go back to.
        restored: tables that it shows, whose commits count under `number` from then on.
        removed: tables that came later.
        number: of the rewind; higher than that of any before.
    """

    config: Config
    manifest: Manifest
    restored: dict[TableId, TableEntry]
    removed: tuple[TableId, ...]
    number: int

    @classmethod
    def of(cls, config: Config, manifest: Manifest, newest: Manifest, number: int = 0) -> _Change:
        entries = {TableId.parse(name): entry for name, entry in manifest.tables.items()}
        restored = {table: entry for table, entry in entries.items() if entry.version >= 0}
        later = {TableId.parse(n) for n, entry in newest.tables.items() if entry.version >= 0}
        removed = tuple(sorted(later - restored.keys(), key=str))
        if not number:
            known = (DeltaTable(table_path(config.lake, table)).latest() for table in later)
            pairs = zip(later, known, strict=True)
            number = 1 + max(
                (rewinds(held, config.name, table) for table, held in pairs), default=0
            )
        return cls(config, manifest, restored, removed, number)

    def check(self) -> None:
        """Return when all of it can be done."""
        lake, name = self.config.lake, self.config.name
        for table in (*self.restored, *self.removed):
            if DeltaTable(aside_path(lake, name, table)).latest_version() is not None:
                raise CommandRefused(
                    f"{table} is being copied again beside itself, and cannot be rewound meanwhile.",
                    next_step="let the replicator run until the copy has taken its place.",
                )
        given = table_settings(self.config)
        for table in self.removed:
            if settings_for(table, given).adopted:
                raise CommandRefused(
                    f"{table} was adopted behind SCN {self.manifest.scn}: the change log has none of its first rows.",
                    next_step="choose a later frontier.",
                )
        for table, entry in self.restored.items():
            try:
                check_restorable(table_path(lake, table), entry.version)
            except VersionNotFound as error:
                raise CommandRefused(
                    f"{table} cannot go back to SCN {self.manifest.scn}: {error.message}",
                    next_step="choose a later frontier.",
                ) from error


@dataclass(frozen=True, slots=True)
class _Position:
    """Where to go back to: an SCN, or a commit time in microseconds since 1970 UTC; the other is None."""

    scn: int | None = None
    commit_us: int | None = None

    def in_(self, frontiers: FrontierStore) -> Manifest | None:
        """Return the newest frontier that is kept and not behind it."""
        if self.scn is not None:
            return frontiers.at_or_below(self.scn)
        assert self.commit_us is not None
        return frontiers.not_after(self.commit_us)


def _position(to: str) -> _Position:
    if to.isdecimal():
        return _Position(scn=int(to))
    try:
        time = dt.datetime.fromisoformat(to)
    except ValueError as error:
        raise ConfigError(
            "rewind: to is neither an SCN nor a time.",
            next_step="write an SCN such as 81, or a time such as 2026-11-24T10:00:00+00:00.",
        ) from error
    time = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
    return _Position(commit_us=int(time.timestamp() * 1e6))


def _refuse_what_is_not_behind(newest: Manifest, position: _Position, to: str) -> None:
    """Refuse to go forward: each table would get a version that shows what it shows."""
    later = position.scn is not None and position.scn > newest.scn
    later |= position.commit_us is not None and position.commit_us > newest.commit_us
    if later:
        shown = dt.datetime.fromtimestamp(newest.commit_us / 1e6, dt.UTC).isoformat()
        raise CommandRefused(
            f"{to} is behind the newest commit that the tables show: SCN {newest.scn}, of {shown}.",
            next_step="name that one or an earlier one; tables come forward by themselves while the replicator runs.",
        )


def _no_frontier(frontiers: FrontierStore, to: str) -> CommandRefused:
    kept = frontiers.scns()
    reach = f"from SCN {kept[0]} to {kept[-1]}" if kept else "none at all"
    return CommandRefused(
        f"No frontier is kept that is not behind {to}; there are those {reach}.",
        next_step="choose one of these, or copy the tables again: headrace dump start FILE --table all.",
    )


def _hold_log(changelog: Path, name: str, manifest: Manifest) -> None:
    """Have the change log keep what the tables lack from a frontier on.

    Raises:
        CommandRefused: it no longer does.
    """
    needed = min([manifest.scn, *(entry.applied_scn for entry in manifest.tables.values())])
    held = jobs(changelog).get(name, needed)
    # Asked for before it is looked at: capture may let go of more at any moment.
    register_job(changelog, name, min(needed, held))
    try:
        ChangeLogReader(changelog).refs(needed, needed)
    except ScnNotFound as error:
        register_job(changelog, name, held)
        raise CommandRefused(
            f"The change log no longer holds what came behind SCN {needed}: {error.message}",
            next_step="choose a later frontier; changelog.retain and retain_s say how much is kept.",
        ) from error


def _carry_out(config: Config, change: _Change, was_scn: int) -> Rewound:
    for table, entry in change.restored.items():
        folder = table_path(config.lake, table)
        if rewinds(DeltaTable(folder).latest(), config.name, table) < change.number:
            application = app_id(config.name, table, change.number)
            restore(folder, entry.version, application, entry.applied_scn)
        failpoint("rewind.table_restored")
    for table in change.removed:
        _remove(config.lake, table)
        failpoint("rewind.table_removed")
    paths = StatePaths.of(config)
    # What was put aside behind the frontier is tried again, like everything else there.
    letters = DeadLetterStore(paths.dead_letters)
    for letter in letters.all():
        entry_of = change.restored.get(letter.table)
        if entry_of is None or letter.scn > entry_of.applied_scn:
            letters.forget(letter)
    FrontierStore(config.lake, config.name).cut(change.manifest.scn)
    failpoint("rewind.frontiers_removed")
    _note(paths).unlink()
    sync_folder(paths.root)
    return Rewound(
        change.manifest.scn,
        change.manifest.commit_us,
        tuple(map(str, change.restored)),
        tuple(map(str, change.removed)),
        was_scn,
    )


def _remove(lake: Location, table: TableId) -> None:
    folder = table_path(lake, table)
    if DeltaTable(folder).latest_version() is not None:
        store_of(folder).discard(folder, "_delta_log")


def _note(paths: StatePaths) -> Path:
    return paths.root / "rewind.json"
