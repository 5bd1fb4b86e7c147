"""What the workers count, and how `/metrics` says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from headrace.observe.exposition import Family, Kind, text
from headrace.observe.status import ProcessStatus
from headrace.relay.server.feed import Feed
from headrace.relay.server.shared_counters import SharedCounters

__all__ = ["Counters"]

_HELP: dict[str, tuple[Kind, str]] = {
    "headrace_relay_bytes_sent_total": (
        "counter",
        "Bytes of streams that were handed to connections.",
    ),
    "headrace_relay_streams_total": ("counter", "Streams that were begun."),
    "headrace_relay_streams": ("gauge", "Streams that are open."),
    "headrace_relay_readers_cut_total": (
        "counter",
        "Streams that were cut because nothing was taken.",
    ),
    "headrace_relay_refusals_total": ("counter", "Requests and streams that ended with an error."),
    "headrace_relay_filters_applied_total": (
        "counter",
        "How often a filter was applied to a block.",
    ),
    "headrace_relay_oldest_scn": ("gauge", "Everything above it can be asked for."),
    "headrace_relay_covered_scn": ("gauge", "Everything up to it can be asked for."),
    "headrace_relay_last_commit_seconds": ("gauge", "Commit time of the newest whole transaction."),
    "headrace_capture_slow_queries_total": (
        "counter",
        "Queries at the source that took longer than source.slow_query_s, since the capture started.",
    ),
    "headrace_capture_slowest_query_seconds": ("gauge", "The slowest of them."),
    "headrace_capture_large_values_total": (
        "counter",
        "Values of at least source.large_value that came into the log, since the capture started.",
    ),
    "headrace_capture_largest_value_bytes": ("gauge", "The largest of them."),
}


class Counters:
    """Counts of one worker, by source; used from the event loop.

    Args:
        worker: its number.
        folder: where the workers of a relay leave theirs; None for one alone.
    """

    def __init__(self, worker: int, folder: Path | None = None) -> None:
        self._worker = worker
        self._shared = SharedCounters(folder, worker)
        self._values: Counter[tuple[str, str, str]] = Counter()

    def add(self, name: str, source: str, value: int = 1, kind: str = "") -> None:
        """Count something: ``headrace_relay_<name>``, of a kind where there are several."""
        self._values[f"headrace_relay_{name}", source, kind] += value

    def get(self, name: str, source: str, kind: str = "") -> int:
        """Return a count."""
        return self._values[f"headrace_relay_{name}", source, kind]

    def share(self) -> None:
        """Let the other workers know."""
        self._shared.leave(self._values)

    def text(self, feeds: Iterable[Feed]) -> str:
        """Return everything in Prometheus' text form: the counts of every worker, and how far each source is."""
        families = {name: Family(name, kind, said) for name, (kind, said) in _HELP.items()}
        workers = {**self._shared.others(), self._worker: self._values}
        for worker, values in sorted(workers.items()):
            for (name, source, kind), value in sorted(values.items()):
                labels = {"source": source, "worker": str(worker)}
                families[name].add(value, {**labels, "type": kind} if kind else labels)
        for feed in feeds:
            tail = feed.reader.tail
            reached: tuple[tuple[str, float], ...] = (
                ("headrace_relay_oldest_scn", tail.oldest_scn),
                ("headrace_relay_covered_scn", tail.covered_scn),
                ("headrace_relay_last_commit_seconds", tail.last_commit_us / 1e6),
            )
            for name, at in reached:
                families[name].add(at, {"source": feed.name})
            for name, kind, said in _of_capture(feed.source.capture):
                labels = {"source": feed.name}
                families[name].add(said, {**labels, "kind": kind} if kind else labels)
        return text(families.values())


def _of_capture(file: Path | None) -> Iterator[tuple[str, str, float]]:
    """Yield name, kind and value of what the capture of a source says that the source costs; nothing before it does."""
    status = None if file is None else ProcessStatus.read(file)
    if status is None or "slow_queries" not in status.detail:
        return
    said = status.detail
    for kind, count in sorted(said["slow_queries"].items()):
        yield "headrace_capture_slow_queries_total", kind, count
    yield "headrace_capture_slowest_query_seconds", "", said["slowest_query_s"]
    yield "headrace_capture_large_values_total", "", said["large_values"]
    yield "headrace_capture_largest_value_bytes", "", said["largest_value_bytes"]
