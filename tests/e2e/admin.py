"""A data admin: one running ``headrace serve``, asked by commands and over HTTP as in the Replicator's user stories."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from headrace.lake.delta_log import DeltaTable
from headrace.replicator.control.processes import RunProcess, find
from headrace.testing.ports import free_port
from tests.control.asking import Asking
from tests.waiting import until

__all__ = ["Admin"]

NS = "/v1/contexts/default"


class Admin:
    """Somebody at a terminal, beside a control plane with one folder.

    Args:
        folder: of files, state and lake.
        environment: secrets that configurations refer to.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._address = f"127.0.0.1:{free_port()}"
        self.ask = Asking(f"http://{self._address}")
        self._environment = {
            **os.environ,
            **environment,
            "HEADRACE_LISTEN": self._address,
            "HEADRACE_SERVER": f"http://{self._address}",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "COLUMNS": "200",
        }
        self._said = folder / "served"
        self._serving: subprocess.Popen[bytes] | None = None

    # -- the control plane ------------------------------------------------------------------------

    def serve(self) -> None:
        """Start it, or start it again."""
        before = self._said.read_text().count("serving http") if self._said.exists() else 0
        with self._said.open("ab") as out:
            argv = [sys.executable, "-m", "headrace.cli.main", "serve"]
            self._serving = subprocess.Popen(
                argv, cwd=self.folder, env=self._environment, stdout=out, stderr=out
            )
        until(lambda: self._said.read_text().count("serving http") > before, "the control plane")

    def kill_server(self) -> None:
        """End it without a word."""
        assert self._serving is not None
        self._serving.kill()
        self._serving.wait()

    def close(self) -> None:
        """End it, and what it looked after."""
        if self._serving is not None and self._serving.poll() is None:
            self._serving.terminate()
            self._serving.wait(30)
        for found in find(self.state / "replicators").values():
            for process in found:
                process.signal(signal.SIGTERM)
                until(partial(_ended, process), "the end of a replicator", 90)

    @property
    def state(self) -> Path:
        """The folder of the control plane."""
        return self.folder / ".headrace" / "serve"

    # -- commands and pages -----------------------------------------------------------------------

    def types(self, line: str) -> str:
        """Run a command to its end; return what it says."""
        done = subprocess.run(
            [sys.executable, "-m", "headrace.cli.main", *line.split()],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def shows(self, line: str) -> Any:
        """Run a command that prints JSON."""
        return json.loads(self.types(f"{line} --json"))

    def detail(self, name: str) -> Any:
        """Return everything about a replicator."""
        return self.ask.one(f"{NS}/replicators/{name}")

    def table(self, name: str, table: str) -> dict[str, Any]:
        """Return what is told of one table, nothing when it is not known yet."""
        found = self.detail(name)["table_list"]
        return next((one for one in found if one["name"] == table), {})

    def number(self, name: str, metric: str, table: str = "") -> float:
        """Return one number of a replicator; 0 when it is not told."""
        answer = self.ask(
            "GET", f"{NS}/replicators/{name}/metrics", headers={"accept": "application/json"}
        )
        assert answer.status == 200, answer.text
        return sum(
            one["value"]
            for one in answer.json["samples"]
            if one["name"] == metric and one["labels"].get("table", "") == table
        )

    def problems(self, config: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Assess a configuration that is not kept; return problems by name."""
        told = self.ask.does("POST", f"{NS}/assessPipeline", {"config": config}, 200)
        found = [*told["features"], *told["connectivity"], *told["transformationIssues"]]
        return {one["name"]: one for one in found}

    # -- behind them ------------------------------------------------------------------------------

    def rows(self, table: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Return what a target table shows, in order; nothing where there is none."""
        newest = DeltaTable(self.folder / "lake" / Path(*table.split("."))).latest()
        found = newest.to_table(list(columns)).to_pylist() if newest else []
        return sorted(tuple(row[name] for name in columns) for row in found)

    def pid(self, name: str, role: str) -> int:
        """Return the process id of ``run``, ``capture`` or ``apply``."""
        return int(self._status(name, role)["pid"])

    def doing(self, name: str) -> str:
        """Return what the capture of a replicator says that it does."""
        return str(self._status(name, "capture")["detail"].get("doing", ""))

    def _status(self, name: str, role: str) -> dict[str, Any]:
        file = self.state / f"replicators/default/{name}/1/state/status/{role}.json"
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def logs(self) -> str:
        """Return the ends of all logs, for a failing test's message."""
        found = sorted(self.state.rglob("*.log"))
        return "\n".join(f"--- {p}\n{p.read_text(errors='replace')[-2000:]}" for p in found)


def _ended(process: RunProcess) -> bool:
    return not process.lives()
