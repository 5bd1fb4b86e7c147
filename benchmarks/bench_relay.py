"""``make bench-relay``: what the relay and its consumers do, on the axes of the Databus paper.

Events have 2.5 KB, a transaction each. A consumer checks every CRC, decodes to Arrow and calls back; consumers are
spread over at most four processes, whose threads share one processor each. Parts can be chosen (--parts), and cells of
the first one (--cells). How fast a log that is there is sent, ``make bench-fanout`` measures, and what consumers cost a
capture, ``make bench-beside``.

    latency     from an event's commit to its callback, the sync of the change log included, and from the moment it was
                readable; by rate, consumers, push or pull
    idle        readers that wait: memory of the relay for each
    logs        a thousand change logs in one relay: memory and open files
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness
from benchmarks.relay_latency import POLL_S, latencies
from benchmarks.relay_log import EVENT_BYTES
from benchmarks.relay_process import SEED, Run
from benchmarks.relay_scale import idle, many_logs

_RATES: Sequence[int] = (100, 1_000, 2_000)
_CONSUMERS: Sequence[int] = (1, 10, 40, 100, 200)
_IDLE = 2_000
_LOGS = 1_000
_PARTS = ("latency", "idle", "logs")
_ALONE = {"idle": idle, "logs": many_logs}

Cell = tuple[int, int, bool]
"""Events per second, consumers, push or pull."""


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """Return the figures of the page."""
    found: dict[str, float] = {}
    pushed = harness.select(runs, part="latency", mode="push")
    for rate, count in dict.fromkeys((run["rate"], run["consumers"]) for run in pushed):
        cell = harness.select(pushed, rate=rate, consumers=count)
        for name in cell[0]:
            if name.endswith("_ms"):
                found[f"{name}_{count}x{rate}"] = harness.median(cell, name) or 0.0
    for run in harness.select(runs, part="idle"):
        found["idle_consumers"], found["idle_kib_each"] = run["held"], run["kib_each"]
    for run in harness.select(runs, part="logs"):
        found["thousand_logs_mib"] = run["relay_mib"]
        found["thousand_logs_files"] = run["files"]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and keep the result."""
    parser = harness.parser("relay", __doc__ or "", runs=3)
    parser.add_argument("--seconds", type=float, default=9.0, help="of each cell of latencies (9)")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=list(_PARTS))
    parser.add_argument(
        "--cells",
        nargs="+",
        type=_cell,
        help="of latencies: CONSUMERSxRATE, with -pull behind it for pulls",
    )
    given = parser.parse_args(arguments)
    rates, counts, idle_count, logs = _RATES, _CONSUMERS, _IDLE, _LOGS
    if given.quick:
        rates, counts, idle_count, logs = (100, 500), (1, 4), 50, 20
        given.seconds, given.runs = 1.0, 1
    cells = [(rate, count, True) for rate in rates for count in counts]
    cells += [(rate, count, False) for rate in rates for count in counts[:3]]
    cells = (given.cells or cells) * given.runs
    sizes = {"idle": idle_count, "logs": logs}
    alone = [part for part in _ALONE if part in given.parts]
    measured_on = harness.machine()
    runs: list[Run] = []
    measured = len(cells) if "latency" in given.parts else 0
    steps = harness.Steps("relay", measured + len(alone))
    with steps.shown(), harness.until_stopped(steps):
        harness.touch_memory()
        if "latency" in given.parts:
            with tempfile.TemporaryDirectory(prefix="headrace-relay-") as folder:
                runs += latencies(Path(folder), given.seconds, cells, steps)
        for part in alone:
            with tempfile.TemporaryDirectory(prefix="headrace-relay-") as folder:
                runs.append(_ALONE[part](Path(folder), sizes[part], steps))
    return harness.keep(
        "relay",
        given,
        steps,
        seed=SEED,
        sizes={
            "event_bytes": EVENT_BYTES,
            "seconds": given.seconds,
            "rounds": given.runs,
            "poll_s": POLL_S,
        },
        runs=runs,
        summary=summary(runs),
        measured_on=measured_on,
    )


def _cell(text: str) -> Cell:
    count, _, rate = text.removesuffix("-pull").partition("x")
    return int(rate), int(count), not text.endswith("-pull")


if __name__ == "__main__":
    sys.exit(main())
