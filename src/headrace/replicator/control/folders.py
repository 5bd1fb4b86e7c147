"""Where a control plane keeps what belongs to one replicator, and the file that its process reads.

In: a replicator as it is noted. Out: a folder that no other one, earlier or later, shares: by namespace, name and
generation. Its file says what was given, with references to secrets as they are; only the process that works with it
puts secrets in their places, in its own memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.durable import make_folder, replace_file
from headrace.errors import ConfigError
from headrace.replicator.assess.document import configured, read_document
from headrace.replicator.config import Config
from headrace.replicator.control.records import Deployed
from headrace.replicator.paths import StatePaths
from headrace.replicator.relative_paths import make_absolute
from headrace.replicator.seed.read import is_seed, read_seed

__all__ = ["Folders", "ReplicatorFolder", "rendered"]


@dataclass(frozen=True, slots=True)
class ReplicatorFolder:
    """The folder of one generation of a replicator.

    Attributes:
        root: the folder itself.
    """

    root: Path

    @property
    def state(self) -> StatePaths:
        """Progress, change log and status; what ``state.dir`` names elsewhere."""
        return StatePaths(self.root / "state")

    @property
    def log(self) -> Path:
        """What ``headrace run`` says."""
        return self.root / "logs" / "run.log"

    def file(self, revision: int) -> Path:
        """Return the configuration of a revision."""
        return self.root / f"config-{revision}.json"

    def write(self, deployed: Deployed) -> Path:
        """Write the configuration of the present revision, durably and whole; return where it is."""
        path = self.file(deployed.revision)
        make_folder(self.root, 0o700)
        document = self._document(deployed)
        replace_file(path, (json.dumps(document, indent=2) + "\n").encode())
        for other in self.root.glob("config-*.json"):
            if other != path:
                other.unlink(missing_ok=True)
        return path

    def config(self, deployed: Deployed) -> Config:
        """Return the configuration with its secrets in their places.

        Raises:
            ConfigError: it does not hold any more: a variable of the environment is not set.
        """
        return configured(read_document(self._document(deployed), self.root))

    def _document(self, deployed: Deployed) -> dict[str, Any]:
        return rendered(deployed.config, deployed.full_name, Path(deployed.base), self.state.root)


class Folders:
    """The state folder of a control plane.

    Args:
        root: absolute.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.replicators = root / "replicators"

    def of(self, deployed: Deployed) -> ReplicatorFolder:
        """Return the folder of a replicator."""
        generation = str(deployed.generation)
        return ReplicatorFolder(self.replicators / deployed.namespace / deployed.name / generation)


def rendered(
    config: Mapping[str, Any], name: str, base: Path, state: Path | None = None
) -> dict[str, Any]:
    """Return a configuration as a process reads it: in our own form, absolute paths, references as they are.

    Args:
        config: as it was given, in our form or the design's.
        name: that it gets.
        base: folder at which its relative paths begin.
        state: folder that ``state.dir`` names, as given when None.

    Raises:
        ConfigError: it asks for a state folder of its own.
    """
    given = read_seed(config, name).mapping if is_seed(config) else config
    document: dict[str, Any] = json.loads(json.dumps(given))
    make_absolute(document, base)
    kept = document.get("state")
    kept = kept if isinstance(kept, dict) else {}
    if "dir" in kept:
        raise ConfigError(
            "state.dir: the control plane gives every replicator a folder of its own.",
            next_step="leave state.dir out.",
        )
    document["name"] = name
    if state is not None:
        document["state"] = {**kept, "dir": str(state)}
    return document
