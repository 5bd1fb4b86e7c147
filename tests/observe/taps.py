"""A tap that keeps its lines, and what lines amount to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from headrace.observe.tap.lines import Envelope
from headrace.observe.tap.teaching import TeachingTap

__all__ = ["ListTap", "as_told", "check_windows", "told_windows"]

Line = dict[str, Any]


class ListTap(TeachingTap):
    """Keeps every line in `lines`; its reader is always there."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        super().__init__(self, Envelope(), lambda run_id: 1 << 62, mode="scenario")

    def write(self, text: str) -> None:
        self.lines.append(text.rstrip("\n"))

    @property
    def events(self) -> list[Line]:
        return [json.loads(line) for line in self.lines]


def told_windows(events: Iterable[Line]) -> list[str]:
    """Return what went into the change log, window by window, such as ``SELECT INSERT 41 INSERT 43``."""
    windows: dict[tuple[str, str], list[str]] = {}
    for event in events:
        if event["kind"] == "sink.event":
            rows = windows.setdefault((event["lsn"], event["origin"]), [])
            rows.append(f"{event['op']} {event['pk']}")
    return [f"{origin} {' '.join(rows)}" for (_, origin), rows in windows.items()]


def as_told(windows: Iterable[str], *, keyed: bool) -> list[str]:
    """Return windows of the scenario player in the words of `told_windows`; one of a truncate alone has no rows."""
    ops = {"+I": "INSERT", "+R": "INSERT", "=U": "UPDATE", "+U": "UPDATE", "-D": "DELETE"}
    found = []
    for window in windows:
        kind, _, rows = window.partition(" ")
        terms = [term for term in re.findall(r"([+=-][IUDR])\((\w+)", rows) if term[0] != "-U"]
        if terms:
            told = (f"{ops[op]} {key if keyed else ''}" for op, key in terms)
            found.append(f"{kind} {' '.join(told)}")
    return found


def check_windows(events: list[Line], *, cut: bool = False) -> int:
    """Check that what is told of each window fits together; return how many were completed.

    Args:
        events: of one run.
        cut: connections were lost, so chunks whose progress was not durable came again.
    """
    completed = [event for event in events if event["kind"] == "chunk.completed"]
    windows: dict[int, list[Line]] = {}
    streamed: dict[str, set[str | None]] = {}
    for event in events:
        if "chunk_id" in event:
            windows.setdefault(event["chunk_id"], []).append(event)
        elif event["kind"] == "cdc":
            streamed.setdefault(event["lsn"], set()).update((event["pk"], event.get("from_pk")))
    truncated = {event["lsn"] for event in events if event["kind"] == "table.truncated"}
    for end in completed:
        own = windows[end["chunk_id"]]
        kinds = [event["kind"] for event in own]
        (chosen,) = (event for event in own if event["kind"] == "chunk.selected")
        marks = {(e["kind"], e["level"]): e for e in own if e["kind"].startswith("watermark.")}
        # H02: both marks are written and met again, under one token.
        assert len(marks) == 4
        assert len({mark["token"] for mark in marks.values()}) == 1
        high = marks["watermark.received", "HIGH"]
        assert end["lsn"] == high["lsn"]
        sent = [e for e in own if e["kind"] == "sink.event" and e["origin"] == "SELECT"]
        assert len(sent) == end["emitted"]
        if chosen["mode"] != "table":
            assert chosen["row_count"] == end["emitted"] + end["excluded"]
        assert kinds.count("chunk.collision") == end["excluded"]
        excluded = {event["excluded_pk"] for event in own if event["kind"] == "chunk.collision"}
        assert not excluded & {event["pk"] for event in sent}
        # H03: nothing of the chunk leaves before its high mark was received.
        assert all(event["seq"] > high["seq"] for event in sent)
        assert {event["lsn"] for event in sent} <= {high["lsn"]}
        order = [marks["watermark.written", "LOW"], chosen, marks["watermark.written", "HIGH"], end]
        assert [event["seq"] for event in order] == sorted(event["seq"] for event in order)
        for cause in (event for event in own if event["kind"] == "chunk.collision"):
            lsn = cause["cause_lsn"]
            assert lsn in truncated or cause["excluded_pk"] in streamed[lsn]
        if chosen["mode"] != "table":
            (certificate,) = (event for event in own if event["kind"] == "certificate")
            assert (certificate["emitted"], certificate["high_lsn"]) == (end["emitted"], end["lsn"])
        # From the low mark's writing on: not less than the high mark took to come back, nor than the log was held up.
        assert end["duration_ms"] + 1 >= high["latency_ms"] + end["held_ms"] - 1
        assert end["duration_ms"] >= marks["watermark.received", "LOW"]["latency_ms"]
        assert end["final_chunk"] == chosen["final_chunk"]
    if not cut:
        _check_loops(events)
    return len(completed)


def _check_loops(events: list[Line]) -> None:
    """Check that each dump goes from chunk to chunk, each behind the last key of the one before, up to a final one."""
    chosen = {event["chunk_id"]: event for event in events if event["kind"] == "chunk.selected"}
    at: dict[str, tuple[str | None, bool]] = {}
    for event in events:
        if event["kind"] == "chunk.completed":
            select = chosen[event["chunk_id"]]
            dump = select["dump_id"]
            if select["mode"] == "range":
                before, final = at.get(dump, (select.get("start_after_pk"), False))
                assert not final, "the dump went on behind its final chunk"
                assert select.get("start_after_pk") == before
                at[dump] = (event.get("last_pk", before), event["final_chunk"])
        elif event["kind"] == "table.completed":
            # A dump that began in another run, or without a row, has no chunk here.
            dump = f"{event['request_id']}/{event['table']}"
            assert at.get(dump, (None, True))[1], "a table was complete before its final chunk"
