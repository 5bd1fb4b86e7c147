"""Who reads a stretch of the log: our capture, pg_recvlogical, Debezium, a bare client. Each run is one flat record.

``run_s`` is the time from the first connection to the last change: durable in the change log for us, handed to the
consumer for Debezium, the whole process for pg_recvlogical. ``process_s`` and ``process_cpu_s_per_million`` count
from the start of the process; ``first_s`` and ``start_s`` end with the first change, from the first connection and
from the start of the process. ``steady_…`` is the second half alone. Memory is the anonymous resident peak.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.captures import capture_run, count_changes
from benchmarks.debezium.engine import Setting, debezium_run
from benchmarks.processes import Child, Usage, python
from benchmarks.server import BenchServer, Region

__all__ = ["bare", "debezium", "headrace", "pg_recvlogical"]

Record = dict[str, Any]

_LIMIT_S = 3600.0
_TEXT = {"proto_version": "1", "messages": "true"}


def headrace(server: BenchServer, region: Region, transport: str) -> tuple[Record, dict[str, str]]:
    """Capture a region into a change log on disk; also return the stream options that were used.

    Raises:
        SystemExit: the change log does not hold what was played.
    """
    before = server.ended_children_cpu_s()
    with (
        server.slot_copy(region) as slot,
        capture_run(
            server.address(transport),
            region.tables,
            slot=slot,
            publication=region.publication,
        ) as run,
    ):
        run.skip_dump(region.tables)
        child = Child(run.until_scn(region.until))
        while child.alive and server.sender() is None:
            time.sleep(0.02)
        options = server.stream_options(slot)
        usage = child.wait(_LIMIT_S)
        counted = count_changes(run.changelog)
    if counted != region.changes:
        raise SystemExit(
            f"{region.slot}: {counted} changes captured of {region.changes}: no figure"
        )
    said = usage.said
    record = _record(region, usage, said["run_s"], said["run_cpu_s"])
    record["first_s"] = round(said["first_s"], 4)
    record["start_s"] = round((said["began_us"] - usage.began_us) / 1e6 + said["first_s"], 4)
    if "steady_share" in said:
        done = said["steady_share"] * region.changes
        record |= _steady(done, said["steady_s"], said["steady_cpu_s"])
    record |= _server_side(server, before, region)
    return record, options


def pg_recvlogical(
    server: BenchServer, region: Region, transport: str, options: Mapping[str, str]
) -> Record:
    """Read a region with the server's own client, which decodes nothing and keeps nothing."""
    before = server.ended_children_cpu_s()
    given = {**(options or _TEXT), "publication_names": region.publication}
    with server.slot_copy(region) as slot:
        command = [
            *(server.program("pg_recvlogical"), "--dbname", server.address(transport)),
            *(
                "--slot",
                slot,
                "--start",
                "--no-loop",
                "--endpos",
                region.end,
                "--file",
                "/dev/null",
            ),
        ]
        for name, value in given.items():
            command += ["--option", f"{name}={value}"]
        usage = Child.run(command, _LIMIT_S)
    record = _record(region, usage, usage.wall_s, usage.cpu_s)
    return record | _server_side(server, before, region)


def bare(server: BenchServer, region: Region, transport: str) -> Record:
    """Receive a region, write its bytes to a file and sync it: the least that any client does that keeps anything."""
    before = server.ended_children_cpu_s()
    with server.slot_copy(region) as slot, tempfile.TemporaryDirectory() as folder:
        given = (server.address(transport), slot, region.publication, folder, "--until", region.end)
        usage = Child.run(python("benchmarks.bare_child", *given), _LIMIT_S)
    record = _record(region, usage, usage.said["run_s"], usage.said["run_cpu_s"])
    return record | _server_side(server, before, region)


def debezium(
    server: BenchServer,
    region: Region,
    setting: Setting,
    heap: str = "4g",
    limit_s: float = _LIMIT_S,
) -> Record:
    """Read a region with Debezium's embedded engine and a consumer that discards."""
    before = server.ended_children_cpu_s()
    with (
        server.slot_copy(region) as slot,
        debezium_run(
            server,
            setting,
            slot=slot,
            publication=region.publication,
            # Not the small transactions that end the region: it ends by count.
            tables=",".join(region.tables[:-1]),
            expected=region.changes,
            heap=heap,
        ) as run,
    ):
        usage = run.wait(limit_s)
    said = usage.said
    run_s = (said["last_ms"] - said["engine_ms"]) / 1000
    record = _record(region, usage, run_s, said["last_cpu_s"] - said["engine_cpu_s"])
    record["first_s"] = (said["first_ms"] - said["engine_ms"]) / 1000
    record["start_s"] = round(said["first_ms"] / 1000 - usage.began_us / 1e6, 4)
    if said["last_ms"] > said["half_ms"]:
        record |= _steady(
            region.changes / 2,
            (said["last_ms"] - said["half_ms"]) / 1000,
            said["last_cpu_s"] - said["half_cpu_s"],
        )
    return record | _server_side(server, before, region)


def _record(region: Region, usage: Usage, run_s: float, run_cpu_s: float) -> Record:
    millions = region.changes / 1e6
    return {
        "changes": region.changes,
        "run_s": round(run_s, 4),
        "rows_per_s": round(region.changes / run_s),
        "cpu_s_per_million": round(run_cpu_s / millions, 4),
        "rss_mib": round(usage.rss_mib, 1),
        "process_s": round(usage.wall_s, 4),
        "process_cpu_s_per_million": round(usage.cpu_s / millions, 4),
    }


def _steady(changes: float, seconds: float, cpu_s: float) -> Record:
    return {
        "steady_rows_per_s": round(changes / seconds),
        "steady_cpu_s_per_million": round(cpu_s / changes * 1e6, 4),
    }


def _server_side(server: BenchServer, before: float, region: Region) -> Record:
    """Return what the server's processes used, the reader's WAL sender above all."""
    used = server.ended_children_cpu_s() - before
    return {"server_cpu_s_per_million": round(used / region.changes * 1e6, 4)}
