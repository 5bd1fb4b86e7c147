"""Opens the tap that a configuration asks for, to write and to read."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from headrace.durable import make_folder
from headrace.errors import ConfigError
from headrace.observe.tap import NO_TAP, Tap
from headrace.observe.tap.keys import hashed_key, plain_key, secret_of
from headrace.observe.tap.lines import Envelope
from headrace.observe.tap.reading import Line, follow, has_form, parse
from headrace.observe.tap.recorder import Recorder
from headrace.observe.tap.recording import RecordingTap
from headrace.observe.tap.teaching import Bookmark, TeachingTap
from headrace.replicator.config import Config, TapConfig
from headrace.replicator.paths import StatePaths

__all__ = ["bookmark_file", "follow_tap", "open_tap", "tap_file", "taught"]


def tap_file(folder: Path) -> Path:
    """Return where the lines of a tap folder are."""
    return folder / "tap.ndjson"


def bookmark_file(folder: Path) -> Path:
    """Return where the reader of a teaching tap says how far it is."""
    return folder / "bookmark"


@contextlib.contextmanager
def open_tap(config: TapConfig, folder: Path, stop: threading.Event) -> Iterator[Tap]:
    """Open the tap, and close it when the capture has ended.

    Args:
        config: what is wanted.
        folder: where lines, bookmark and secret lie.
        stop: a teaching tap waits no longer than until this is set.
    """
    if not config.enabled:
        yield NO_TAP
        return
    recorder = Recorder(tap_file(folder), config.size)
    hashed = config.keys == "hashed"
    show = hashed_key(secret_of(folder / "secret")) if hashed else plain_key
    envelope = Envelope(show_key=show)
    if config.teach:
        read_to = Bookmark(bookmark_file(folder)).get
        with contextlib.closing(recorder):
            yield TeachingTap(
                recorder, envelope, read_to, stop.is_set, rows=config.rows, hashed=hashed
            )
        return
    with contextlib.closing(
        RecordingTap(recorder, envelope, config.queue, rows=config.rows, hashed=hashed)
    ) as tap:
        yield tap


def follow_tap(
    config: Config, *, last: int | None, once: bool
) -> tuple[Iterable[str], Callable[[Line], None]]:
    """Return the lines of a replicator's tap, and what to call with each event that was taken.

    Args:
        config: of the replicator.
        last: begin with so many of the lines there are, None for all. A teaching tap begins where it waits.
        once: end where the file ends now.

    Raises:
        ConfigError: the tap is off and was never on.
    """
    folder = StatePaths.of(config).tap
    path = tap_file(folder)
    if not config.tap.enabled and not path.exists():
        raise ConfigError(
            f"tap: replicator {config.name} tells nothing.",
            next_step="write tap: {enabled: true} into its file and start headrace run again.",
        )
    lines = follow(path, stop=None if once else lambda: False)
    if not config.tap.teach:
        return (lines if last is None else _ending(path, last, lines)), lambda _line: None
    take, bookmark = taught(folder), Bookmark(bookmark_file(folder))

    def taken(line: Line) -> None:
        if line["seq"] is not None:
            take(line["run_id"], line["seq"])

    return (text for text in lines if _is_new(text, bookmark)), taken


def taught(folder: Path) -> Callable[[str, int], None]:
    """Return what to call with run and number of each line that was taken of a tap that teaches."""
    # The state folder too: a reader may be there before the first run.
    make_folder(folder.parent, 0o700)
    make_folder(folder, 0o700)
    return Bookmark(bookmark_file(folder)).put


def _ending(path: Path, last: int, lines: Iterator[str]) -> Iterator[str]:
    """Leave out all but the last of the lines that are there now."""
    there = sum(1 for _ in follow(path))
    held: deque[str] = deque(maxlen=last)
    for _ in range(there):
        held.append(next(lines))
    yield from held
    yield from lines


def _is_new(text: str, bookmark: Bookmark) -> bool:
    line = parse(text)
    if line is None or line["seq"] is None:
        return line is not None
    # Whoever shows it says that it is none.
    return not has_form(line) or bool(line["seq"] > bookmark.get(line["run_id"]))
