"""The followers of a relay: put together from their files, each in a thread beside the server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from headrace.client.http import HttpSettings
from headrace.client.trust import trusting
from headrace.observe.status import ProcessState, StatusFile
from headrace.registry.file import FileRegistry
from headrace.relay.follow import Follower, FollowStatus
from headrace.replicator.config import Config
from headrace.replicator.follower_config import FOLLOWER, FollowerConfig
from headrace.replicator.paths import StatePaths
from headrace.replicator.runner import log_settings
from headrace.replicator.upstream import RelayUpstream

__all__ = ["followed"]

_JOIN_S = 0.05


@contextlib.contextmanager
def followed(
    configs: Mapping[Path, Config | FollowerConfig], stop: threading.Event
) -> Iterator[None]:
    """Follow upstream relays inside the block, for each file that says so.

    Args:
        configs: files of one relay; those of replicators are passed over.
        stop: ends the followers; set when one of them ends by itself, and at the end of the block.

    Raises:
        HeadraceError: at the end of the block, why a follower ended by itself.
    """
    running = [
        _Running(config, stop) for config in configs.values() if isinstance(config, FollowerConfig)
    ]
    for one in running:
        one.thread.start()
    try:
        yield
    finally:
        stop.set()
        for one in running:
            one.join()
    for one in running:
        if one.error is not None:
            raise one.error


class _Running:
    """One follower in its thread."""

    def __init__(self, config: FollowerConfig, stop: threading.Event) -> None:
        paths, upstream = StatePaths.of(config), config.relay.upstream
        token = upstream.token.get_secret_value() if upstream.token else None
        self._upstream = RelayUpstream(
            upstream.urls,
            config.name,
            HttpSettings(
                read_timeout_s=upstream.read_timeout_s,
                token=token,
                tls=trusting(upstream.ca, "relay.upstream.ca") if upstream.ca else None,
            ),
        )
        self._status = StatusFile(paths.status(FOLLOWER), FOLLOWER)
        self._told = ""
        self._stop = stop
        self._follower = Follower(
            name=config.name,
            upstream=self._upstream,
            folder=paths.changelog,
            settings=log_settings(config.changelog),
            registry=FileRegistry(paths.registry),
            on_status=self._tell,
        )
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=f"follow-{config.name}", daemon=True)

    def join(self) -> None:
        """Wait for the end, whatever it waits for."""
        while self.thread.is_alive():
            self._upstream.interrupt()
            self.thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            self._follower.run(self._stop)
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            self.error = error
            self._stop.set()

    def _tell(self, status: FollowStatus) -> None:
        fresh = status.state != self._told
        self._told = status.state
        # On a full disk there is no room to say so either; the log of the process does.
        with contextlib.suppress(OSError):
            self._status.write(ProcessState.RUNNING, asdict(status), force=fresh)
