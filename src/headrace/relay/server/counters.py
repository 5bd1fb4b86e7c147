"""What a worker counts, and how `/metrics` says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headrace.relay.server.feed import Feed

__all__ = ["Counters"]

_HELP = {
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
}


class Counters:
    """Counts of one worker, by source; used from the event loop."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._values: Counter[tuple[str, str, str]] = Counter()

    def add(self, name: str, source: str, value: int = 1, kind: str = "") -> None:
        """Count something: ``headrace_relay_<name>``, of a kind where there are several."""
        self._values[f"headrace_relay_{name}", source, kind] += value

    def get(self, name: str, source: str, kind: str = "") -> int:
        """Return a count."""
        return self._values[f"headrace_relay_{name}", source, kind]

    def text(self, feeds: Iterable[Feed]) -> str:
        """Return everything in Prometheus' text form."""
        values: dict[tuple[str, str, str], float] = dict(self._values)
        for feed in feeds:
            tail = feed.reader.tail
            values["headrace_relay_oldest_scn", feed.name, ""] = tail.oldest_scn
            values["headrace_relay_covered_scn", feed.name, ""] = tail.covered_scn
            values["headrace_relay_last_commit_seconds", feed.name, ""] = tail.last_commit_us / 1e6
        out = []
        for name, (type_, help_) in _HELP.items():
            found = sorted((key, value) for key, value in values.items() if key[0] == name)
            if found:
                out += [f"# HELP {name} {help_}", f"# TYPE {name} {type_}"]
            for (_, source, kind), value in found:
                labels = f'source="{source}",worker="{self._worker}"'
                labels += f',type="{kind}"' if kind else ""
                out.append(f"{name}{{{labels}}} {value}")
        return "\n".join(out) + "\n"
