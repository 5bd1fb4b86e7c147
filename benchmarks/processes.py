"""Runs a program as a child and says what it took: wall time, CPU time, anonymous resident memory at its peak."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "Child",
    "Turns",
    "Usage",
    "anonymous_mib",
    "child_titled",
    "cpu_s",
    "family_cpu_s",
    "family_mib",
    "python",
    "running",
    "tree_cpu_s",
    "turns",
]

_SAMPLE_S = 0.02
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a child took from its start to its end.

    Attributes:
        wall_s: start to end.
        cpu_s: user and system, by the kernel's account of the ended process.
        rss_mib: largest anonymous resident memory that was seen.
        began_us: when it was started, microseconds since 1970.
        said: the JSON object of its last line, empty when there was none.
    """

    wall_s: float
    cpu_s: float
    rss_mib: float
    began_us: int
    said: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turns:
    """What a process had of the processors until a moment.

    Attributes:
        at_s: that moment, by the monotonic clock.
        ran_s: it ran.
        ready_s: it could have run, and others did.
        preempted: how often the processor was taken from it.
    """

    at_s: float
    ran_s: float
    ready_s: float
    preempted: int


def turns(pid: int) -> Turns | None:
    """Return what a process with one thread had of the processors, None when it is gone or the system does not say."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        ran, ready, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="utf-8").split()
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        taken = next(line for line in lines if line.startswith("nonvoluntary"))
        return Turns(time.monotonic(), int(ran) / 1e9, int(ready) / 1e9, int(taken.split()[1]))
    return None


def anonymous_mib(pid: int) -> float:
    """Return the anonymous resident memory of a process, 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a running process has used, user and system."""
    return sum(_cpu_times_s(pid)[:2])


def tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, of all it has started that runs, and of what ended under them."""
    return _kept_cpu_s(pid) + sum(map(tree_cpu_s, _children(pid)))


def _kept_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that ended, 0 when it is gone."""
    with contextlib.suppress(OSError):
        return sum(_cpu_times_s(pid))
    return 0.0


def _cpu_times_s(pid: int) -> list[float]:
    """Return user and system seconds of a process, then those of its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15]]


def family_cpu_s(pid: int) -> dict[str, float]:
    """Return the CPU seconds of a `headrace run` by what they went into.

    Returns:
        ``capture_cpu_s``; of the apply job ``driver_cpu_s``, ``java_cpu_s`` and ``workers_cpu_s`` (Spark's Python
        workers); ``other_cpu_s``.
    """
    spent = dict.fromkeys(("capture", "driver", "java", "workers", "other"), 0.0)

    def add(process: int, place: str) -> None:
        spent[place] += _kept_cpu_s(process)
        for child in _children(process):
            add(child, _place(child) or ("workers" if place == "java" else place))

    add(pid, "other")
    return {f"{name}_cpu_s": round(seconds, 3) for name, seconds in spent.items()}


def _place(pid: int) -> str | None:
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "java":
            return "java"
        command = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
        for role, place in (("capture_process", "capture"), ("apply_process", "driver")):
            if role in command:
                return place
    return None


def family_mib(pid: int) -> dict[str, float]:
    """Return the anonymous resident memory of a driver of Spark and of everything that it has started.

    Returns:
        ``driver_mib``, ``java_mib``, ``workers_mib`` (all other children, Spark's Python workers) and ``all_mib``.
    """
    held = {"driver_mib": anonymous_mib(pid), "java_mib": 0.0, "workers_mib": 0.0}
    waiting = _children(pid)
    while waiting:
        child = waiting.pop()
        waiting += _children(child)
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{child}/comm").read_text(encoding="utf-8").strip()
            held["java_mib" if name == "java" else "workers_mib"] += anonymous_mib(child)
    return held | {"all_mib": sum(held.values())}


def _children(pid: int) -> list[int]:
    # Each thread has the children that it started.
    found: list[int] = []
    for thread in Path("/proc").glob(f"{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            found += map(int, thread.read_text(encoding="utf-8").split())
    return found


def child_titled(pid: int, title: str) -> int | None:
    """Return a child of a process whose command line, which a program may set, holds a text; None without one."""
    for child in _children(pid):
        with contextlib.suppress(OSError):
            if title in Path(f"/proc/{child}/cmdline").read_text(
                encoding="utf-8", errors="replace"
            ):
                return child
    return None


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this project."""
    return [sys.executable, "-m", module, *arguments]


class Child:
    """A running program whose output goes to a file; its standard input stays open until `end`.

    Args:
        command: program and arguments.
        environment: over this process's own.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = command
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `wait`
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `wait`
        self._began_us = time.time_ns() // 1000
        self._began = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._errors,
            env=_environment() | dict(environment or {}),
        )
        self._peak = 0.0
        self._last_mib = 0.0
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="memory", daemon=True)
        self._watcher.start()

    @classmethod
    def run(
        cls, command: Sequence[str], limit_s: float, environment: Mapping[str, str] | None = None
    ) -> Usage:
        """Run a program to its end."""
        return cls(command, environment).wait(limit_s)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        # What it used is left for `wait` to fetch.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def said(self, text: str) -> bool:
        """Return whether a line with ``text`` was printed; raises when the program has failed."""
        # Before the look: it may say it and end in between.
        alive = self.alive
        # Read by place: the child writes through the same offset.
        file = self._output.fileno()
        if text.encode() in os.pread(file, os.fstat(file).st_size, 0):
            return True
        if not alive:
            self.wait(1.0)
            raise SystemExit(f"{self._name} ended before it said {text!r}")
        return False

    def until_said(self, text: str, limit_s: float) -> None:
        """Return when a line with ``text`` was printed."""
        self.until(lambda: self.said(text), limit_s, f"it said {text!r}")

    def line(self, text: str) -> str:
        """Return the first line that holds ``text``; empty while there is none."""
        file = self._output.fileno()
        lines = os.pread(file, os.fstat(file).st_size, 0).decode().splitlines()
        return next((line for line in lines if text in line), "")

    def tell(self, line: str) -> None:
        """Write a line to the program's input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        """Return when a condition holds."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                self.kill()
                raise SystemExit(f"{self._name}: not in {limit_s:.0f} s: {what}")
            time.sleep(0.01)

    def end(self, limit_s: float = _STOP_S) -> Usage:
        """Close the program's standard input, which asks ours to end, and wait."""
        # Not into the peak, which the watching thread may just be writing.
        self._last_mib = anonymous_mib(self.pid)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        return self.wait(limit_s)

    def kill(self) -> None:
        """End the program at once; harmless when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._ended.set()

    def wait(self, limit_s: float) -> Usage:
        """Return what the program took, once it has ended well.

        Raises:
            SystemExit: it failed, or did not end in time; shows the end of what it said.
        """
        late = threading.Timer(limit_s, self.kill)
        late.start()
        try:
            # wait4 and not Popen.wait: only it tells what this one child used.
            _, status, used = os.wait4(self.pid, 0)
        finally:
            late.cancel()
        wall_s = time.perf_counter() - self._began
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()
        self._watcher.join()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        output, errors = self._read(self._output), self._read(self._errors)
        if self._process.returncode:
            raise SystemExit(
                f"{self._name} ended with {self._process.returncode} after {wall_s:.1f} s "
                f"(limit {limit_s:.0f} s):\n{output[-2000:]}\n{errors[-4000:]}"
            )
        cpu_s = used.ru_utime + used.ru_stime
        peak_mib = max(self._peak, self._last_mib)
        return Usage(wall_s, cpu_s, peak_mib, self._began_us, _last_json(output))

    @property
    def _name(self) -> str:
        return " ".join(Path(word).name for word in self._command[:3])

    @staticmethod
    def _read(file: Any) -> str:
        with file:
            file.seek(0)
            return str(file.read())

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self._peak = max(self._peak, anonymous_mib(self.pid))


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Give a child that is killed at the end of the block if it still runs."""
    child = Child(command, environment)
    try:
        yield child
    finally:
        child.kill()


def _environment() -> dict[str, str]:
    """Return the environment of a child: compiled modules are kept, as they are wherever headrace is installed."""
    inherited = dict(os.environ)
    if inherited.pop("PYTHONDONTWRITEBYTECODE", None):
        kept = Path(tempfile.gettempdir()) / f"headrace-bench-modules-{os.geteuid()}"
        inherited["PYTHONPYCACHEPREFIX"] = str(kept)
    return inherited


def _last_json(output: str) -> dict[str, Any]:
    lines = output.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        return {}
    said = json.loads(lines[-1])
    assert isinstance(said, dict)
    return said
