"""What a relay sends of a log that is there: to many, beside Arrow Flight and bare sockets, and a part of it to one."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import harness
from benchmarks.processes import Child, cpu_s, python, running
from benchmarks.relay_log import EventLog
from benchmarks.relay_process import LIMIT_S, READY_S, SEED, Run, relay
from headrace.changelog.segment import list_segments

__all__ = ["filtered", "throughput"]

_PER_BLOCK = 4_000
_PART = 40


def throughput(
    folder: Path, rounds: int, fan_out: Sequence[int], size: int, steps: harness.Steps
) -> list[Run]:
    """Measure a pre-filled log, sent to so many consumers; Arrow Flight with the same rows and bare sockets in turn."""
    log = EventLog(folder / "log", SEED)
    with steps.step("a log is filled"):
        log.fill(size, _PER_BLOCK)
    log.close()
    runs: list[Run] = []
    upto = ["--start", "oldest", "--upto", str(log.events)]
    every_row, stored = {"rows": [log.events]}, {"bytes": stored_bytes(folder / "log")}
    with (
        relay(bench=folder / "log") as (ours, url),
        running(python("benchmarks.relay_flight", "serve", str(folder / "log"))) as flight,
        running(python("benchmarks.relay_bare", "serve", str(folder / "log"))) as bare,
    ):
        flight.until_said("at grpc", READY_S)
        bare.until_said("at tcp", READY_S)
        flight_address = flight.line("at grpc").removeprefix("at ")
        bare_address = bare.line("at tcp").removeprefix("at ")
        contenders = (
            ("headrace", ours, python("benchmarks.relay_consumers", url, "1", *upto), every_row),
            (
                "arrow_flight",
                flight,
                python("benchmarks.relay_flight", "get", flight_address),
                every_row,
            ),
            ("bare_sockets", bare, python("benchmarks.relay_bare", "get", bare_address), stored),
        )
        # Round 0 brings the files into memory and is not counted.
        for number in range(rounds + 1):
            for count in fan_out:
                found = []
                with steps.step(f"round {number}, {count} consumers"):
                    for contender, server, command, whole in contenders:
                        with ExitStack() as stack:
                            takers = [stack.enter_context(running(command)) for _ in range(count)]
                            found.append(sent(contender, takers, server, whole))
                if number:
                    part = {"part": "throughput", "round": number, "consumers": count}
                    runs += [part | run for run in found]
        for server in (ours, flight, bare):
            server.end()
    return runs


def stored_bytes(log: Path) -> int:
    """Return how long the files of a log are together."""
    return sum((log / str(name)).stat().st_size for name in list_segments(log))


def sent(
    contender: str, children: Sequence[Child], server: Child, whole: Mapping[str, object]
) -> Run:
    """Let waiting consumers begin at once, and return what all of them took; each has to say that it took the whole."""
    for child in children:
        child.until_said("waiting", READY_S)
    before = cpu_s(server.pid)
    for child in children:
        child.tell("go")
    usages = [child.wait(LIMIT_S) for child in children]
    said = [usage.said for usage in usages]
    took = [{name: one[name] for name in whole} for one in said]
    if any(one != whole for one in took):
        raise SystemExit(f"{contender}: {took} instead of {whole} each: no figure")
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
    log = EventLog(folder / "log", SEED)
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
                child.until_said("waiting", READY_S)
                child.tell("go")
                rows += child.wait(LIMIT_S).said["rows"]
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
