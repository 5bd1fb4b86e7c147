"""Shows events as they come: raw, as coloured lines, or in three panes; by pace or by step."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rich.live import Live
from rich.text import Text

from headrace.cli.keyboard import Keyboard
from headrace.cli.output import console
from headrace.cli.tap_panes import draw
from headrace.errors import ConfigError
from headrace.observe.tap.picture import Picture
from headrace.observe.tap.reading import Line, News, has_form, parse
from headrace.observe.tap.wording import say
from headrace.plural import be, counted

__all__ = ["show"]

_STYLES = {
    "cdc": "blue",
    "sink.event": "blue",
    "watermark.written": "magenta",
    "watermark.received": "magenta",
    "chunk.selected": "cyan",
    "chunk.collision": "yellow",
    "chunk.patched": "yellow",
    "chunk.visibility": "cyan",
    "chunk.completed": "green",
    "request.transition": "cyan",
    "table.completed": "green",
    "window.void": "red",
    "error": "bold red",
    "stream.standby": "red",
    "tap.dropped": "red",
    "capture.waiting": "red",
}
_STEP_MS = 100


def show(
    lines: Iterable[str],
    source: str,
    *,
    raw: bool = False,
    step: bool = False,
    panes: bool = False,
    pace_ms: int = 0,
    taken: Callable[[Line], None] = lambda _line: None,
) -> None:
    """Show lines until they end or somebody types q.

    Args:
        lines: as they come.
        source: file or replicator that they come from.
        raw: print them as they are.
        step: wait for a key after each.
        panes: draw the picture in place of printing lines.
        pace_ms: milliseconds between two.
        taken: called with each event after it was shown.

    Raises:
        ConfigError: a line has the names of an event, and not what belongs behind them.
    """
    picture = Picture()
    with contextlib.ExitStack() as stack:
        pace = _Pace(stack.enter_context(Keyboard()), pace_ms, step)
        live: Live | None = None
        if panes:
            live = stack.enter_context(Live(console=console, auto_refresh=False, screen=True))
        for number, text in enumerate(lines, 1):
            line = parse(text)
            if line is None:
                continue
            with _told(source, number):
                if not has_form(line):
                    raise TypeError
                news = picture.take(line)
                if news is News.REPEATED:
                    continue
                if live is not None:
                    live.update(draw(picture, pace.note), refresh=True)
                elif raw:
                    sys.stdout.write(text + "\n")
                    sys.stdout.flush()
                else:
                    _print(line, news, picture)
            # In step mode the reader has taken an event when it asks for the next one.
            if not pace.go_on():
                return
            taken(line)
        if live is not None and pace.terminal:
            pace.wait_for_end()


@contextlib.contextmanager
def _told(source: str, number: int) -> Iterator[None]:
    """Say which line it is that does not read as an event; its values are not repeated."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"tap: line {number:,} of {source}, counted from the first that was read, is no event as a tap writes it "
            f"({type(error).__name__}).",
            next_step="take the line out, or name a file that headrace tap FILE --raw gave.",
        ) from error


def _print(line: Line, news: News, picture: Picture) -> None:
    if news is News.NEW_RUN:
        console.rule(f"run {line['run_id'][:8]} of {line['source_id']}", align="left")
    elif news is News.AFTER_GAP:
        console.print(
            Text(
                f"{counted(picture.order.missed, 'event')} of this run {be(picture.order.missed)} missing",
                style="red",
            )
        )
    number = "" if line["seq"] is None else str(line["seq"])
    style = _STYLES.get(line["kind"], "")
    console.print(
        Text.assemble(
            (f"{number:>6} {line['ts'][11:23]} ", "dim"), (f"{line['kind']:18} ", style), say(line)
        ),
        soft_wrap=True,
    )


@dataclass(slots=True)
class _Pace:
    """How fast, as the keys say."""

    keyboard: Keyboard
    pace_ms: int
    stepping: bool

    @property
    def terminal(self) -> bool:
        """Whether keys can be typed."""
        return sys.stdin.isatty()

    @property
    def note(self) -> str:
        """The pace in words, and the keys."""
        how = "step by step" if self.stepping else f"{self.pace_ms} ms"
        return f"{how} · space next · s step · n slower · m faster · f full speed · q end"

    def go_on(self) -> bool:
        """Wait as long as it takes; false when somebody wants to end."""
        if self.stepping:
            return self._take(self.keyboard.next())
        return self._take(self.keyboard.within(self.pace_ms / 1000))

    def _take(self, key: str) -> bool:
        if key in ("q", "\x1b"):
            return False
        if key == "s":
            self.stepping = not self.stepping
        elif key == "n":
            self.pace_ms += _STEP_MS
        elif key == "m":
            self.pace_ms = max(0, self.pace_ms - _STEP_MS)
        elif key == "f":
            self.pace_ms, self.stepping = 0, False
        return True

    def wait_for_end(self) -> None:
        """Leave the last picture until a key comes."""
        self.keyboard.next()
