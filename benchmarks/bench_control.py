"""Measure how soon a control plane with many replicators answers, and what it holds in memory.

A control plane looks after replicators that are simulated: each is a process, beside files as a real one leaves them,
with tables in every state. Lists and details are asked for one after the other over one connection, while the control
plane goes on looking at all of them; times are from the request to the last byte of the answer.
"""

from __future__ import annotations

import http.client
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.processes import Child, anonymous_mib, cpu_s, python

__all__ = ["main"]

_LIMIT_S = 200.0
_WORST = ("list_p99_ms", "detail_p99_ms", "rss_mib")
_MEDIAN = ("list_p50_ms", "detail_p50_ms", "idle_cores")
_PATH = "/v1/contexts/default/replicators"


def asked(port: int, paths: Sequence[str]) -> tuple[list[float], int]:
    """Return the milliseconds of each request, and the bytes of the largest answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times, largest = [], 0
    for path in paths:
        begun = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        times.append((time.perf_counter() - begun) * 1000)
        if answer.status != 200:
            raise SystemExit(f"{path}: status {answer.status}")
        largest = max(largest, len(body))
    connection.close()
    return times, largest


def figures(name: str, times: Sequence[float], largest: int) -> dict[str, float]:
    """Return what is kept of one kind of request."""
    p50, p99 = np.percentile(times, [50, 99])
    return {
        f"{name}_p50_ms": float(p50),
        f"{name}_p99_ms": float(p99),
        f"{name}_max_ms": max(times),
        f"{name}_bytes": largest,
    }


def measured(port: int, pid: int, replicators: int, requests: int) -> dict[str, float]:
    """Return one round's figures."""
    idle_from, idle_cpu = time.monotonic(), cpu_s(pid)
    time.sleep(5)
    idle = (cpu_s(pid) - idle_cpu) / (time.monotonic() - idle_from)
    found = figures("list", *asked(port, [_PATH] * requests))
    details = [f"{_PATH}/r{number % replicators}" for number in range(requests)]
    found |= figures("detail", *asked(port, details))
    return {**found, "idle_cores": idle, "rss_mib": anonymous_mib(pid)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep the result."""
    parser = harness.parser("control", __doc__ or "", runs=3)
    parser.add_argument("--replicators", type=int, default=200, help="that are deployed (200)")
    parser.add_argument("--tables", type=int, default=50, help="of each (50)")
    parser.add_argument("--requests", type=int, default=600, help="of each kind in a round (600)")
    given = parser.parse_args(arguments)
    if given.quick:
        given.runs, given.replicators, given.requests = 1, 5, 20
    measured_on = harness.machine()
    records: list[dict[str, Any]] = []
    with (
        harness.Steps("control", given.runs).shown() as steps,
        harness.until_stopped(steps),
        tempfile.TemporaryDirectory() as folder,
    ):
        sizes = (str(given.replicators), str(given.tables))
        child = Child(python("benchmarks.control_child", str(Path(folder).resolve()), *sizes))
        try:
            child.until_said("serving ", _LIMIT_S)
            port = int(child.line("serving ").split()[1])
            for round_ in range(given.runs):
                with steps.step(f"round {round_ + 1}"):
                    found = measured(port, child.pid, given.replicators, given.requests)
                records.append({"round": round_, **found})
                steps.say(
                    f"    p99 {found['list_p99_ms']:.1f} ms of the list, "
                    f"{found['detail_p99_ms']:.1f} ms of a detail; {found['rss_mib']:.0f} MiB"
                )
        finally:
            child.end(_LIMIT_S)
    return harness.keep(
        "control",
        given,
        steps,
        seed=0,
        sizes={
            "replicators": given.replicators,
            "tables": given.tables,
            "requests": given.requests,
            "rounds": given.runs,
        },
        runs=records,
        summary={
            **{name: max(run[name] for run in records) for name in _WORST if records},
            **{name: harness.median(records, name) or 0.0 for name in _MEDIAN if records},
        },
        measured_on=measured_on,
    )


if __name__ == "__main__":
    sys.exit(main())
