"""``make bench-beside``: what a capture loses beside consumers.

A capture of inserts into the change log, in turn alone, beside ten consumers that take a full log of another source as
fast as they can, beside ten bare sockets that take the same bytes, and beside processes that only burn the same time of
the processor as either. How much a processor's neighbours cost differs from minute to minute: twelve rounds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness
from benchmarks.relay_beside import KINDS, beside
from benchmarks.relay_log import EVENT_BYTES
from benchmarks.relay_process import SEED, Run

_FILL_BYTES = 2**28
_ROWS = 1_000_000


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """Return the figures of the page."""
    found: dict[str, float] = {}
    captures = {kind: harness.select(runs, part="beside", kind=kind) for kind in KINDS}
    for kind in KINDS[1:]:
        if (share := harness.paired(captures[kind], captures["alone"], "rows_per_s")) is not None:
            found[f"capture_beside_{kind}"] = share
    for kind, burners in (("consumers", "burners"), ("sockets", "socket_burners")):
        ratio = harness.paired(captures[kind], captures[burners], "rows_per_s")
        if ratio is not None:
            found[f"capture_{kind}_vs_burners"] = ratio
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and keep the result."""
    given = harness.parser("beside", __doc__ or "", runs=12).parse_args(arguments)
    rows, size = _ROWS, _FILL_BYTES
    if given.quick:
        rows, size, given.runs = 20_000, 2**24, 1
    measured_on = harness.machine()
    steps = harness.Steps("beside", 1 + len(KINDS) * given.runs)
    with (
        steps.shown(),
        harness.until_stopped(steps),
        tempfile.TemporaryDirectory(prefix="headrace-beside-") as folder,
    ):
        harness.touch_memory()
        runs = beside(Path(folder), given.runs, rows, size, steps)
    return harness.keep(
        "beside",
        given,
        steps,
        seed=SEED,
        sizes={
            "rows": rows,
            "event_bytes": EVENT_BYTES,
            "rounds": given.runs,
            "filled_bytes": size,
        },
        runs=runs,
        summary=summary(runs),
        measured_on=measured_on,
    )


if __name__ == "__main__":
    sys.exit(main())
