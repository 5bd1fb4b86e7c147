"""The demo's folder: what lies where, and what may be removed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ConfigError
from headrace.testing.postgres_server import passable

__all__ = ["Place"]

_MARK = ".headrace-demo"


@dataclass(frozen=True, slots=True)
class Place:
    """One folder that belongs to the demo alone.

    Attributes:
        root: absolute path.
    """

    root: Path

    @property
    def server(self) -> Path:
        """The embedded server's files.

        As root the server runs as another user: when that one cannot get to the folder, as under /root, its files
        lie in the system's temporary folder.
        """
        if os.geteuid() or passable(self.root):
            return self.root / "server"
        name = hashlib.sha256(str(self.root).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"headrace-demo-{name}"

    @property
    def lake(self) -> Path:
        """The target tables."""
        return self.root / "lake"

    @property
    def state(self) -> Path:
        """The replicator's state."""
        return self.root / "state"

    @property
    def config(self) -> Path:
        """The replicator's configuration."""
        return self.root / "shop.yaml"

    def clear(self) -> None:
        """Make the folder empty and ours.

        Raises:
            ConfigError: it holds something that no demo put there.
        """
        if self.root.exists() and not (self.root / _MARK).exists() and any(self.root.iterdir()):
            raise ConfigError(
                f"{self.root}: holds files that are not a demo's.",
                next_step="name another folder with --dir, or empty this one.",
            )
        self.remove()
        self.root.mkdir(parents=True)
        # The server runs as another user when we are root and must get through.
        self.root.chmod(0o755)
        (self.root / _MARK).touch()

    def write_config(self, source_type: str, url: str) -> Path:
        """Write the configuration for a source and return its path."""
        # JSON is YAML; quoting is then never in question.
        self.config.write_text(
            "# Written by headrace demo. Works with every headrace command while the server runs.\n"
            "name: shop\n"
            f'source: {{type: {source_type}, url: {json.dumps(url)}, tables: ["shop.*"]}}\n'
            "target: {type: delta, path: ./lake}\n"
            # Nobody else needs this server: tables are read as fast as they can be.
            "dump: {load: 1}\n"
            "state: {dir: ./state}\n",
            encoding="utf-8",
        )
        return self.config

    def forget_server(self) -> None:
        """Remove everything but the tables."""
        for path in (self.server, self.state):
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            self.config.unlink()

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.server, ignore_errors=True)
        shutil.rmtree(self.root, ignore_errors=True)
