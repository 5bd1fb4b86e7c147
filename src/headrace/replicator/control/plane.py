"""A control plane: the database, the lease, the loop that keeps replicators as people want them, and their pictures.

In: a state folder and a database that others may share. Out: values for who asks, transactions for who may change
something, and two threads: one holds the lease or waits for it, one brings what runs nearer to what is wanted while the
lease is held. Ending a control plane ends no replicator.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import URL

from headrace.durable import make_folder
from headrace.errors import ControlStandby, HeadraceError, LeaseLost
from headrace.replicator.control import leases
from headrace.replicator.control.complaints import Complaints
from headrace.replicator.control.database import Database
from headrace.replicator.control.folders import Folders
from headrace.replicator.control.pictures import Pictures
from headrace.replicator.control.reconcile import Launch, Limits, Reconciler
from headrace.replicator.control.records import Lease
from headrace.replicator.control.references import without
from headrace.replicator.control.store import ControlStore, Writer
from headrace.replicator.listeners import Listeners

__all__ = ["ControlPlane", "PlaneSettings", "run_command"]

_log = logging.getLogger(__name__)

_TURN_S = 0.25


def run_command(file: Path) -> tuple[str, ...]:
    """Return the command that runs the replicator of a file."""
    return sys.executable, "-m", "headrace.cli.main", "run", str(file)


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """One control plane.

    Attributes:
        state: folder of everything that it keeps, absolute; control planes that share a database share it too.
        database: URL, None for a file in the state folder.
        base: absolute folder at which relative paths of configurations begin.
        hidden: places of secrets that are its own, ``env:NAME`` and the like; no replicator gets them.
        lease_s: how long it stays the active one without a word to the database.
        limits: what processes may take.
        launch: gives the command of a replicator's process.
    """

    state: Path
    database: str | None = field(default=None, repr=False)
    base: Path = Path("/")
    hidden: frozenset[str] = frozenset()
    lease_s: float = 15.0
    limits: Limits = field(default_factory=Limits)
    launch: Launch = run_command


class ControlPlane:
    """One control plane; use it in a ``with`` block, whose end leaves replicators running.

    Raises:
        StateError: the database cannot be used.
        ConfigError: its URL is none.
    """

    def __init__(
        self, settings: PlaneSettings, environment: Mapping[str, str] | None = None
    ) -> None:
        self.settings = settings
        self.environment = without(dict(environment or os.environ), settings.hidden)
        self.folders = Folders(settings.state)
        make_folder(settings.state, 0o700)
        own = URL.create("sqlite", database=str(settings.state / "control.db"))
        self.database = Database(settings.database or own)
        self.store = ControlStore(self.database)
        self.pictures = Pictures(self.folders, self.store.replicators)
        self.reconciler = Reconciler(
            self.store, self.folders, settings.launch, self.environment, settings.limits
        )
        self.listeners = Listeners()
        self._holder = leases.holder_name()
        self._lease: Lease | None = None
        self._lease_ends = 0.0
        self._complaints = Complaints()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_lease, name="lease", daemon=True),
            threading.Thread(target=self._keep_turning, name="reconcile", daemon=True),
        ]

    def __enter__(self) -> ControlPlane:
        self._hold()
        self.pictures.begin()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._wake.set()
        for thread in self._threads:
            thread.join()
        self.reconciler.close()
        self.pictures.close()
        if self._lease is not None:
            with contextlib.suppress(HeadraceError):
                leases.release(self.database, self._lease)
        self.database.close()

    @property
    def active(self) -> bool:
        """Whether it is the one that changes things."""
        return self._lease is not None and time.monotonic() < self._lease_ends

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Change something, and have the loop look at it at once.

        Raises:
            ControlStandby: another control plane is the active one.
            StateError: the database does not answer.
        """
        if self._lease is not None and not self.active:
            # We, or the database, stood still for longer than the lease lasts. Perhaps nobody has taken it yet.
            self._hold()
        lease = self._lease
        if lease is None or not self.active:
            raise self._standby()
        try:
            with self.store.writing(lease) as writer:
                yield writer
        except LeaseLost as error:
            self._lost()
            raise self._standby() from error
        self._wake.set()

    def _standby(self) -> ControlStandby:
        return ControlStandby(
            "This control plane stands by: another one is the active one.",
            next_step="ask that one, or again in a moment; GET /healthz says which role each has.",
        )

    # -- the lease --------------------------------------------------------------------------------

    def _keep_lease(self) -> None:
        while not self._stop.wait(self.settings.lease_s / 4):
            self._hold()

    def _hold(self) -> None:
        """Take the lease or renew it; who hears nothing from the database for long enough has lost it."""
        asked = time.monotonic()
        held, lasts = self._lease, self.settings.lease_s
        try:
            if held is None:
                self._lease = leases.take(self.database, self._holder, lasts)
                if self._lease is not None:
                    _log.info("active: generation %d", self._lease.generation)
            elif not leases.renew(self.database, held, lasts):
                self._lost()
                return
        except HeadraceError as error:
            self._complaints.hear(error)
            return
        self._complaints.forget()
        if self._lease is not None:
            self._lease_ends = asked + lasts
            self._wake.set()

    def _lost(self) -> None:
        self._lease = None
        _log.warning("another control plane has taken over; this one stands by")

    # -- the loop ---------------------------------------------------------------------------------

    def _keep_turning(self) -> None:
        was_active = False
        while not self._stop.is_set():
            lease = self._lease if self.active else None
            if lease is None and was_active:
                self.reconciler.forget()
            was_active = lease is not None
            if lease is not None:
                self._turn(lease)
            self._wake.wait(_TURN_S)
            self._wake.clear()

    def _turn(self, lease: Lease) -> None:
        try:
            self.reconciler.turn(lease)
        except LeaseLost:
            self._lost()
        except HeadraceError as error:
            self._complaints.hear(error)
        except Exception:  # noqa: BLE001 - the top of the thread
            # Nobody looks after the replicators without this thread.
            _log.exception("a turn failed")
