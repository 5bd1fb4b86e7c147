"""``python -m benchmarks.control_child FOLDER REPLICATORS TABLES``: a control plane over simulated replicators.

Each replicator is a process that holds nothing and tells its status once, beside files as the parts of a real one leave
them. Says ``serving PORT`` when every one of them runs and was looked at, and ends when its input does.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from headrace.replicator.api.app import application
from headrace.replicator.api.people import Known
from headrace.replicator.api.rates import RateLimits
from headrace.replicator.api.serve import Listening, listen, serve
from headrace.replicator.control.lifecycle import Command, State
from headrace.replicator.control.plane import ControlPlane, PlaneSettings
from headrace.replicator.control.reconcile import Limits
from headrace.testing.standing import standing

PHASES = ("live", "copying", "failing")
WORKER = """
mkdir -p "$0/status"
printf '{"process":"run","pid":%d,"state":"running","updated_us":1,"detail":{},"error":null}' $$ > "$0/status/run.tmp"
mv "$0/status/run.tmp" "$0/status/run.json"
exec sleep 3600
"""
_WAIT_S = 150.0


def simulated(file: Path) -> tuple[str, ...]:
    """Return the command of a process that says that it runs."""
    return "/bin/sh", "-c", WORKER, str(file.parent / "state")


def deploy(plane: ControlPlane, folder: Path, replicators: int, tables: int) -> None:
    """Deploy and start all of them, each with tables in every state."""
    states = {f"t{number}": PHASES[number % len(PHASES)] for number in range(tables)}
    with plane.writing() as writer:
        for number in range(replicators):
            config = {
                "source": {"type": "postgres", "url": "postgresql://u@h/d", "tables": ["public.*"]},
                "target": {"type": "delta", "path": f"{folder}/lake{number}"},
            }
            writer.deploy("default", f"r{number}", config, "/")
    for row in plane.store.replicators():
        standing(plane.folders.of(row).config(row), states)
    with plane.writing() as writer:
        for number in range(replicators):
            writer.command("default", f"r{number}", Command.START)


def ready(plane: ControlPlane, tables: int) -> bool:
    """Whether all run, and each was looked at since."""
    rows = plane.store.replicators()
    return all(
        row.state is State.RUNNING
        and (seen := plane.pictures.last(row)) is not None
        and seen.picture is not None
        and len(seen.picture.tables) == tables
        for row in rows
    )


def main() -> None:
    """Serve until the input ends, then end every replicator."""
    folder, replicators, tables = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    settings = PlaneSettings(
        folder / "state", launch=simulated, limits=Limits(stop_s=5.0, starting=replicators)
    )
    where, stop = Listening(port=0), threading.Event()
    with ControlPlane(settings) as plane:
        deploy(plane, folder, replicators, tables)
        deadline = time.monotonic() + _WAIT_S
        while not ready(plane, tables):
            if time.monotonic() > deadline:
                raise SystemExit("not all of them run")
            time.sleep(0.1)
        listening = listen(where)

        def until_told() -> None:
            sys.stdin.read()
            stop.set()

        threading.Thread(target=until_told, daemon=True).start()
        # One person asks much more than people do.
        app = application(plane, Known(()), stop.is_set, RateLimits(per_s=1e6, burst=10**6))
        port = listening.getsockname()[1]
        serve(app, where, listening, stop, lambda: print(f"serving {port}", flush=True))
        with plane.writing() as writer:
            for number in range(replicators):
                writer.command("default", f"r{number}", Command.STOP)
        deadline = time.monotonic() + _WAIT_S
        while plane.reconciler.processes() and time.monotonic() < deadline:
            time.sleep(0.1)


if __name__ == "__main__":
    main()
