"""Local consumers whose position the log must not outrun.

One small file per job under ``jobs/``: what a job has not applied is never dropped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from headrace.changelog.refusals import write_refusals
from headrace.durable import make_folder, replace_file, sync_folder
from headrace.errors import StateError

__all__ = ["job_file", "jobs", "register_job", "unregister_job"]

_FOLDER = "jobs"
_SUFFIX = ".json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def register_job(folder: Path, name: str, applied_scn: int) -> None:
    """Say that job ``name`` has durably applied everything up to ``applied_scn``; durable when it returns.

    Called first before the job reads anything, then after each batch.

    Raises:
        ValueError: when the name cannot be a file name or the SCN is negative.
        DiskFull: when there is no room for the file.
    """
    if applied_scn < 0:
        raise ValueError(f"an applied SCN is never negative: {applied_scn}")
    path = job_file(folder, name)
    with write_refusals(f"Job file {path}"):
        make_folder(path.parent)
        replace_file(path, json.dumps({"applied_scn": applied_scn}).encode())


def unregister_job(folder: Path, name: str) -> None:
    """Let the log forget a job, and with it what only this job still needed."""
    path = job_file(folder, name)
    path.unlink(missing_ok=True)
    if path.parent.exists():
        sync_folder(path.parent)


def jobs(folder: Path) -> dict[str, int]:
    """Return the applied SCN of each job.

    Raises:
        StateError: when a file cannot be understood; leaving it out would drop what its job needs.
    """
    return {
        path.name.removesuffix(_SUFFIX): _applied(path)
        for path in sorted((folder / _FOLDER).glob(f"*{_SUFFIX}"))
    }


def _applied(path: Path) -> int:
    try:
        applied = json.loads(path.read_bytes())["applied_scn"]
        if not isinstance(applied, int) or applied < 0:
            raise ValueError("no SCN")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"Job file {path} cannot be read ({type(error).__name__}).",
            next_step="delete it when the job no longer exists; otherwise start the job, which writes it anew.",
        ) from error
    return applied


def job_file(folder: Path, name: str) -> Path:
    """Return where a job says how far it is.

    Raises:
        ValueError: when the name cannot be a file name.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"not a job name: {name!r}")
    return folder / _FOLDER / f"{name}{_SUFFIX}"
