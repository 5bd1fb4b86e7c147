"""Relays that follow others, for tests: a follower in a thread, and what a change log holds, byte for byte."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.changelog import ChangeLogReader, ChangeLogSettings, StretchReader
from headrace.client import Backoff, HttpSettings
from headrace.registry.file import FileRegistry
from headrace.relay.follow import Follower, FollowStatus
from headrace.replicator.upstream import RelayUpstream
from tests.client.logs import told_by
from tests.client.recording import Told
from tests.waiting import until

__all__ = ["Following", "following", "held_bytes", "told_of_log", "windows_of"]

_QUICK = Backoff(0.005, 1.2, 0.05)


class Following:
    """A follower at work on ``folder``.

    Attributes:
        folder: of its change log, whose registry lies in ``schemas`` below.
        statuses: everything that it said, in order.
        error: why it ended by itself.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.statuses: list[FollowStatus] = []
        self.error: BaseException | None = None

    @property
    def state(self) -> str:
        """What it does now."""
        return self.statuses[-1].state if self.statuses else ""

    @property
    def blocks(self) -> int:
        """How many it has copied."""
        return self.statuses[-1].blocks if self.statuses else 0

    def covers(self, scn: int) -> None:
        """Wait until everything up to an SCN is readable."""
        reader = ChangeLogReader(self.folder)
        until(lambda: self._sound() and reader.tail().covered_scn >= scn, f"SCN {scn} in the copy")

    def said(self, state: str) -> FollowStatus:
        """Wait until it is in a state, and return what it said then: it may say something else at once."""

        def found() -> FollowStatus | None:
            last = self.statuses[-1] if self._sound() and self.statuses else None
            return last if last is not None and last.state == state else None

        return until(found, state)  # type: ignore[return-value]

    def _sound(self) -> bool:
        if self.error is not None:
            raise self.error
        return True


@contextmanager
def following(
    folder: Path,
    *urls: str,
    source: str = "shop",
    settings: ChangeLogSettings | None = None,
    http: HttpSettings | None = None,
) -> Iterator[Following]:
    """Follow relays in a thread until the block ends; an error of it waits in ``error``."""
    found = Following(folder)
    upstream = RelayUpstream(urls, source, http or HttpSettings(read_timeout_s=5.0), _QUICK)
    follower = Follower(
        name=source,
        upstream=upstream,
        folder=folder,
        settings=settings or ChangeLogSettings(segment_bytes=256 * 1024),
        registry=FileRegistry(folder / "schemas"),
        on_status=found.statuses.append,
    )
    stop = threading.Event()

    def run() -> None:
        try:
            follower.run(stop)
        except BaseException as error:  # noqa: BLE001 - judged by the test's own thread
            found.error = error

    thread = threading.Thread(target=run, name="follower")
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        while thread.is_alive():
            upstream.interrupt()
            thread.join(0.05)


def held_bytes(folder: Path, after_scn: int = 0) -> bytes:
    """Return the blocks of a change log as they are stored, one behind the other."""
    reader = StretchReader(folder)
    reader.look()
    spot = reader.find(after_scn, 1 << 40)
    assert spot is not None
    out = b""
    while (stretch := reader.after(spot, 1 << 30)) is not None:
        out += stretch.data
        spot = stretch.end
    return out


def windows_of(folder: Path, after_scn: int = 0) -> list[tuple[int, ...]]:
    """Return scn, commit time, transaction id, changes and origin of every window of a change log."""
    found: dict[int, list[int]] = {}
    for block in ChangeLogReader(folder).blocks(after_scn):
        for scn, commit_us, xid, changes, origin, *_ in block.index.tolist():
            found.setdefault(scn, [commit_us, xid, 0, origin])[2] += changes
    return [(scn, *values) for scn, values in found.items()]


def told_of_log(folder: Path, after_scn: int = 0) -> list[Told]:
    """Return every event of a change log over the tables of the random histories, sorted by place."""
    return told_by(list(ChangeLogReader(folder).blocks(after_scn)))
