"""A replicator as its user runs it: the command line, from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.lake import FrontierStore
from headrace.observe.status import ProcessStatus
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from tests.waiting import until

HEADRACE = (sys.executable, "-m", "headrace.cli.main")


class Replicator:
    """A configuration file and the processes that were started for it."""

    def __init__(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        self.file = file
        self.config = load(file)
        self.paths = StatePaths.of(self.config)
        self.output = file.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *words: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        """Run one command to its end; the first word is the command, ``dump start`` with its group."""
        return subprocess.run(
            [*HEADRACE, *words[0].split(), str(self.file), *words[1:]],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def succeed(self, *words: str, timeout_s: float = 600) -> str:
        """Run one command and return its output; fail with everything it said otherwise."""
        done = self.command(*words, timeout_s=timeout_s)
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start ``headrace run`` in the background."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*HEADRACE, "run", str(self.file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def stop(self) -> int:
        """End it the way a service manager does, and return its exit code."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.terminate()
        return process.wait(60)

    def kill(self) -> None:
        """End the supervisor alone, without a word."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def status(self) -> dict[str, Any]:
        """Return what ``headrace status`` knows."""
        value: dict[str, Any] = json.loads(self.succeed("status", "--json", timeout_s=60))
        return value

    def frontier(self) -> int:
        """Return the SCN that the tables show, 0 before the first."""
        newest = FrontierStore(self.config.lake, self.config.name).latest()
        return newest.scn if newest else 0

    def all_live(self, count: int) -> bool:
        """Whether ``count`` tables are copied and followed."""
        newest = FrontierStore(self.config.lake, self.config.name).latest()
        entries = newest.tables.values() if newest else ()
        return sum(entry.state == "live" for entry in entries) >= count

    def pid_of(self, role: str) -> int:
        """Return the process id of ``capture``, ``apply`` or ``jvm``; 0 when there is none."""
        wanted = "apply" if role == "jvm" else role
        path = self.paths.status(wanted)
        try:
            pid = int(json.loads(path.read_text())["pid"])
        except (OSError, ValueError):
            return 0
        if role == "jvm":
            return next((p for p in children(pid) if command_of(p) == "java"), 0)
        return pid if command_of(pid) else 0

    def restarts(self) -> dict[str, int]:
        """Return how often the running supervisor started each process again."""
        status = ProcessStatus.read(self.paths.status("run"))
        return status.detail.get("restarts", {}) if status else {}

    def running(self, what: str, condition: Any, timeout_s: float = 400) -> Any:
        """Wait for a condition while the supervisor lives, and return its first true value."""

        def look() -> Any:
            process = self.process
            assert process is None or process.poll() is None, f"run ended: {self.logs()}"
            return condition()

        try:
            return until(look, what, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error

    def logs(self) -> str:
        """Return the ends of all logs, for a failing test's message."""
        parts = []
        for path in [self.output, *sorted((self.paths.root / "logs").glob("*.log"))]:
            if path.exists():
                parts.append(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}")
        return "\n".join(parts)

    def close(self) -> None:
        """End everything, whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Pipeline(Replicator):
    """A replicator of one database, in a file of its own."""

    def __init__(
        self,
        folder: Path,
        url: str,
        tables: Sequence[str] = ("shop.*",),
        more: str = "",
        target: str = "{type: delta, path: ./lake}",
        kind: str = "",
    ) -> None:
        self.tables = tables
        kind = kind or ("mysql" if url.startswith("mysql:") else "postgres")
        pace = "poll_s: 0.05" if kind == "trigger" else "heartbeat_s: 1"
        super().__init__(
            folder / "pipeline.yaml",
            "name: e2e\n"
            f"source: {{type: {kind}, url: {json.dumps(url)}, "
            f"tables: {json.dumps(list(tables))}, {pace}}}\n"
            f"target: {target}\n"
            # Nobody else needs the server.
            "dump: {load: 1}\n"
            "spark: {driver_memory: 1g}\n" + more,
        )


def children(pid: int) -> list[int]:
    """Return the process ids of a process's children."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            found.append(int(entry.name))
    return found


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield every file below a folder with what it holds, but for those that running processes take away meanwhile."""
    for place, _, names in os.walk(folder):
        for file in (Path(place, name) for name in names):
            try:
                held = file.read_bytes()
            except FileNotFoundError:
                continue
            yield file, held


def command_of(pid: int) -> str:
    """Return the name of a living process, empty when it is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return "" if rest.split()[0] == "Z" else name
