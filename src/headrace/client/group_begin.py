"""How a member finds its group, or begins it: whoever comes first makes it, for all who come later.

What a group shares is written down with it, so that a member that means something else is refused.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from headrace.client.errors import GroupUnavailable
from headrace.client.group_state import GroupState
from headrace.client.group_store import GroupStore
from headrace.errors import ConfigError, HeadraceError

__all__ = ["defined", "found"]

_log = logging.getLogger(__name__)


def defined(source: str, by: str, filter_: Mapping[str, Any]) -> str:
    """Return what all members have to agree on, as text that is equal when they do.

    Raises:
        ConfigError: no group can be spread so.
    """
    if by not in ("hash", "mod"):
        raise ConfigError(
            f"A group cannot be spread by {by!r}.", next_step="spread it by 'hash' or 'mod'."
        )
    if "partition" in filter_:
        raise ConfigError(
            "The filter of a group names a partition.",
            next_step="leave it out: each member is given partitions of its own.",
        )
    return json.dumps({"source": source, "by": by, "filter": filter_}, sort_keys=True)


def found(
    store: GroupStore,
    name: str,
    definition: str,
    begin: Callable[[], GroupState],
    stopping: threading.Event,
    pause_s: float,
) -> bool:
    """Make sure that the group is there, and that it is ours; return False when the end is wanted before.

    Args:
        store: of the group; waited for while it does not answer.
        name: of the group.
        definition: what this member takes the group for, as `defined` has it.
        begin: makes the group, when there is none of this name.
        stopping: set when the end is wanted.
        pause_s: before the store is asked again.

    Raises:
        ConfigError: the group is another one.
        HeadraceError: the place to begin cannot be found.
    """
    while not stopping.is_set():
        try:
            state = store.read(name)
            if state is None:
                store.create(name, begin())
                state = store.read(name)
        except GroupUnavailable as error:
            _log.warning("%s", error)
            stopping.wait(pause_s)
            continue
        except HeadraceError:
            if stopping.is_set():
                return False
            raise
        if state is not None and state.definition != definition:
            raise ConfigError(
                f"Group {name} shares {state.definition}, and this member {definition}.",
                next_step="give all members the same source, filter and by, or another name to the group.",
            )
        return True
    return False
