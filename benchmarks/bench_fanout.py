"""``make bench-fanout``: what a relay sends of a log that is there, events of 2.5 KB.

throughput  the whole of it to 1 to 10 consumers, each a process that checks every CRC, decodes to Arrow and calls
            back; beside Arrow Flight with the same rows, and beside bare sockets with the same bytes, of which only
            the CRC is computed
filtered    a part of it in forty, to one consumer
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness
from benchmarks.relay_log import EVENT_BYTES
from benchmarks.relay_process import SEED, Run
from benchmarks.relay_sent import filtered, throughput

_CONSUMERS: Sequence[int] = (1, 2, 5, 10)
_FILL_BYTES = 2**30


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """Return the figures of the page."""
    found: dict[str, float] = {}
    of_ours, of_flight, of_sockets = (
        harness.select(runs, part="throughput", contender=contender)
        for contender in ("headrace", "arrow_flight", "bare_sockets")
    )
    counts = sorted({run["consumers"] for run in of_ours})
    for count in counts:
        ours, flight, bare = (
            harness.select(side, consumers=count) for side in (of_ours, of_flight, of_sockets)
        )
        found[f"mb_per_s_{count}"] = harness.median(ours, "mb_per_s") or 0.0
        found[f"vs_arrow_flight_{count}"] = harness.paired(ours, flight, "mb_per_s") or 0.0
        found[f"vs_bare_sockets_{count}"] = harness.paired(ours, bare, "mb_per_s") or 0.0
    found["mb_per_s_total"] = max(found[f"mb_per_s_{count}"] for count in counts)
    found["total_vs_arrow_flight"] = min(found[f"vs_arrow_flight_{count}"] for count in counts)
    found["relay_cpu_s_per_gb"] = harness.median(of_ours, "relay_cpu_s_per_gb") or 0.0
    for run in harness.select(runs, part="filtered"):
        found["filtered_bytes_less"] = run["whole_bytes"] / run["filtered_bytes"]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and keep the result."""
    given = harness.parser("fanout", __doc__ or "", runs=5).parse_args(arguments)
    counts, size = _CONSUMERS, _FILL_BYTES
    if given.quick:
        counts, size, given.runs = (1, 2), 2**26, 1
    measured_on = harness.machine()
    runs: list[Run] = []
    steps = harness.Steps("fanout", 2 + (given.runs + 1) * len(counts))
    with steps.shown(), harness.until_stopped(steps):
        harness.touch_memory()
        with tempfile.TemporaryDirectory(prefix="headrace-fanout-") as folder:
            runs += throughput(Path(folder), given.runs, counts, size, steps)
        with tempfile.TemporaryDirectory(prefix="headrace-fanout-") as folder:
            runs.append(filtered(Path(folder), size // 8, steps))
    return harness.keep(
        "fanout",
        given,
        steps,
        seed=SEED,
        sizes={"event_bytes": EVENT_BYTES, "rounds": given.runs, "filled_bytes": size},
        runs=runs,
        summary=summary(runs),
        measured_on=measured_on,
    )


if __name__ == "__main__":
    sys.exit(main())
