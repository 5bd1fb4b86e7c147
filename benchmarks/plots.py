"""The plots of the page: which lines of which result they show.

In: kept results. Out: documents by file name, written beside the page by `benchmarks.page`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.chart import Axis, Series, chart
from benchmarks.harness import median

__all__ = ["plots"]

_COLOURS = ("#1b6ca8", "#c8501e", "#2c8c4a", "#7b4fa3")
_MODES = {"push": "sent as it comes", "pull": "asked for again and again"}

Run = Mapping[str, Any]


def plots(results: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return title and document of each plot, by file name, which begins with the name of its result."""
    found = {}
    latencies = _runs(results, "relay", "latency")
    for mode, meaning in _MODES.items():
        title = f"Relay: latency against consumers, {meaning}"
        if some := [run for run in latencies if run["mode"] == mode]:
            found[f"relay_latency_{mode}.svg"] = title, _latency(title, some)
    if some := _runs(results, "fanout", "throughput"):
        title = "Relay: throughput against consumers of a log that is there"
        found["fanout_throughput.svg"] = title, _throughput(title, some)
    return found


def _runs(results: Mapping[str, Mapping[str, Any]], name: str, part: str) -> list[Run]:
    return [run for run in results.get(name, {}).get("runs", ()) if run["part"] == part]


def _latency(title: str, runs: Sequence[Run]) -> str:
    series = [
        Series(
            f"{share}, {rate:,} events/s",
            _points([run for run in runs if run["rate"] == rate], f"{share}_ms"),
            _COLOURS[number % len(_COLOURS)],
            dashed=share == "p99",
        )
        for number, rate in enumerate(sorted({run["rate"] for run in runs}))
        for share in ("p50", "p99")
    ]
    values = [value for one in series for _, value in one.points]
    y = Axis.decades("commit to callback, ms", values)
    return chart(title, _consumers(runs), y, series)


def _throughput(title: str, runs: Sequence[Run]) -> str:
    series = [
        Series(
            name.replace("_", " "),
            _points([run for run in runs if run["contender"] == name], "mb_per_s"),
            _COLOURS[number % len(_COLOURS)],
        )
        for number, name in enumerate(dict.fromkeys(run["contender"] for run in runs))
    ]
    values = [value for one in series for _, value in one.points]
    y = Axis.from_zero("MB/s of all consumers together", values)
    return chart(title, _consumers(runs), y, series)


def _consumers(runs: Sequence[Run]) -> Axis:
    counts = sorted({float(run["consumers"]) for run in runs})
    # One alone would be no axis.
    return Axis("consumers", tuple(counts if len(counts) > 1 else [*counts, counts[0] * 10]), True)


def _points(runs: Sequence[Run], field: str) -> tuple[tuple[float, float], ...]:
    """Return the median of each count of consumers."""
    found = []
    for count in sorted({run["consumers"] for run in runs}):
        value = median([run for run in runs if run["consumers"] == count], field)
        if value is not None:
            found.append((float(count), float(value)))
    return tuple(found)
