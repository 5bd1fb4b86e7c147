"""The followers of a relay: put together from their files, each in a thread beside the server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from headrace.changelog.jobs import jobs, register_job
from headrace.client.http import HttpSettings
from headrace.client.trust import trusting
from headrace.observe.status import ProcessState, StatusFile
from headrace.registry.file import FileRegistry
from headrace.relay.follow import Follower, FollowStatus
from headrace.replicator.config import Config
from headrace.replicator.follower_config import FOLLOWER, FollowerConfig
from headrace.replicator.paths import StatePaths
from headrace.replicator.relay_config import RelaySourceConfig, UpstreamConfig
from headrace.replicator.runner import log_settings
from headrace.replicator.upstream import RelayUpstream

__all__ = ["Tell", "follow", "followed", "http_of"]

_JOIN_S = 0.05

Tell = Callable[[FollowStatus], None]
"""Hears how a follower goes."""


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


def http_of(upstream: UpstreamConfig, setting: str) -> HttpSettings:
    """Return how the relays of a section are reached.

    Args:
        upstream: the section.
        setting: its name in the file.

    Raises:
        ConfigError: its authority cannot be used.
    """
    return HttpSettings(
        read_timeout_s=upstream.read_timeout_s,
        token=upstream.token.get_secret_value() if upstream.token else None,
        tls=trusting(upstream.ca, f"{setting}.ca") if upstream.ca else None,
    )


def follow(config: Config, source: RelaySourceConfig, stop: threading.Event, tell: Tell) -> None:
    """Copy a replicator's changes from relays until ``stop`` is set.

    Args:
        config: of the replicator.
        source: its section.
        stop: ends it.
        tell: told how it goes.

    Raises:
        LeaseLost: another process writes the change log.
        ChangeLogLost: segments of it are gone.
    """
    paths = StatePaths.of(config)
    if config.name not in jobs(paths.changelog):
        # Before the first block: nothing may be dropped that the target does not have.
        register_job(paths.changelog, config.name, 0)
    upstream = RelayUpstream(source.urls, config.source_name, http_of(source, "source"))
    with _interrupted_by(stop, upstream):
        _follower(config, upstream, tell).run(stop)


@contextlib.contextmanager
def _interrupted_by(stop: threading.Event, upstream: RelayUpstream) -> Iterator[None]:
    """Let nothing that waits for upstream outlast ``stop``."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_JOIN_S):
            if stop.is_set():
                upstream.interrupt()

    thread = threading.Thread(target=look, name="interrupt", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _follower(config: Config | FollowerConfig, upstream: RelayUpstream, tell: Tell) -> Follower:
    paths = StatePaths.of(config)
    return Follower(
        name=config.source_name,
        upstream=upstream,
        folder=paths.changelog,
        settings=log_settings(config.changelog),
        registry=FileRegistry(paths.registry),
        on_status=tell,
    )


class _Running:
    """One follower in its thread."""

    def __init__(self, config: FollowerConfig, stop: threading.Event) -> None:
        upstream = config.relay.upstream
        self._upstream = RelayUpstream(
            upstream.urls, config.name, http_of(upstream, "relay.upstream")
        )
        paths = StatePaths.of(config)
        paths.create()
        self._status = StatusFile(paths.status(FOLLOWER), FOLLOWER)
        self._told = ""
        self._stop = stop
        self._follower = _follower(config, self._upstream, self._tell)
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
        finally:
            self._status.close()

    def _tell(self, status: FollowStatus) -> None:
        fresh = status.state != self._told
        self._told = status.state
        self._status.write(ProcessState.RUNNING, asdict(status), force=fresh)
