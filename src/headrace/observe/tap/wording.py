"""Each event as a few words for people."""

from __future__ import annotations

from collections.abc import Callable

from headrace.observe.tap.reading import Line
from headrace.plural import counted

__all__ = ["say"]


def say(line: Line) -> str:
    """Return what an event says, without its kind; "" for a kind that is not known."""
    words = _WORDS.get(line["kind"])
    return words(line) if words else ""


def _row(line: Line) -> str:
    moved = f" from {line['from_pk']}" if "from_pk" in line else ""
    return f"{line['op']:6} {line['table']} {line['pk']}{moved}"


def _sink(line: Line) -> str:
    window = f" · chunk {line['chunk_id']}" if "chunk_id" in line else ""
    return f"{_row(line)} · {line['origin']}{window}"


def _selected(line: Line) -> str:
    span = f" {line['pk_min']}…{line['pk_max']}" if "pk_min" in line else ""
    after = f" after {line['start_after_pk']}" if "start_after_pk" in line else ""
    final = ", the last" if line["final_chunk"] else ""
    rows = counted(line["row_count"], "row")
    return f"chunk {line['chunk_id']} of {line['table']}: {rows}{span}{after}{final}"


def _visibility(line: Line) -> str:
    unseen = f" ({', '.join(line['unseen_tx_ids'])})" if line["unseen_tx_ids"] else ""
    counts = f"seen {line['seen']}, not seen {line['not_seen']}, unknown {line['unknown']}"
    return f"chunk {line['chunk_id']}, snapshot {line['snapshot']}: transactions {counts}{unseen}"


def _request(line: Line) -> str:
    reason = f": {line['reason']}" if "reason" in line else ""
    of = line.get("table", "all tables")
    before = f"{line['prev_state']} → " if "prev_state" in line else ""
    return f"{line['request_id']} ({line['scope']}, {of}) {before}{line['state']}{reason}"


def _dropped(line: Line) -> str:
    return f"{counted(line['dropped'], 'event')} dropped, {line['total']} in this run"


def _void(line: Line) -> str:
    return f"chunk {line['chunk_id']} of {line['table']}: {line['reason']}; it is read again"


_WORDS: dict[str, Callable[[Line], str]] = {
    "cdc": _row,
    "sink.event": _sink,
    "watermark.written": lambda e: f"{e['level']} of chunk {e['chunk_id']}, token {e['token'][:8]}",
    "watermark.received": lambda e: (
        f"{e['level']} of chunk {e['chunk_id']}, token {e['token'][:8]}, at {e['lsn']} "
        f"after {e['latency_ms']} ms"
    ),
    "chunk.selected": _selected,
    "chunk.collision": lambda e: (
        f"chunk {e['chunk_id']}: {e.get('excluded_pk', '')} yields to "
        f"{e['cause_op']} at {e['cause_lsn']}"
    ),
    "chunk.completed": lambda e: (
        f"chunk {e['chunk_id']} of {e['table']}: {counted(e['emitted'], 'row')} left at {e['lsn']}, "
        f"{e['excluded']} yielded, {e['duration_ms']} ms"
    ),
    "checkpoint.advanced": lambda e: (
        f"durable up to {e['lsn']}, {counted(e['buffered_events'], 'row')} since the last"
    ),
    "request.transition": _request,
    "error": lambda e: f"{e['class']}: {e['message']}",
    "stream.heartbeat": lambda e: f"{e['queue_depth']} of {e['queue_capacity']} wait to be written",
    "stream.standby": lambda e: e["message"],
    "stream.resumed": lambda e: f"capture goes on after {e['standby_total_ms']} ms",
    "tap.opened": lambda e: f"mode {e['mode']}, keys {e['keys']}, rows {str(e['rows']).lower()}",
    "tap.dropped": _dropped,
    "chunk.visibility": _visibility,
    "chunk.patched": lambda e: (
        f"chunk {e['chunk_id']}: {e['pk']} takes {', '.join(e['columns'])} from {e['cause_lsn']}"
    ),
    "window.void": _void,
    "reread.listed": lambda e: f"{e['table']}: {', '.join(e['pks'])} ({e['reason']})",
    "reread.settled": lambda e: f"{e['table']}: {', '.join(e['pks'])}; {e['left']} left",
    "certificate": lambda e: (
        f"chunk {e['chunk_id']}: {e['emitted']} of {counted(e['rows'], 'row')}, digest {e['digest'][:12]}…"
    ),
    "snapshot.forgot": lambda e: (
        f"{counted(e['forgotten'], 'transaction')}; {e['remembered']} remembered"
    ),
    "schema.changed": lambda e: f"{e['table']} is {e['fingerprint']} from {e['lsn']}",
    "table.truncated": lambda e: f"{e['table']} at {e['lsn']}",
    "table.completed": lambda e: f"{e['table']} at {e['lsn']} ({e['request_id']})",
    "capture.waiting": lambda e: f"{e['state']}: {e['message']}",
}
