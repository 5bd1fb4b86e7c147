"""Opens the tap that a configuration asks for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from headrace.observe.tap import NO_TAP, Tap
from headrace.observe.tap.keys import hashed_key, plain_key, secret_of
from headrace.observe.tap.lines import Envelope
from headrace.observe.tap.recorder import Recorder
from headrace.observe.tap.recording import RecordingTap
from headrace.observe.tap.teaching import Bookmark, TeachingTap
from headrace.replicator.config import TapConfig

__all__ = ["bookmark_file", "open_tap", "tap_file"]


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
            yield TeachingTap(recorder, envelope, read_to, stop.is_set, hashed=hashed)
        return
    with contextlib.closing(
        RecordingTap(recorder, envelope, config.queue, rows=config.rows, hashed=hashed)
    ) as tap:
        yield tap
