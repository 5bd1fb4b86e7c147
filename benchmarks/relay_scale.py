"""What waits in a relay: readers for whom nothing comes, and change logs that hardly anybody reads."""

from __future__ import annotations

import os
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from benchmarks import harness
from benchmarks.processes import anonymous_mib, cpu_s, python, running
from benchmarks.relay_log import EventLog
from benchmarks.relay_process import LIMIT_S, SEED, Run, relay

__all__ = ["idle", "many_logs"]

_HELD_S = 15.0


def idle(folder: Path, count: int, steps: harness.Steps) -> Run:
    """Hold readers for whom nothing comes."""
    log = EventLog(folder / "log", SEED)
    log.append(log.made(np.zeros(1, np.int64)))
    log.close()
    with steps.step(f"{count:,} idle consumers"), relay(bench=folder / "log") as (server, url):
        at = urlsplit(url)
        before_mib = anonymous_mib(server.pid)
        command = python("benchmarks.relay_idle", str(at.hostname), str(at.port), str(count))
        with running(command) as child:
            child.until_said("holding", LIMIT_S)
            began, cpu_before = time.monotonic(), cpu_s(server.pid)
            time.sleep(_HELD_S)
            held_mib = anonymous_mib(server.pid) - before_mib
            cores = (cpu_s(server.pid) - cpu_before) / (time.monotonic() - began)
            said = child.end().said
        server.end()
    return {
        "part": "idle",
        "asked": count,
        "held": said["held"],
        "heard_a_heartbeat": said["heard"],
        "kib_each": round(held_mib * 1024 / max(1, said["held"]), 2),
        "relay_cores": round(cores, 4),
    }


def many_logs(folder: Path, count: int, steps: harness.Steps) -> Run:
    """Serve many change logs from one relay, each asked for once."""
    names = [f"log{number}" for number in range(count)]
    with steps.step(f"{count:,} logs in one relay"):
        for name in names:
            log = EventLog(folder / name, SEED)
            log.append(log.made(np.zeros(10, np.int64)))
            log.close()
        with relay(**{name: folder / name for name in names}) as (server, url):
            before = anonymous_mib(server.pid), open_files(server.pid)
            for name in names:
                pull = f"{url}/stream?source={name}&after=oldest&mode=pull"
                with urllib.request.urlopen(pull) as answer:
                    answer.read()
            after = anonymous_mib(server.pid), open_files(server.pid)
            server.end()
    return {
        "part": "logs",
        "logs": count,
        "relay_mib_before": round(before[0], 1),
        "relay_mib": round(after[0], 1),
        "files_before": before[1],
        "files": after[1],
    }


def open_files(pid: int) -> int:
    """Return how many files a process holds open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
