"""``make bench-relay``: what the relay and its consumers do, on the axes of the Databus paper.

Events have 2.5 KB, a transaction each. A consumer checks every CRC, decodes to Arrow and calls back; consumers are
spread over at most four processes.

    latency     from an event's commit to its callback, the sync of the change log included, and from the moment it was
                readable; by rate, consumers, push or pull
    throughput  a pre-filled log to 1 to 10 consumers, beside Arrow Flight with the same rows
    filtered    what a consumer of one part in forty is sent
    idle        readers that wait: memory of the relay for each
    logs        a thousand change logs in one relay: memory and open files
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from benchmarks import harness
from benchmarks.processes import Child, anonymous_mib, cpu_s, python, running
from benchmarks.relay_log import EVENT_BYTES, EventLog

_SEED = 5
_READY_S = 120.0
_LIMIT_S = 600.0
_PROCESSES = 4
_RATES = (100, 1_000, 2_000)
_CONSUMERS = (1, 10, 40, 100, 200)
_POLL_S = 0.01
_FILL_BYTES = 2**30
_PER_BLOCK = 4_000
_FAN_OUT = (1, 2, 5, 10)
_IDLE = 2_000
_HELD_S = 15.0
_LOGS = 1_000
_PART = 40

Run = dict[str, Any]
Times = npt.NDArray[np.int64]


@contextmanager
def relay(**logs: Path) -> Iterator[tuple[Child, str]]:
    """Give a relay in a process of its own, and its address."""
    pairs = [f"{name}={folder}" for name, folder in logs.items()]
    with running(python("benchmarks.relay_server", *pairs)) as child:
        child.until_said("at http", _READY_S)
        yield child, child.line("at http").removeprefix("at ")


@contextmanager
def consuming(
    folder: Path, url: str, count: int, *options: str, keep: bool = False
) -> Iterator[list[Child]]:
    """Give so many consumers, spread over processes, that wait for a line."""
    sizes = [len(part) for part in np.array_split(range(count), min(count, _PROCESSES))]
    with ExitStack() as stack:
        children = []
        for number, size in enumerate(sizes):
            kept = ["--out", str(folder / f"seen-{number}.npy")] if keep else []
            command = python("benchmarks.relay_consumers", url, str(size), *options, *kept)
            children.append(stack.enter_context(running(command)))
        for child in children:
            child.until_said("waiting", _READY_S)
        yield children


def latencies(
    folder: Path, seconds: float, cells: Sequence[tuple[int, int, bool]], steps: harness.Steps
) -> list[Run]:
    """Measure each cell: events per second, consumers, push or pull."""
    runs: list[Run] = []
    out = folder / "readable.npy"
    with (
        running(python("benchmarks.relay_feeder", str(folder / "log"), str(out))) as feeder,
        relay(bench=folder / "log") as (server, url),
    ):
        feeder.until_said("ready", _READY_S)
        # Something to stand behind.
        feeder.tell("100 0.1")
        feeder.until_said("played 0", _READY_S)
        last = 10
        for number, (rate, count, push) in enumerate(cells, start=1):
            kind = "push" if push else "pull"
            last += round(rate * seconds)
            options = ["--upto", str(last), *(() if push else ("--pull-every", str(_POLL_S)))]
            with (
                steps.step(f"{count} consumers, {rate:,} events/s, {kind}"),
                consuming(folder, url, count, *options, keep=True) as children,
            ):
                before = cpu_s(server.pid)
                for child in children:
                    child.tell("go")
                for child in children:
                    child.until_said("ready", _READY_S)
                feeder.tell(f"{rate} {seconds}")
                feeder.until_said(f"played {number} up to {last}", seconds + _LIMIT_S)
                usages = [child.wait(_LIMIT_S) for child in children]
                seen = [np.load(folder / f"seen-{at}.npy") for at in range(len(children))]
                runs.append(
                    {"part": "latency", "rate": rate, "consumers": count, "mode": kind}
                    | delays(np.concatenate(seen), np.load(out), rate, last, seconds)
                    | {
                        "relay_cpu_s": round(cpu_s(server.pid) - before, 2),
                        "consumers_cpu_s": round(sum(usage.cpu_s for usage in usages), 2),
                    }
                )
        feeder.end()
        server.end()
    return runs


def delays(seen: Times, readable: Times, rate: int, last: int, seconds: float) -> dict[str, float]:
    """Return percentiles of a cell, milliseconds; its first fifth is left out.

    Args:
        seen: first id, rows, time of callback of every batch that was delivered.
        readable: first id, events, commit of the first, and when they were readable, of every stretch.
        rate: events per second.
        last: id of the cell's last event.
        seconds: of the cell.
    """
    first = last - round(rate * seconds) + 1
    stretches = readable[readable[:, 0] >= first]
    ids = np.arange(first, last + 1)
    own = stretches[np.searchsorted(stretches[:, 0], ids, side="right") - 1]
    committed_us = own[:, 2] + (ids - own[:, 0]) * (1e6 / rate)
    counts = seen[:, 1]
    delivered = np.repeat(seen[:, 0] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    called_us = np.repeat(seen[:, 2], counts)
    kept = delivered >= first + round(rate * seconds / 5)
    at = delivered[kept] - first
    found: dict[str, float] = {"deliveries": int(counts.sum())}
    for name, since_us in (("", committed_us), ("readable_", own[:, 3])):
        for share in (50, 99):
            waited_ms = np.percentile(called_us[kept] - since_us[at], share) / 1e3
            found[f"{name}p{share}_ms"] = round(float(waited_ms), 3)
    return found


def throughput(
    folder: Path, rounds: int, fan_out: Sequence[int], size: int, steps: harness.Steps
) -> list[Run]:
    """Measure a pre-filled log, sent to so many consumers; Arrow Flight with the same rows in turn."""
    log = EventLog(folder / "log", _SEED)
    with steps.step("a log is filled"):
        log.fill(size, _PER_BLOCK)
    log.close()
    runs: list[Run] = []
    upto = ["--start", "oldest", "--upto", str(log.events)]
    with (
        relay(bench=folder / "log") as (ours, url),
        running(python("benchmarks.relay_flight", "serve", str(folder / "log"))) as flight,
    ):
        flight.until_said("at grpc", _READY_S)
        address = flight.line("at grpc").removeprefix("at ")
        # Round 0 brings the files into memory and is not counted.
        for number in range(rounds + 1):
            for count in fan_out:
                with steps.step(f"round {number}, {count} consumers"):
                    with ExitStack() as stack:
                        mine = [
                            stack.enter_context(
                                running(python("benchmarks.relay_consumers", url, "1", *upto))
                            )
                            for _ in range(count)
                        ]
                        found = [sent("headrace", mine, ours, log.events)]
                    with ExitStack() as stack:
                        theirs = [
                            stack.enter_context(
                                running(python("benchmarks.relay_flight", "get", address))
                            )
                            for _ in range(count)
                        ]
                        found.append(sent("arrow_flight", theirs, flight, log.events))
                if number:
                    part = {"part": "throughput", "round": number, "consumers": count}
                    runs += [part | run for run in found]
        ours.end()
        flight.end()
    return runs


def sent(contender: str, children: Sequence[Child], server: Child, rows: int) -> Run:
    """Let waiting consumers begin at once, and return what all of them took."""
    for child in children:
        child.until_said("waiting", _READY_S)
    before = cpu_s(server.pid)
    for child in children:
        child.tell("go")
    usages = [child.wait(_LIMIT_S) for child in children]
    said = [usage.said for usage in usages]
    if any(one["rows"] != [rows] for one in said):
        raise SystemExit(
            f"{contender}: {[one['rows'] for one in said]} rows instead of {rows}: no figure"
        )
    seconds = (max(one["ended_ns"] for one in said) - min(one["began_ns"] for one in said)) / 1e9
    size = sum(one["bytes"] for one in said)
    relay_cpu = cpu_s(server.pid) - before
    return {
        "contender": contender,
        "bytes": size,
        "seconds": round(seconds, 4),
        "mb_per_s": round(size / seconds / 1e6, 1),
        "relay_cpu_s_per_gb": round(relay_cpu / size * 1e9, 3),
    }


def filtered(folder: Path, size: int, steps: harness.Steps) -> Run:
    """Measure what a consumer of one part in forty is sent, of the same log."""
    log = EventLog(folder / "log", _SEED)
    log.fill(size, _PER_BLOCK)
    log.close()
    part = {"partition": {"by": "hash", "count": _PART, "take": [0]}}
    upto = ["--start", "oldest", "--upto", str(log.events)]
    bytes_sent: list[float] = []
    rows: list[int] = []
    with (
        steps.step("a consumer of one part in forty"),
        relay(bench=folder / "log") as (server, url),
    ):
        for options in ([], ["--filter", json.dumps(part)]):
            before = sent_bytes(url)
            with running(python("benchmarks.relay_consumers", url, "1", *upto, *options)) as child:
                child.until_said("waiting", _READY_S)
                child.tell("go")
                rows += child.wait(_LIMIT_S).said["rows"]
            bytes_sent.append(sent_bytes(url) - before)
        server.end()
    return {
        "part": "filtered",
        "whole_bytes": bytes_sent[0],
        "filtered_bytes": bytes_sent[1],
        "whole_rows": rows[0],
        "filtered_rows": rows[1],
    }


def sent_bytes(url: str) -> float:
    """Return what the relay says that it has sent in streams."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("headrace_relay_bytes_sent")
    )


def idle(folder: Path, count: int, steps: harness.Steps) -> Run:
    """Hold readers for whom nothing comes."""
    log = EventLog(folder / "log", _SEED)
    log.append(np.zeros(1, np.int64))
    log.close()
    with steps.step(f"{count:,} idle consumers"), relay(bench=folder / "log") as (server, url):
        at = urlsplit(url)
        before_mib = anonymous_mib(server.pid)
        command = python("benchmarks.relay_idle", str(at.hostname), str(at.port), str(count))
        with running(command) as child:
            child.until_said("holding", _LIMIT_S)
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
            log = EventLog(folder / name, _SEED)
            log.append(np.zeros(10, np.int64))
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


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """Return the figures of the page."""
    found: dict[str, float] = {}
    for run in harness.select(runs, part="latency", mode="push"):
        cell = f"{run['consumers']}x{run['rate']}"
        found |= {f"{name}_{cell}": run[name] for name in run if name.endswith("_ms")}
    of_ours = harness.select(runs, part="throughput", contender="headrace")
    of_flight = harness.select(runs, part="throughput", contender="arrow_flight")
    for count in sorted({run["consumers"] for run in of_ours}):
        ours, theirs = (harness.select(side, consumers=count) for side in (of_ours, of_flight))
        found[f"mb_per_s_{count}"] = harness.median(ours, "mb_per_s") or 0.0
        found[f"vs_arrow_flight_{count}"] = harness.paired(ours, theirs, "mb_per_s") or 0.0
    if of_ours:
        counts = {run["consumers"] for run in of_ours}
        found["mb_per_s_total"] = max(found[f"mb_per_s_{count}"] for count in counts)
        found["total_vs_arrow_flight"] = min(found[f"vs_arrow_flight_{count}"] for count in counts)
        found["relay_cpu_s_per_gb"] = harness.median(of_ours, "relay_cpu_s_per_gb") or 0.0
    for run in harness.select(runs, part="filtered"):
        found["filtered_bytes_less"] = run["whole_bytes"] / run["filtered_bytes"]
    for run in harness.select(runs, part="idle"):
        found["idle_consumers"], found["idle_kib_each"] = run["held"], run["kib_each"]
    for run in harness.select(runs, part="logs"):
        found["thousand_logs_mib"] = run["relay_mib"]
        found["thousand_logs_files"] = run["files"]
    return found


def main() -> int:
    """Measure, and keep the result."""
    parser = harness.parser("relay", __doc__ or "", runs=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each cell of latencies (6)")
    given = parser.parse_args()
    rates, counts, fan_out, size = _RATES, _CONSUMERS, _FAN_OUT, _FILL_BYTES
    idle_count, logs = _IDLE, _LOGS
    if given.quick:
        rates, counts, fan_out, size = (100, 500), (1, 4), (1, 2), 2**26
        given.seconds, given.runs, idle_count, logs = 1.0, 1, 50, 20
    cells = [(rate, count, True) for rate in rates for count in counts]
    cells += [(rate, count, False) for rate in rates for count in counts[:3]]
    measured_on = harness.machine()
    runs: list[Run] = []
    steps = harness.Steps("relay", len(cells) + (given.runs + 1) * len(fan_out) + 4)
    with steps.shown(), harness.until_stopped(steps):
        harness.touch_memory()
        with tempfile.TemporaryDirectory(prefix="headrace-relay-") as folder:
            runs += latencies(Path(folder), given.seconds, cells, steps)
        with tempfile.TemporaryDirectory(prefix="headrace-relay-") as folder:
            runs += throughput(Path(folder), given.runs, fan_out, size, steps)
        for measure, sized in ((filtered, size // 8), (idle, idle_count), (many_logs, logs)):
            with tempfile.TemporaryDirectory(prefix="headrace-relay-") as folder:
                runs.append(measure(Path(folder), sized, steps))
    return harness.keep(
        "relay",
        given,
        steps,
        seed=_SEED,
        sizes={
            "event_bytes": EVENT_BYTES,
            "seconds": given.seconds,
            "rounds": given.runs,
            "filled_bytes": size,
            "poll_s": _POLL_S,
        },
        runs=runs,
        summary=summary(runs),
        measured_on=measured_on,
    )


if __name__ == "__main__":
    sys.exit(main())
