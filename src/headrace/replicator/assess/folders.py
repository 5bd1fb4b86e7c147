"""Whether the folders that a configuration names can be written; nothing is made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from headrace.replicator.assess.problems import Problem
from headrace.replicator.config import Config, DuckdbTargetConfig

__all__ = ["state_folder_problems", "target_folder_problems"]


def target_folder_problems(config: Config) -> Iterator[Problem]:
    """Yield why the target's files cannot be written, if it has any on this machine."""
    path = getattr(config.target, "path", None)
    if not isinstance(path, Path):
        return
    folder = path.parent if isinstance(config.target, DuckdbTargetConfig) else path
    if why := _refusal(folder):
        yield Problem(
            "target-not-writable",
            f"Nothing can be written below {folder}: {why}.",
            "Name another folder as target.path, or give this user the right to write there.",
            field="target.path",
        )


def state_folder_problems(config: Config) -> Iterator[Problem]:
    """Yield why the replicator cannot keep its state."""
    if why := _refusal(config.state_dir):
        yield Problem(
            "state-not-writable",
            f"No state can be kept in {config.state_dir}: {why}.",
            "Name another folder as state.dir, or give this user the right to write there.",
            field="state.dir",
        )


def _refusal(folder: Path) -> str:
    """Return why nothing can be written below a folder, which need not be there yet; empty when it can."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        return f"{there} is no folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"this user may not write in {there}"
    return ""
