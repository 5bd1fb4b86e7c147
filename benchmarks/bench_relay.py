"""``make bench-relay``: what the relay and its consumers do, on the axes of the Databus paper.

Events have 2.5 KB, a transaction each. A consumer checks every CRC, decodes to Arrow and calls back; consumers are
spread over at most four processes. Parts can be chosen (--parts), and cells of the first one (--cells).

    latency     from an event's commit to its callback, the sync of the change log included, and from the moment it was
                readable; by rate, consumers, push or pull
    throughput  a pre-filled log to 1 to 10 consumers, beside Arrow Flight with the same rows, and beside bare sockets
                with the same bytes, of which only the CRC is computed
    filtered    what a consumer of one part in forty is sent
    idle        readers that wait: memory of the relay for each
    logs        a thousand change logs in one relay: memory and open files
    beside      a capture beside ten busy consumers, beside ten bare sockets, and beside processes that only burn the
                same time as either
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness
from benchmarks.relay_beside import KINDS, beside
from benchmarks.relay_latency import POLL_S, latencies
from benchmarks.relay_log import EVENT_BYTES
from benchmarks.relay_process import SEED, Run
from benchmarks.relay_scale import idle, many_logs
from benchmarks.relay_sent import filtered, throughput

_RATES: Sequence[int] = (100, 1_000, 2_000)
_CONSUMERS: Sequence[int] = (1, 10, 40, 100, 200)
_FAN_OUT: Sequence[int] = (1, 2, 5, 10)
_FILL_BYTES = 2**30
_IDLE = 2_000
_CAPTURED_ROWS = 1_000_000
_LOGS = 1_000
_PARTS = ("latency", "throughput", "filtered", "idle", "logs", "beside")
_ALONE = {"filtered": filtered, "idle": idle, "logs": many_logs}

Cell = tuple[int, int, bool]
"""Events per second, consumers, push or pull."""


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """Return the figures of the page."""
    found: dict[str, float] = {}
    for run in harness.select(runs, part="latency", mode="push"):
        cell = f"{run['consumers']}x{run['rate']}"
        found |= {f"{name}_{cell}": run[name] for name in run if name.endswith("_ms")}
    of_ours = harness.select(runs, part="throughput", contender="headrace")
    of_flight = harness.select(runs, part="throughput", contender="arrow_flight")
    of_sockets = harness.select(runs, part="throughput", contender="bare_sockets")
    for count in sorted({run["consumers"] for run in of_ours}):
        ours, flight, bare = (
            harness.select(side, consumers=count) for side in (of_ours, of_flight, of_sockets)
        )
        found[f"mb_per_s_{count}"] = harness.median(ours, "mb_per_s") or 0.0
        found[f"vs_arrow_flight_{count}"] = harness.paired(ours, flight, "mb_per_s") or 0.0
        found[f"vs_bare_sockets_{count}"] = harness.paired(ours, bare, "mb_per_s") or 0.0
    if of_ours:
        counts = {run["consumers"] for run in of_ours}
        found["mb_per_s_total"] = max(found[f"mb_per_s_{count}"] for count in counts)
        found["total_vs_arrow_flight"] = min(found[f"vs_arrow_flight_{count}"] for count in counts)
        found["relay_cpu_s_per_gb"] = harness.median(of_ours, "relay_cpu_s_per_gb") or 0.0
    for run in harness.select(runs, part="filtered"):
        found["filtered_bytes_less"] = run["whole_bytes"] / run["filtered_bytes"]
    for run in harness.select(runs, part="idle"):
        found["idle_consumers"], found["idle_kib_each"] = run["held"], run["kib_each"]
    captures = {kind: harness.select(runs, part="beside", kind=kind) for kind in KINDS}
    for kind in KINDS[1:]:
        if (share := harness.paired(captures[kind], captures["alone"], "rows_per_s")) is not None:
            found[f"capture_beside_{kind}"] = share
    for kind, burners in (("consumers", "burners"), ("sockets", "socket_burners")):
        ratio = harness.paired(captures[kind], captures[burners], "rows_per_s")
        if ratio is not None:
            found[f"capture_{kind}_vs_burners"] = ratio
    for run in harness.select(runs, part="logs"):
        found["thousand_logs_mib"] = run["relay_mib"]
        found["thousand_logs_files"] = run["files"]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and keep the result."""
    parser = harness.parser("relay", __doc__ or "", runs=5)
    parser.add_argument("--seconds", type=float, default=9.0, help="of each cell of latencies (9)")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=list(_PARTS))
    parser.add_argument(
        "--cells",
        nargs="+",
        type=_cell,
        help="of latencies: CONSUMERSxRATE, with -pull behind it for pulls",
    )
    given = parser.parse_args(arguments)
    rates, counts, fan_out, size = _RATES, _CONSUMERS, _FAN_OUT, _FILL_BYTES
    idle_count, logs, captured = _IDLE, _LOGS, _CAPTURED_ROWS
    if given.quick:
        rates, counts, fan_out, size = (100, 500), (1, 4), (1, 2), 2**26
        given.seconds, given.runs, idle_count, logs, captured = 1.0, 1, 50, 20, 20_000
    cells = [(rate, count, True) for rate in rates for count in counts]
    cells += [(rate, count, False) for rate in rates for count in counts[:3]]
    cells = given.cells or cells
    sizes = {"filtered": size // 8, "idle": idle_count, "logs": logs}
    alone = [part for part in _ALONE if part in given.parts]
    measured_on = harness.machine()
    runs: list[Run] = []
    counted = {
        "latency": len(cells),
        "throughput": 1 + (given.runs + 1) * len(fan_out),
        "beside": 1 + len(KINDS) * given.runs,
    }
    steps = harness.Steps("relay", sum(counted.get(part, 1) for part in given.parts))
    with steps.shown(), harness.until_stopped(steps):
        harness.touch_memory()
        if "latency" in given.parts:
            with tempfile.TemporaryDirectory(prefix="headrace-relay-") as folder:
                runs += latencies(Path(folder), given.seconds, cells, steps)
        if "throughput" in given.parts:
            with tempfile.TemporaryDirectory(prefix="headrace-relay-") as folder:
                runs += throughput(Path(folder), given.runs, fan_out, size, steps)
        for part in alone:
            with tempfile.TemporaryDirectory(prefix="headrace-relay-") as folder:
                runs.append(_ALONE[part](Path(folder), sizes[part], steps))
        if "beside" in given.parts:
            with tempfile.TemporaryDirectory(prefix="headrace-relay-") as folder:
                runs += beside(Path(folder), given.runs, captured, size // 4, steps)
    return harness.keep(
        "relay",
        given,
        steps,
        seed=SEED,
        sizes={
            "event_bytes": EVENT_BYTES,
            "seconds": given.seconds,
            "rounds": given.runs,
            "filled_bytes": size,
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
