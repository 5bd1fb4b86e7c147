"""Where a control plane keeps what belongs to one replicator, and the file that its process reads.

In: a replicator as it is noted. Out: a folder that no other one, earlier or later, shares: by namespace, name and
generation. Its file says what was given, with references to secrets as they are; only the process that works with it
puts secrets in their places, in its own memory.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.durable import replace_file
from headrace.replicator import config_file
from headrace.replicator.config import Config
from headrace.replicator.control.records import Deployed
from headrace.replicator.paths import StatePaths

__all__ = ["Folders", "ReplicatorFolder"]


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
        self.root.mkdir(parents=True, exist_ok=True)
        document = document_of(deployed, self)
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
        return config_file.check(document_of(deployed, self), self.file(deployed.revision))


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


def document_of(deployed: Deployed, folder: ReplicatorFolder) -> dict[str, Any]:
    """Return a configuration as its process reads it: a name of its own, absolute paths, its own state folder."""
    document = json.loads(json.dumps(deployed.config))
    base = Path(deployed.base)
    for place in (
        ("target", "path"),
        ("source", "ca"),
        ("relay", "tls", "certificate"),
        ("relay", "tls", "key"),
        ("relay", "routes"),
    ):
        _make_absolute(document, place, base)
    state = document.get("state")
    document["name"] = deployed.full_name
    document["state"] = {**(state if isinstance(state, dict) else {}), "dir": str(folder.state.root)}
    return dict(document)


def _make_absolute(document: Any, place: tuple[str, ...], base: Path) -> None:
    *sections, last = place
    for name in sections:
        document = document.get(name) if isinstance(document, dict) else None
    value = document.get(last) if isinstance(document, dict) else None
    # A reference may stand for an absolute path; a URL is no path.
    if isinstance(value, str) and "://" not in value and not value.startswith("${"):
        document[last] = os.path.normpath(base / Path(value).expanduser())
