"""What a reader of the tap knows: the log, the sink, and the window, put together from events.

Pure: the same lines give the same picture, lines that come twice change nothing, and another run begins a new one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headrace.observe.tap.reading import Line, News, Order

__all__ = ["Picture", "WindowPicture"]

SHOWN = 200
"""Lines of log and sink that are kept."""
KEPT_ROWS = 2_000
"""Rows of one window that are kept."""

_LOG = frozenset(
    {"cdc", "watermark.written", "watermark.received", "chunk.selected", "chunk.collision"}
) | {"chunk.completed", "window.void", "table.truncated", "schema.changed"}


def _rows() -> deque[Line]:
    return deque(maxlen=KEPT_ROWS)


@dataclass(slots=True)
class WindowPicture:
    """One window.

    Attributes:
        chunk_id: its number.
        state: ``opening``, ``open``, ``selected``, ``closing``, ``done`` or ``void``.
        selected: its chunk.selected, as read.
        marks: its marks as ``written LOW`` and so on.
        log: what the log brought inside it; ``sent`` what left of it; ``yielded`` and ``patched`` rows.
        completed: its chunk.completed, or its window.void.
    """

    chunk_id: int
    state: str = "opening"
    selected: Line | None = None
    marks: dict[str, Line] = field(default_factory=dict)
    visibility: Line | None = None
    log: deque[Line] = field(default_factory=_rows)
    sent: deque[Line] = field(default_factory=_rows)
    yielded: deque[Line] = field(default_factory=_rows)
    patched: deque[Line] = field(default_factory=_rows)
    completed: Line | None = None


@dataclass(slots=True)
class Picture:
    """The present state of one run.

    Attributes:
        log: newest lines of the source's log, marks and chunks between them.
        sink: newest rows that went into the change log.
        window: the last one that was opened.
        windows: finished ones, newest last.
        requests: state of each request.
        standby, error: the last such line while it holds.
        checkpoint: last durable SCN.
        events: lines that counted.
    """

    order: Order = field(default_factory=Order)
    source_id: str = ""
    log: deque[Line] = field(default_factory=lambda: deque(maxlen=SHOWN))
    sink: deque[Line] = field(default_factory=lambda: deque(maxlen=SHOWN))
    window: WindowPicture | None = None
    windows: deque[WindowPicture] = field(default_factory=lambda: deque(maxlen=SHOWN))
    requests: dict[str, Line] = field(default_factory=dict)
    standby: Line | None = None
    error: Line | None = None
    checkpoint: str = ""
    events: int = 0

    def take(self, line: Line) -> News:
        """Take the next line; one that was read before changes nothing."""
        news = self.order.take(line)
        if news is News.REPEATED:
            return news
        if news is News.NEW_RUN:
            self._begin(line)
        if line["seq"] is not None:
            self.events += 1
        kind = line["kind"]
        if kind in _LOG:
            self.log.append(line)
        if kind == "sink.event":
            self.sink.append(line)
        if "chunk_id" in line:
            self._window(line)
        if kind == "checkpoint.advanced":
            self.checkpoint = line["lsn"]
        elif kind == "request.transition":
            self.requests[line["request_id"]] = line
        elif kind == "stream.standby":
            self.standby = line
        elif kind == "stream.resumed":
            self.standby = None
        elif kind == "error":
            self.error = line
        return news

    def _begin(self, line: Line) -> None:
        fresh = Picture(order=self.order, source_id=line["source_id"])
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))

    def _window(self, line: Line) -> None:
        window = self.window
        if window is None or window.chunk_id != line["chunk_id"]:
            window = self.window = WindowPicture(line["chunk_id"])
        kind = line["kind"]
        if kind.startswith("watermark."):
            window.marks[f"{kind.partition('.')[2]} {line['level']}"] = line
            if kind == "watermark.received" and line["level"] == "HIGH":
                window.state = "closing"
            elif kind == "watermark.received" and window.state == "opening":
                window.state = "open"
        elif kind == "chunk.selected":
            window.selected, window.state = line, "selected"
        elif kind == "chunk.visibility":
            window.visibility = line
        elif kind == "sink.event":
            (window.sent if line["origin"] == "SELECT" else window.log).append(line)
        elif kind == "chunk.collision":
            window.yielded.append(line)
        elif kind == "chunk.patched":
            window.patched.append(line)
        elif kind in ("chunk.completed", "window.void"):
            window.completed = line
            window.state = "done" if kind == "chunk.completed" else "void"
            self.windows.append(window)
