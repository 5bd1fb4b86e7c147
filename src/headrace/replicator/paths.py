"""Where one replicator keeps what; every process finds the same places in the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.durable import make_folder
from headrace.replicator.config import Config
from headrace.replicator.follower_config import FollowerConfig

__all__ = ["StatePaths"]


@dataclass(frozen=True, slots=True)
class StatePaths:
    """The layout of a state folder.

    Attributes:
        root: the folder itself.
    """

    root: Path

    @classmethod
    def of(cls, config: Config | FollowerConfig) -> StatePaths:
        """Return the layout of a configuration."""
        return cls(config.state_dir)

    @property
    def changelog(self) -> Path:
        """Segments of the change log."""
        return self.root / "changelog"

    @property
    def registry(self) -> Path:
        """Table versions; they belong to the change log and are kept as long."""
        return self.changelog / "schemas"

    @property
    def database(self) -> Path:
        """Requests, progress and the re-read list."""
        return self.root / "state.db"

    @property
    def activity(self) -> Path:
        """What became visible, minute by minute; without it the last day is forgotten and nothing else."""
        return self.root / "activity.db"

    @property
    def lineage(self) -> Path:
        """Lineage events that wait for a collector; without it those are not sent and nothing else."""
        return self.root / "lineage"

    @property
    def spark(self) -> Path:
        """Spark's own files; they may be deleted whenever nothing runs."""
        return self.root / "spark"

    @property
    def tap(self) -> Path:
        """What the algorithm did, step by step, when the configuration asks for it."""
        return self.root / "tap"

    @property
    def freshness(self) -> Path:
        """Samples of source commit to visible in the target, one JSON object per batch."""
        return self.root / "freshness.jsonl"

    @property
    def dead_letters(self) -> Path:
        """Changes that tables did not take."""
        return self.root / "dead_letters"

    def status(self, process: str) -> Path:
        """Return what ``process`` last said about itself."""
        return self.root / "status" / f"{process}.json"

    def log(self, process: str) -> Path:
        """Return the output of a child process."""
        return self.root / "logs" / f"{process}.log"

    def lock(self, process: str) -> Path:
        """Return the file that a process locks while it owns its work on this folder."""
        return self.root / "locks" / f"{process}.lock"

    def create(self) -> None:
        """Make the folder, for its owner alone, and those in it that are written by more than one part.

        A folder that is there keeps its rights: whoever made it may want others to read it.
        """
        # It holds rows: of the change log, of spools, of dead letters.
        make_folder(self.root, 0o700)
        for name in ("status", "logs", "locks"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
