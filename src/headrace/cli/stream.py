"""What `headrace tail` and `headrace consume` share: which stream, which part of it, from where on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.errors import ConfigError, HeadraceError, NotAllowed, NotServed

if TYPE_CHECKING:
    from headrace.client import HttpSettings
    from headrace.client.start import Start

__all__ = [
    "Authority",
    "Columns",
    "Conditions",
    "From",
    "Partition",
    "Source",
    "Stream",
    "Tables",
    "Upto",
    "Where",
    "filter_of",
    "start_of",
    "stream_of",
    "upto_of",
]

TOKEN = "HEADRACE_TOKEN"
"""The variable of the environment that holds the token; on a command line everybody could read it."""

Where = Annotated[
    list[str],
    typer.Argument(
        metavar="URL_OR_FILE...",
        help="Addresses of relays that serve the same source, the preferred one first; or a replicator's file, whose "
        "section relay says where its relay is.",
        show_default=False,
    ),
]
Source = Annotated[
    str | None,
    typer.Option(help="Which source of the relay; needed when it serves several.", metavar="NAME"),
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table", help="Only tables of this pattern; may be repeated.", metavar="PATTERN"
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        help="Only these columns of a table, and its key: public.orders:status,total. May be repeated.",
        metavar="TABLE:NAMES",
    ),
]
Conditions = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Only rows of a table that meet a condition: 'public.orders:total > 10'. May be repeated.",
        metavar="TABLE:CONDITION",
    ),
]
Partition = Annotated[
    str | None,
    typer.Option(
        help="Only some keys: hash:8:0,3 or mod:8:0,3 for parts 0 and 3 of 8, range:100..200 for 100 up to below 200.",
        metavar="PART",
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        help="Where to begin: oldest, newest, an SCN that was processed already, a time (2026-01-31T12:00:00Z), or how "
        "long ago (90s, 10m, 2h, 1d).",
        metavar="PLACE",
    ),
]
Upto = Annotated[
    str | None,
    typer.Option(
        "--upto",
        help="End when everything up to this SCN came; newest: up to what the relay holds now.",
        metavar="SCN",
    ),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--ca", help="PEM file of the authority that signed an https relay's certificate."
    ),
]

_AGO = re.compile(r"(\d+)([smhd])")
_SCN_DIGITS = len(str(2**63))
_SHOWN = 40
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Stream:
    """One source of some relays that serve it.

    Attributes:
        urls: of the relays, the preferred one first.
        source: its name.
        http: how they are reached.
        oldest_scn: what the relay that answered held when it was asked.
        covered_scn: likewise, its newest.
        state: likewise; ``none`` while there is no change log yet.
    """

    urls: tuple[str, ...]
    source: str
    http: HttpSettings
    oldest_scn: int
    covered_scn: int
    state: str

    def newest(self) -> int:
        """Ask a relay for the newest SCN it has.

        Raises:
            HeadraceError: none answers.
        """
        return int(_of(_sources(self.urls, self.http), self.source)["covered_scn"])


def stream_of(where: Sequence[str], source: str | None, authority: Path | None) -> Stream:
    """Return the stream that a command line names, after one of its relays has said that it is there.

    Raises:
        ConfigError: no relay, or none of its sources, is named.
        HeadraceError: no relay answers, or none has the source.
    """
    from headrace.client import HttpSettings
    from headrace.client.trust import trusting

    token = os.environ.get(TOKEN)
    if any("://" in each for each in where):
        urls = tuple(where)
    else:
        urls, name, told = _of_file(where)
        source, token = source or name, token or told
    http = HttpSettings(token=token, tls=None if authority is None else trusting(authority, "--ca"))
    said = _sources(urls, http)
    if source is None:
        if len(said) != 1:
            raise ConfigError(
                f"{urls[0]} serves {_names(said)}.", next_step="name one of them with --source."
            )
        source = str(said[0]["name"])
    found = _of(said, source)
    scns = (int(found["oldest_scn"] or 0), int(found["covered_scn"] or 0))
    return Stream(urls, source, http, *scns, str(found["state"]))


def filter_of(
    tables: Sequence[str] | None,
    columns: Sequence[str] | None,
    conditions: Sequence[str] | None,
    partition: str | None,
) -> dict[str, Any] | None:
    """Return the filter that options ask for, as the protocol has it; None when they ask for everything.

    Raises:
        ConfigError: an option does not read. What a filter says is checked by the relay.
    """
    said: dict[str, Any] = {}
    if tables:
        said["tables"] = list(tables)
    if columns:
        named = (_of_table("--columns", "NAMES", each) for each in columns)
        said["columns"] = {table: names.split(",") for table, names in named}
    if partition:
        said["partition"] = _partition(partition)
    if conditions:
        said["where"] = dict(_of_table("--where", "CONDITION", each) for each in conditions)
    return said or None


def start_of(text: str, now: datetime | None = None, *, option: str = "--from") -> Start:
    """Return what an option says.

    Raises:
        ConfigError: it is no place and no time.
    """
    from headrace.wire.place import Place

    if text in ("oldest", "newest"):
        return "oldest" if text == "oldest" else "newest"
    with contextlib.suppress(ValueError):
        return Place.parse(text)
    try:
        if ago := _AGO.fullmatch(text):
            unit = {_UNITS[ago[2]]: int(ago[1])}
            return (now or datetime.now(UTC)) - timedelta(**unit)
        return datetime.fromisoformat(text)
    except (OverflowError, ValueError):
        raise ConfigError(
            f"{option}: {text!r} is no place in a stream.",
            next_step="say oldest, newest, an SCN, a time such as 2026-01-31T12:00:00Z, or 10m for ten minutes ago.",
        ) from None


def upto_of(text: str | None, stream: Stream) -> int | None:
    """Return what ``--upto`` says.

    Raises:
        ConfigError: it is no SCN.
    """
    if text is None or text == "newest":
        return None if text is None else stream.covered_scn
    if not (text.isascii() and text.isdecimal()) or len(text) > _SCN_DIGITS:
        raise ConfigError(
            f"--upto: {text[:_SHOWN]!r} is no SCN.", next_step="give a number, or newest."
        )
    return int(text)


def _of_file(where: Sequence[str]) -> tuple[tuple[str, ...], str, str | None]:
    """Return address, source and token as a replicator's file has them."""
    from headrace.replicator import config_file
    from headrace.replicator.relay_config import RelayConfig

    if len(where) != 1:
        raise ConfigError(
            f"{', '.join(where)}: several names, and none is an address.",
            next_step="name one replicator's file, or addresses such as http://host:7070.",
        )
    config = config_file.load(Path(where[0]))
    relay = config.relay or RelayConfig()
    # Who listens everywhere is reached here.
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(relay.host, relay.host)
    scheme = "https" if relay.tls else "http"
    tokens = sorted(relay.tokens, key=lambda token: token.role != "reader")
    token = tokens[0].token.get_secret_value() if tokens else None
    return (f"{scheme}://{host}:{relay.port}",), config.name, token


def _sources(urls: Sequence[str], http: HttpSettings) -> list[dict[str, Any]]:
    """Return what the first relay that answers says of its sources."""
    from headrace.client.transport import Relay

    first: HeadraceError | None = None
    for url in urls:
        relay = Relay(url, http)
        try:
            return relay.sources()
        except NotAllowed as error:
            raise NotAllowed(
                f"Relay {url}: {error.message}",
                next_step=f"put a token of its relay.tokens into the environment's {TOKEN}.",
            ) from error
        except HeadraceError as error:
            first = first or error
        finally:
            relay.close()
    assert first is not None
    raise first


def _of(said: Sequence[dict[str, Any]], source: str) -> dict[str, Any]:
    from headrace.wire.refusals import error_of

    for each in said:
        if each["name"] == source:
            if "error" in each:
                raise error_of(each["error"])
            return each
    raise NotServed(
        f"The relay serves no source {source!r}, but {_names(said)}.",
        next_step="name one of its sources with --source, or ask another relay.",
    )


def _names(said: Sequence[dict[str, Any]]) -> str:
    return ", ".join(sorted(str(each["name"]) for each in said)) or "no source"


def _of_table(option: str, what: str, text: str) -> tuple[str, str]:
    table, colon, rest = text.partition(":")
    if not (table and colon and rest.strip()):
        raise ConfigError(
            f"{option}: {text!r} names no table and what is wanted of it.",
            next_step=f"write {option} SCHEMA.TABLE:{what}.",
        )
    return table, rest


def _partition(text: str) -> dict[str, Any]:
    by, _, rest = text.partition(":")
    if by == "range" and ".." in rest:
        ends = zip(("from", "below"), rest.split("..", 1), strict=True)
        return {"by": by, "ranges": [{name: _number(end) for name, end in ends if end}]}
    count, _, take = rest.partition(":")
    parts = take.split(",")
    if by not in ("hash", "mod") or not all(part.isdecimal() for part in (count, *parts)):
        raise ConfigError(
            f"--partition: {text!r} does not read.",
            next_step="write hash:COUNT:PARTS or mod:COUNT:PARTS, such as hash:8:0,3, or range:FROM..BELOW.",
        )
    return {"by": by, "count": int(count), "take": [int(part) for part in parts]}


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text
