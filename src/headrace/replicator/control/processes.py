"""The processes of replicators: found by what stands in their environment, started, ended, and told from others.

A process of ``headrace run`` that a control plane started carries the replicator's folder and the revision of its
configuration in its environment, from its first moment. Whoever looks after the folder next finds it by that. It
leads a session of its own, so nothing that ends the control plane ends it too. Linux only, as `orphans`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import StateError
from headrace.replicator import orphans
from headrace.replicator.orphans import birth_of, lives

__all__ = ["FOLDER", "REVISION", "RunProcess", "find", "start"]

FOLDER = "HEADRACE_RUN_FOLDER"
"""Environment variable with the folder of the replicator that a process runs."""
REVISION = "HEADRACE_RUN_REVISION"
"""Environment variable with the revision of its configuration."""


@dataclass(slots=True)
class RunProcess:
    """A process of ``headrace run``.

    Attributes:
        pid: of it.
        birth: when it was born, in the kernel's count; tells it from a later one with its number.
        revision: of the configuration that it was started with.
        child: where it is a child of ours, which has to be buried; None for an adopted one.
    """

    pid: int
    birth: str
    revision: int
    child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def lives(self) -> bool:
        """Whether it is still there."""
        if self.child is not None:
            return self.child.poll() is None
        return lives(self.pid, self.birth)

    def exit_code(self) -> int | None:
        """Return its exit code, None where nobody here can know: it lives, or was adopted."""
        return self.child.poll() if self.child is not None else None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, and nobody else."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # Behind the handle: it belongs to the process that has the number now, and that is looked at next.
            if self.lives():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def start(
    argv: Sequence[str], folder: Path, revision: int, log: Path, environment: Mapping[str, str]
) -> RunProcess:
    """Start a process for the replicator in ``folder``; its output goes to the end of ``log``.

    Raises:
        StateError: it cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env={**environment, FOLDER: str(folder), REVISION: str(revision)},
                start_new_session=True,
            )
    except OSError as error:
        raise StateError(
            f"{folder.name}: its process cannot be started ({error.strerror}).",
            next_step="see that the state folder can be written and the machine has room for processes.",
        ) from error
    return RunProcess(child.pid, birth_of(child.pid), revision, child)


def find(root: Path) -> dict[Path, list[RunProcess]]:
    """Return the processes of all replicators below ``root``, by folder."""
    found: dict[Path, list[RunProcess]] = {}
    prefix = f"{FOLDER}={root}{os.sep}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue
        if prefix not in environment:
            continue
        values = dict(
            pair.decode(errors="replace").partition("=")[::2]
            for pair in environment.split(b"\0")
            if b"=" in pair
        )
        if FOLDER not in values or orphans.PARENT in values:
            # What a process of a replicator has started carries it too, and belongs to that.
            continue
        pid = int(entry.name)
        birth, revision = birth_of(pid), values.get(REVISION, "")
        if birth and revision.isdecimal():
            process = RunProcess(pid, birth, int(revision))
            found.setdefault(Path(values[FOLDER]), []).append(process)
    return found
