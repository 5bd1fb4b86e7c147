"""The file of a relay that reads from other relays, and has no source of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from headrace.replicator.config import ChangeLogConfig, StateConfig
from headrace.replicator.relay_config import FollowingRelayConfig
from headrace.replicator.section import Section
from headrace.replicator.source_config import NAME

__all__ = ["FOLLOWER", "FollowerConfig"]

FOLLOWER = "follower"
"""Name of its status file."""


class FollowerConfig(Section):
    """One source of a relay that copies it from another relay.

    Attributes:
        name: of the source, the same as upstream: to its consumers all relays of a source are one.
        relay: where from, and how it is served.
        changelog: of the copy.
        state: where that lies.
    """

    name: Annotated[str, Field(pattern=NAME)]
    relay: FollowingRelayConfig
    changelog: ChangeLogConfig = ChangeLogConfig()
    state: StateConfig = StateConfig()

    @property
    def source_name(self) -> str:
        """What relays call the source."""
        return self.name

    @property
    def state_dir(self) -> Path:
        """Absolute folder of everything that is kept."""
        if self.state.dir is None:
            raise ValueError("state.dir is set when the file is loaded")
        return self.state.dir
