"""What every benchmark shares: where a figure was measured, and the form it is kept in.

``benchmarks/results/NAME.json`` holds ``commit, date, machine, seed, sizes, runs, summary``; summary
names say what they are and in which unit.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "machine", "write"]

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def write(
    name: str,
    *,
    seed: int,
    sizes: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    summary: Mapping[str, float],
    measured_on: Mapping[str, Any],
) -> Path:
    """Keep a result and return its path."""
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {
        "commit": _commit(),
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": dict(measured_on),
        "seed": seed,
        "sizes": dict(sizes),
        "runs": [dict(run) for run in runs],
        "summary": {key: round(figure, 4) for key, figure in summary.items()},
    }
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return path


def _commit() -> str:
    answer = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if "model name" in line), "unknown"
    )
