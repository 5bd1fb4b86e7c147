"""From the records of `bench_capture` to the figures that stand for them.

Where a goal holds for every load, the figure is the worst of them. Ratios are ours over theirs in rows/s and theirs
over ours in everything that costs, so that bigger is better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.harness import least, median, most, paired, select
from benchmarks.workloads import WORKLOADS

__all__ = ["BARE", "PEER", "US", "summarise"]

US = "headrace"
BARE = "bare client"
PEER = "pg_recvlogical"
_KEPT = 0.95
_FULL = "w3f"
"""Updates with identity FULL, which have a goal of their own."""

Runs = Sequence[Mapping[str, Any]]


def summarise(records: Runs) -> dict[str, float]:
    """Return the summary; a figure whose part was not run is left out."""
    found: dict[str, float | None] = {}
    backlog = select(records, part="backlog")
    found |= _against_recvlogical(backlog)
    found |= _against_bare(backlog)
    found |= _by_transport(backlog)
    found |= _against_debezium(backlog)
    found |= _heap(records, backlog)
    found |= _latency(records)
    return {name: value for name, value in found.items() if value is not None}


def _loads(backlog: Runs, narrow: bool) -> list[str]:
    there = {run["load"] for run in backlog}
    return [w.name for w in WORKLOADS.values() if w.narrow is narrow and w.name in there]


def _against_recvlogical(backlog: Runs) -> dict[str, float | None]:
    ratios: dict[str, float | None] = {}
    transports = sorted({run["transport"] for run in backlog})
    for load in (*_loads(backlog, True), *_loads(backlog, False)):
        for transport in transports:
            ours = select(backlog, load=load, transport=transport, contender=US)
            theirs = select(backlog, load=load, transport=transport, contender=PEER)
            ratios[f"{load}_{transport}_vs_pg_recvlogical"] = paired(ours, theirs, "rows_per_s")
    ours = select(backlog, contender=US)

    def worst(loads: Iterable[str]) -> float | None:
        wanted = tuple(f"{load}_" for load in loads)
        return (
            least(value for name, value in ratios.items() if name.startswith(wanted))
            if wanted
            else None
        )

    narrow, wide = _loads(backlog, True), _loads(backlog, False)
    return {
        "narrow_vs_pg_recvlogical": worst(narrow),
        "wide_vs_pg_recvlogical": worst(wide),
        "cpu_s_per_million_rows": _cpu(ours, (load for load in narrow if load != _FULL)),
        "cpu_s_per_million_rows_identity_full": _cpu(
            ours, (load for load in narrow if load == _FULL)
        ),
        "cpu_s_per_million_rows_wide": _cpu(ours, wide),
        "rss_mib": most(run["rss_mib"] for run in ours),
        **ratios,
    }


def _against_bare(backlog: Runs) -> dict[str, float | None]:
    """Compare with a client that keeps the bytes as they came: what it takes is not ours."""
    found: dict[str, float | None] = {}
    for kind, narrow in (("narrow", True), ("wide", False)):
        ratios, ours_alone = list[float | None](), list[float | None]()
        for load in _loads(backlog, narrow):
            for transport in sorted({run["transport"] for run in backlog}):
                at = select(backlog, load=load, transport=transport)
                ours, bare = select(at, contender=US), select(at, contender=BARE)
                ratios.append(paired(ours, bare, "rows_per_s"))
                used, least_used = (median(some, "cpu_s_per_million") for some in (ours, bare))
                ours_alone.append(used - least_used if used and least_used else None)
        found[f"{kind}_vs_bare_client"] = least(ratios)
        found[f"cpu_s_per_million_rows_{kind}_over_bare"] = most(ours_alone)
    return found


def _by_transport(backlog: Runs) -> dict[str, float | None]:
    """Say where a load's time goes: the server's work over our run's time, and what each transport costs a client."""
    found: dict[str, float | None] = {}
    for transport in sorted({run["transport"] for run in backlog}):
        at = select(backlog, transport=transport)
        ours = select(at, contender=US)
        for load in (*_loads(backlog, True), *_loads(backlog, False)):
            shares = [
                {"share": run["server_cpu_s_per_million"] * run["rows_per_s"] / 1e6}
                for run in select(ours, load=load)
                if run.get("server_cpu_s_per_million") is not None
            ]
            found[f"{load}_{transport}_server_share"] = median(shares, "share")
        for label, runs in (("", ours), ("_bare", select(at, contender=BARE))):
            plain = (load for load in _loads(backlog, True) if load != _FULL)
            found[f"cpu_s_per_million_rows_{transport}{label}"] = _cpu(runs, plain)
    return found


def _cpu(runs: Runs, loads: Iterable[str]) -> float | None:
    """Return the CPU seconds per million changes of the dearest of some loads."""
    return most(median(select(runs, load=load), "cpu_s_per_million") for load in loads)


def _best_setting(runs: Runs, prefix: str, field: str) -> Runs:
    """Return the runs of the Debezium setting with the highest median of a field."""
    names = {run["contender"] for run in runs if run["contender"].startswith(f"debezium {prefix}")}
    by_setting = [select(runs, contender=name) for name in sorted(names)]
    return max(by_setting, key=lambda some: median(some, field) or 0.0, default=[])


def _against_debezium(backlog: Runs) -> dict[str, float | None]:
    found: dict[str, list[float | None]] = {}

    def note(name: str, value: float | None) -> None:
        found.setdefault(name, []).append(value)

    tcp = select(backlog, transport="tcp")
    read = {run["load"] for run in tcp if run["contender"].startswith("debezium ")}
    for load in sorted(read):
        kind = "narrow" if WORKLOADS[load].narrow else "wide"
        of_load = select(tcp, load=load)
        ours = select(of_load, contender=US)
        connect = _best_setting(of_load, "connect", "rows_per_s")
        note(f"{kind}_vs_debezium_connect", paired(ours, connect, "rows_per_s"))
        json = _best_setting(of_load, "json", "rows_per_s")
        note(f"{kind}_vs_debezium_json", paired(ours, json, "rows_per_s"))
        steady = _best_setting(of_load, "connect", "steady_rows_per_s")
        mine, theirs = median(ours, "rows_per_s"), median(steady, "steady_rows_per_s")
        # Our whole run against their second half, warm: the harder comparison.
        note(f"{kind}_vs_debezium_connect_steady", mine / theirs if mine and theirs else None)
        # The cheapest of their settings, whole run, and warm.
        for label, field in (("", "cpu_s_per_million"), ("_steady", "steady_cpu_s_per_million")):
            names = {
                r["contender"] for r in of_load if r["contender"].startswith("debezium connect")
            }
            cheapest = least(median(select(of_load, contender=name), field) for name in names)
            used = median(ours, "cpu_s_per_million")
            ratio = cheapest / used if cheapest and used else None
            note(f"{kind}_cpu_debezium_over_ours{label}", ratio)
    return {
        **{name: least(values) for name, values in sorted(found.items())},
        "start_s": median(select(tcp, contender=US), "start_s"),
        "debezium_start_s": median(select(tcp, contender="debezium connect"), "start_s"),
    }


def _heap(records: Runs, backlog: Runs) -> dict[str, float | None]:
    """Find the smallest heap that keeps the rate, and what the process takes with it."""
    runs = select(records, part="heap")
    if not runs:
        return {}
    rates = {
        run["heap"]: median(select(runs, heap=run["heap"]), "rows_per_s") or 0.0 for run in runs
    }
    best = max(rates.values())
    keeping = [heap for heap, rate in rates.items() if rate >= _KEPT * best]
    memory = least(median(select(runs, heap=heap), "rss_mib") for heap in keeping)
    load = runs[0]["load"]
    ours = median(select(backlog, load=load, transport="tcp", contender=US), "rss_mib")
    return {
        "debezium_smallest_rss_mib": memory,
        "memory_debezium_over_ours": memory / ours if memory and ours else None,
    }


def _latency(records: Runs) -> dict[str, float | None]:
    found: dict[str, float | None] = {
        "p50_ms_idle": median(select(records, part="idle", contender=US), "p50_ms"),
        "p50_ms_idle_bare": median(select(records, part="idle", contender=BARE), "p50_ms"),
        "p99_ms_idle_bare": median(select(records, part="idle", contender=BARE), "p99_ms"),
        "p99_ms_idle": median(select(records, part="idle", contender=US), "p99_ms"),
        "inside_p99_ms_idle": median(select(records, part="idle", contender=US), "inside_p99_ms"),
    }
    rates = select(records, part="rates")
    for rate in sorted({run["rate"] for run in rates}):
        at = select(rates, rate=rate)
        ours = select(at, contender=US)
        found[f"inside_p99_ms_{rate}tps"] = median(ours, "inside_p99_ms")
        for field in ("p50_ms", "p95_ms", "p99_ms"):
            found[f"{field}_{rate}tps"] = median(ours, field)
            found[f"{field}_{rate}tps_bare"] = median(select(at, contender=BARE), field)
            names = {run["contender"] for run in at} - {US, BARE}
            found[f"debezium_best_{field}_{rate}tps"] = least(
                median(select(at, contender=name), field) for name in names
            )
    return found
