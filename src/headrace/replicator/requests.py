"""Asks a replicator to read tables or keys again, and waits for it."""

from __future__ import annotations

import contextlib
import csv
import time
from collections.abc import Sequence

from headrace.errors import ConfigError, StateError
from headrace.model.schema import TableId
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.state.store import DumpRequest, RequestState, Scope, StateStore

__all__ = ["submit", "wait"]

_POLL_S = 0.2


def submit(config: Config, table: str, keys: Sequence[str]) -> str:
    """Queue a request and return its id.

    Args:
        config: of the replicator.
        table: ``schema.table`` or ``all``.
        keys: one text per key, parts of a composite key separated by commas (quoted as in CSV).

    Raises:
        ConfigError: the arguments do not fit together.
    """
    if table == "all" and keys:
        raise ConfigError(
            "dump: keys belong to one table, and all were asked for.",
            next_step="name the table: --table schema.table.",
        )
    parsed = [tuple(next(csv.reader([key]))) for key in keys]
    scope = Scope.ALL_TABLES if table == "all" else Scope.PRIMARY_KEYS if keys else Scope.TABLE
    chosen = None if table == "all" else TableId.parse(table)
    with contextlib.closing(StateStore(StatePaths.of(config).database)) as store:
        known = {entry.table for entry in store.progress()}
        if chosen is not None and known and chosen not in known:
            raise ConfigError(
                f"dump: {chosen} is not a table of replicator {config.name}.",
                next_step=f"choose one of {', '.join(sorted(str(name) for name in known))}.",
            )
        return store.submit(scope, chosen, parsed)


def wait(config: Config, request_id: str, timeout_s: float = 24 * 3600.0) -> str:
    """Return a sentence about the request's end.

    Raises:
        StateError: it failed, or did not end in time.
    """
    deadline = time.monotonic() + timeout_s
    with contextlib.closing(StateStore(StatePaths.of(config).database)) as store:
        while time.monotonic() < deadline:
            request = next(r for r in store.requests() if r.request_id == request_id)
            if request.state is RequestState.FAILED:
                raise StateError(
                    f"request {request_id}: {request.reason}",
                    next_step="correct the cause, then ask again.",
                )
            if request.state is RequestState.COMPLETED:
                return _outcome(request, store)
            time.sleep(_POLL_S)
    raise StateError(
        f"request {request_id}: not finished after {timeout_s:.0f} s.",
        next_step="see whether the replicator runs: headrace status FILE.",
    )


def _outcome(request: DumpRequest, store: StateStore) -> str:
    rows = sum(entry.rows_emitted for entry in store.progress(request.request_id))
    missing = ""
    if request.missing:
        listed = "; ".join(",".join(key) for key in request.missing)
        missing = f"; no longer at the source: {listed}"
    return f"completed: {rows:,} rows are in the change log{missing}"
