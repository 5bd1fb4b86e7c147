"""The picture of a run in three panes: source log, change log, and the window between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.layout import Layout
from rich.panel import Panel
from rich.text import Text

from headrace.observe.tap.picture import Picture, WindowPicture
from headrace.observe.tap.reading import Line
from headrace.observe.tap.wording import say
from headrace.plural import be, counted

__all__ = ["draw"]

_SHORT = {
    "cdc": ("cdc", "blue"),
    "watermark.written": ("wm-written", "magenta"),
    "watermark.received": ("wm-received", "magenta"),
    "chunk.selected": ("chunk-sel", "cyan"),
    "chunk.collision": ("chunk-drop", "yellow"),
    "chunk.completed": ("chunk-done", "green"),
    "window.void": ("void", "red"),
    "table.truncated": ("truncate", "red"),
    "schema.changed": ("schema", "cyan"),
}
_STATES = {"done": "green", "void": "red", "closing": "yellow", "selected": "cyan"}
_SHOWN_CHANGES = 10
"""Changes inside the window in its pane."""
_SHOWN_KEYS = 60
"""Keys of one list in the window's pane."""


def draw(picture: Picture, note: str) -> RenderableType:
    """Return the whole screen.

    Args:
        picture: of the run so far.
        note: the bottom line.
    """
    layout = Layout()
    layout.split_column(
        Layout(_title(picture), size=1),
        Layout(_banner(picture), size=1),
        Layout(name="body"),
        Layout(Text(note, style="dim", no_wrap=True, overflow="ellipsis"), size=1),
    )
    layout["body"].split_row(Layout(name="streams", ratio=72), Layout(name="window", ratio=28))
    layout["streams"].split_column(
        Layout(Panel(_Tail(map(_log_line, picture.log)), title="SOURCE LOG", title_align="left")),
        Layout(Panel(_Tail(map(_sink_line, picture.sink)), title="CHANGE LOG", title_align="left")),
    )
    lines = _window_lines(picture.window) if picture.window else []
    layout["window"].update(Panel(_Tail(lines), title="RECONCILER", title_align="left"))
    return layout


class _Tail:
    """The newest lines that fit into the pane."""

    def __init__(self, lines: Iterable[Text]) -> None:
        self._lines = list(lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines[-(options.height or options.max_height) :]:
            line.no_wrap, line.overflow = True, "ellipsis"
            yield line


def _title(picture: Picture) -> Text:
    state = picture.window.state if picture.window else "none"
    run = picture.order.run_id[:8]
    return Text.assemble(
        ("headrace tap ", "bold"),
        f"{picture.source_id} · run {run} · event {picture.order.seq} · window ",
        (state, _STATES.get(state, "")),
        f" · durable up to {picture.checkpoint or '–'}",
    )


def _banner(picture: Picture) -> Text:
    """Return what matters most: standing still, an error, something missed, the last request."""
    if picture.standby:
        return Text(say(picture.standby), style="bold red")
    if picture.error:
        return Text(say(picture.error), style="bold red")
    if picture.order.missed:
        return Text(
            f"{counted(picture.order.missed, 'event')} of this run {be(picture.order.missed)} missing",
            style="yellow",
        )
    if picture.requests:
        return Text(say(list(picture.requests.values())[-1]), style="cyan")
    return Text("")


def _log_line(line: Line) -> Text:
    short, style = _SHORT[line["kind"]]
    return _head(line, short, style).append(say(line))


def _sink_line(line: Line) -> Text:
    if line["origin"] == "SELECT":
        short, style = "chunk", "green"
    elif "chunk_id" in line:
        short, style = "in window", "cyan"
    else:
        short, style = "log", "blue"
    return _head(line, short, style).append(say(line))


def _head(line: Line, short: str, style: str) -> Text:
    number = "" if line["seq"] is None else str(line["seq"])
    position = line.get("lsn", "")
    return Text.assemble(
        (f"{number:>5} {line['ts'][17:23]} ", "dim"), f"{position:>6} ", (f"{short:11} ", style)
    )


def _window_lines(window: WindowPicture) -> list[Text]:
    """Return the window in the order of the algorithm."""
    lines = [Text(f"chunk {window.chunk_id}: {window.state}", style="bold")]
    chosen = window.selected
    if chosen:
        lines += [Text(f"{chosen['table']} · {chosen['mode']}"), Text(chosen["request_id"])]
    lines += _mark(window, "LOW")
    if window.log:
        lines.append(Text(f"log inside: {len(window.log)}", style="blue"))
        hits = {(line["cause_lsn"], line.get("excluded_pk")) for line in window.yielded}
        for line in list(window.log)[-_SHOWN_CHANGES:]:
            keys = {(line["lsn"], line["pk"]), (line["lsn"], line.get("from_pk"))}
            lines.append(
                Text(f"  {line['op']} {line['pk']}", style="yellow" if keys & hits else "")
            )
    if chosen:
        count = f"select: {counted(chosen['row_count'], 'row')}"
        span = f" {chosen['pk_min']}…{chosen['pk_max']}" if "pk_min" in chosen else ""
        lines.append(Text(count + span, style="cyan"))
    lines += _mark(window, "HIGH")
    if window.visibility:
        seen = window.visibility
        unseen = seen["not_seen"] + seen["unknown"]
        lines.append(Text(f"snapshot saw {seen['seen']}, not {unseen}", style="cyan"))
    lines += _keys("yielded", window.yielded, lambda e: e.get("excluded_pk", ""), "yellow strike")
    lines += _keys("patched", window.patched, lambda e: str(e["pk"]), "yellow")
    lines += _keys("rows out", window.sent, lambda e: str(e["pk"]), "green")
    if window.completed:
        lines.append(Text(say(window.completed), style=_STATES[window.state]))
    if chosen:
        final = "last chunk" if chosen["final_chunk"] else "more chunks"
        lines.append(Text(f"{final} · version {chosen['fingerprint'][:8]}", style="dim"))
    return lines


def _mark(window: WindowPicture, level: str) -> list[Text]:
    lines = []
    if written := window.marks.get(f"written {level}"):
        lines.append(Text(f"{level} written · {written['token'][:8]}", style="magenta"))
    if received := window.marks.get(f"received {level}"):
        text = f"{level} received at {received['lsn']} · {received['latency_ms']} ms"
        lines.append(Text(text, style="magenta"))
    return lines


def _keys(
    title: str, lines: Iterable[Line], key_of: Callable[[Line], str], style: str
) -> list[Text]:
    keys = [key_of(line) for line in lines]
    if not keys:
        return []
    return [Text(f"{title}: {len(keys)}"), *_wrapped(keys[-_SHOWN_KEYS:], style)]


def _wrapped(keys: list[str], style: str, width: int = 24) -> list[Text]:
    lines, line = [], Text("  ")
    for key in keys:
        if len(line) + len(key) > width and len(line) > 2:
            lines.append(line)
            line = Text("  ")
        line.append(key, style=style).append(" ")
    return [*lines, line]
