"""What processes log: one form for people, one for programs, and a reader of both.

In: records of Python's logging; later the lines of a log file, among them words of libraries and of the JVM that know
no form. Out: lines; entries that can be chosen by table and level.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["FORM", "LEVELS", "Entry", "begin_logging", "chosen", "entries"]

FORM = "HEADRACE_LOG"
"""Variable of the environment: ``json`` lets processes log lines of JSON."""

LEVELS = ("debug", "info", "warning", "error")
_RANKS = {name.upper(): rank for rank, name in enumerate(LEVELS)} | {"CRITICAL": 3}
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LINE = re.compile(
    r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)[,.](\d{3})Z? ([A-Z]+) (?:([\w.]+): )?(.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was said.

    Attributes:
        text: its lines, as they stand in the log.
        at: UTC in ISO 8601; empty where the words of a library do not say it.
        level: ``INFO``, ``WARNING`` and so on; empty likewise.
        logger: name of the part that says it; empty likewise.
        message: without the former, with what follows below it.
    """

    text: str
    at: str = ""
    level: str = ""
    logger: str = ""
    message: str = ""

    def mentions(self, table: str) -> bool:
        """Whether it speaks of a table, ``schema.name``."""
        return re.search(rf"(?<![\w.]){re.escape(table)}(?!\w|\.\w)", self.message) is not None

    def to_json(self, **also: str) -> dict[str, Any]:
        """Return plain values."""
        told = {"at": self.at, "level": self.level, "logger": self.logger}
        return {**told, **also, "message": self.message}


class _Json(logging.Formatter):
    """One record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        return json.dumps(
            {
                "at": _iso(record.created),
                "level": record.levelname,
                "logger": record.name,
                "message": message,
            }
        )


class _Text(logging.Formatter):
    """One record as a line for people, in UTC."""

    default_msec_format = "%s,%03dZ"

    def converter(self, seconds: float | None = None) -> time.struct_time:
        """Return a time in UTC."""
        return time.gmtime(seconds)


def begin_logging() -> None:
    """Let this process log to its standard error, in the form that the environment asks for."""
    handler = logging.StreamHandler()
    as_json = os.environ.get(FORM, "").lower() == "json"
    handler.setFormatter(_Json() if as_json else _Text(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def entries(lines: Iterable[str]) -> Iterator[Entry]:
    """Yield what the lines of a log say; a line without a form belongs to the one before it, a traceback above all."""
    held: list[str] = []
    for line in lines:
        if held and (_LINE.match(line) or line.startswith('{"at": ')):
            yield _entry(held)
            held = []
        held.append(line)
    if held:
        yield _entry(held)


def chosen(found: Iterable[Entry], table: str = "", level: str = "") -> Iterator[Entry]:
    """Yield the entries that speak of a table, and are at least as grave as a level; empty for all.

    What has no level of its own is of a library, and passes for an error.
    """
    least = LEVELS.index(level) if level else 0
    for one in found:
        if _RANKS.get(one.level, 3) >= least and (not table or one.mentions(table)):
            yield one


def _entry(lines: list[str]) -> Entry:
    text = "\n".join(lines)
    if lines[0].startswith('{"at": '):
        try:
            told = json.loads(lines[0])
            message = "\n".join([str(told["message"]), *lines[1:]])
            return Entry(text, str(told["at"]), str(told["level"]), str(told["logger"]), message)
        except (ValueError, KeyError, TypeError):
            return Entry(text, message=text)
    match = _LINE.fullmatch(text)
    if match is None:
        return Entry(text, message=text)
    day, clock, millis, level, logger, message = match.groups()
    return Entry(text, f"{day}T{clock}.{millis}Z", level, logger or "", message)


def _iso(seconds: float) -> str:
    clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{clock}.{int(seconds % 1 * 1000):03d}Z"
