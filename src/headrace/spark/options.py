"""The options of ``format("headrace")``, read and checked once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client.trust import certificates_of
from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.spark.slices import Limits
from headrace.wire.filters import Filter, parse_filter

__all__ = ["RelayAddress", "SourceOptions"]

_MAX_ROWS = 400_000
_MAX_BYTES = 256 * 2**20
_PATIENCE_S = 60.0
_OF_RELAYS = ("source", "token", "ca", "patience_s")


@dataclass(frozen=True, slots=True)
class RelayAddress:
    """Where a log is served.

    Attributes:
        urls: of relays that have it, the preferred one first.
        source: under which name.
        token: for them, None for none.
        patience_s: how long a relay that does not go on is waited for.
        authority: certificates of who signed theirs, PEM; None for the system's authorities.
    """

    urls: tuple[str, ...]
    source: str
    token: str | None = field(repr=False)
    patience_s: float
    authority: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options; `headrace.spark.source` says what they mean."""

    place: Path | RelayAddress
    table: TableId
    filter: Filter | None
    from_scn: int
    to_scn: int | None
    schema_id: int
    slices: int
    limits: Limits

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read what Spark hands over; names come in lower case.

        Raises:
            ConfigError: an option is missing, does not go with another one, is no number, or names no certificate.
            BadFilter: the filter does not read.
        """
        try:
            place, table = _place(options), _table(options)
            return cls(
                place,
                table,
                _filter(options.get("filter"), table),
                int(options.get("from_scn", 0)),
                int(options["to_scn"]) if "to_scn" in options else None,
                int(options.get("schema_id", 0)),
                max(int(options.get("slices", 1)), 1),
                Limits(
                    int(options.get("max_rows", _MAX_ROWS)),
                    int(options.get("max_bytes", _MAX_BYTES)),
                ),
            )
        except ValueError as error:
            raise ConfigError(
                f'format("headrace") has an option that is no number ({error}).',
                next_step="correct the option.",
            ) from error


def _place(options: Mapping[str, str]) -> Path | RelayAddress:
    if ("path" in options) == ("relay" in options):
        both = (
            "both options path and relay" if "path" in options else "neither option path nor relay"
        )
        raise ConfigError(
            f'format("headrace") has {both}.',
            next_step="name the folder of a change log, .option('path', '<state>/changelog'), "
            "or a relay, .option('relay', 'http://HOST:PORT').",
        )
    if "path" in options:
        if lost := next((name for name in _OF_RELAYS if name in options), None):
            raise ConfigError(
                f'format("headrace") has option {lost}, which belongs to option relay.',
                next_step="leave it out, or name a relay in the place of the path.",
            )
        return Path(options["path"])
    urls = tuple(url.strip() for url in options["relay"].split(",") if url.strip())
    if not urls or not options.get("source"):
        raise ConfigError(
            'format("headrace") with option relay wants at least one address, and option source.',
            next_step="name one of the relay's sources: .option('source', 'shop').",
        )
    patience_s = float(options.get("patience_s", _PATIENCE_S))
    # Read here, in the driver: executors need not have the file.
    authority = certificates_of(Path(options["ca"]), "ca") if "ca" in options else None
    return RelayAddress(urls, options["source"], options.get("token"), patience_s, authority)


def _table(options: Mapping[str, str]) -> TableId:
    if not options.get("table"):
        raise ConfigError(
            'format("headrace") wants option table.',
            next_step="name one: .option('table', 'schema.name').",
        )
    return TableId.parse(options["table"])


def _filter(text: str | None, table: TableId) -> Filter | None:
    """Return the filter that is asked for, which speaks of the table alone."""
    if text is None:
        return None
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict) or "tables" in said:
        raise ConfigError(
            'format("headrace") wants in option filter a JSON object with columns, partition or where.',
            next_step="correct the option; docs/relay_protocol.md describes filters.",
        )
    return parse_filter({**said, "tables": [str(table)]})
