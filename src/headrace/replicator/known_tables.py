"""The tables of a replicator by name, for who asks about one of them and is told nothing.

In: its state and its frontier. Out: an error for a name that neither has, with those that may be meant.
"""

from __future__ import annotations

import contextlib
import difflib

from headrace.errors import UnknownTable
from headrace.lake.frontier import FrontierStore
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.state.store import StateStore

__all__ = ["refuse_unknown"]

_NEAR = 3


def refuse_unknown(config: Config, table: str) -> None:
    """Refuse the name of a table that a replicator does not have; before its first run every name is let through.

    Args:
        config: of the replicator.
        table: ``schema.name``, as somebody wrote it.

    Raises:
        UnknownTable: the replicator has tables, and none of that name.
        StateError: the state does not read.
    """
    known = _known(config)
    if not known or table in known:
        return
    near = difflib.get_close_matches(table, sorted(known), n=_NEAR, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UnknownTable(
        f"Replicator {config.name} has no table {table}.",
        next_step=f"{hint}write schema.table; headrace status FILE lists them.",
    )


def _known(config: Config) -> set[str]:
    """Return every table that was captured, copied or shown."""
    manifest = FrontierStore(config.lake, config.name).latest()
    names = set(manifest.tables) if manifest else set()
    path = StatePaths.of(config).database
    if path.exists():
        with contextlib.closing(StateStore(path)) as state:
            names |= {str(table) for table in (*state.captured(), *state.copies())}
    return names
