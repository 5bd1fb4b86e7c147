"""A real relay on a free port of this machine, over any change logs: for the tests of whoever asks one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.relay.server.serve import bound, serve
from headrace.relay.server.settings import RelaySettings, ServedSource

__all__ = ["served", "sources_of"]

_DEADLINE_S = 30.0


def sources_of(logs: Mapping[str, Path]) -> tuple[ServedSource, ...]:
    """Return sources by name, each with its registry in ``schemas`` of the log's folder, as a replicator has it."""
    return tuple(ServedSource(name, log, log / "schemas") for name, log in logs.items())


@contextmanager
def served(
    logs: Mapping[str, Path] | tuple[ServedSource, ...], *, port: int = 0, **settings: Any
) -> Iterator[str]:
    """Serve change logs from a thread, and give the relay's URL; end it as `headrace relay` ends.

    Args:
        logs: folders of change logs by the names of their sources, which need not exist yet; or whole sources.
        port: to listen on, 0 for one that is free. The same one again is a restart.
        settings: further fields of `RelaySettings`.
    """
    sources = logs if isinstance(logs, tuple) else sources_of(logs)
    wanted = replace(RelaySettings(sources, port=port), **settings)
    wanted.validate()
    listening = bound(wanted)
    scheme = "https" if wanted.certificate else "http"
    url = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
    stop, started = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            serve(wanted, listening, stop, started=started.set)
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            failed.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="relay", daemon=True)
    thread.start()
    try:
        assert started.wait(_DEADLINE_S), "the relay does not start"
        if failed:
            raise failed[0]
        yield url
    finally:
        stop.set()
        thread.join(_DEADLINE_S)
        assert not thread.is_alive(), "the relay does not end"
