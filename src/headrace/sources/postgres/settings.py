"""What a PostgreSQL source is told, and which tables that means."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import pq

from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.sources.patterns import TablePatterns

__all__ = ["MARKS_SCHEMA", "MARKS_TABLE", "ColumnChoice", "PostgresSettings", "TableFilter"]

MARKS_SCHEMA = "headrace"
"""Namespace of what lies in the source database for our own use; never captured."""
MARKS_TABLE = TableId(MARKS_SCHEMA, "watermarks")
"""The one-row table of ``table`` watermarks."""

_HIDDEN_SCHEMAS = re.compile(r"pg_.*|information_schema|" + MARKS_SCHEMA)
_NAME_LIMIT = 63
_HASH_DIGITS = 8


class TableFilter:
    """Patterns like ``public.*`` or ``shop.order_?``; a name without a dot is looked for in ``public``.

    Args:
        include: a table is captured when one of these matches…
        exclude: …and none of these does.
    """

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self._include = TablePatterns(include)
        self._exclude = TablePatterns(exclude)

    def selects(self, table: TableId) -> bool:
        """Return whether the table is to be captured; system schemas never are."""
        if _HIDDEN_SCHEMAS.fullmatch(table.schema):
            return False
        return self._include.match(table) and not self._exclude.match(table)

    def selects_schema(self, schema: str) -> bool:
        """Return whether a table that is to be captured may lie in a schema."""
        if _HIDDEN_SCHEMAS.fullmatch(schema):
            return False
        return self._include.match_schema(schema)


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Which columns of one table are captured; the columns of its key always are.

    Attributes:
        table: the table.
        include: the only columns to take; empty: all but ``exclude``.
        exclude: columns to leave out.
    """

    table: TableId
    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()

    def keeps(self, name: str) -> bool:
        """Return whether a column that is not in the key is captured."""
        return name in self.include if self.include else name not in self.exclude


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """Everything a `PostgresSource` is told.

    Attributes:
        url: connection URL or ``key=value`` string; never shown.
        tables: patterns of captured tables.
        exclude: patterns of tables that are not, whatever ``tables`` says.
        slot: an existing slot, never created or dropped by us; None: our own.
        publication: an existing publication, never created, altered or dropped by us; None: our own.
        watermark: how marks travel.
        name: of the pipeline; our own slot and publication are called after it.
        connect_timeout_s: limit for a connection to be made.
        statement_timeout_s: limit for a catalog query or a mark; selects of rows have none.
        slot_timeout_s: limit for the creation of a slot, which waits for transactions that are open.
        slot_busy_s: how long a slot that another connection still reads is waited for.
        feedback_s: longest silence towards the server, whatever its own limit.
        chunk_bytes: a chunk ends soon after the row that reaches this size, however many rows were asked for.
        heartbeat_s: after so much silence in the log we write a small message of our own.
        failover: make our own slot one that standbys keep in step (from 17 on; before, it is left out).
        block_rows: rows after which a block is handed over, in the middle of a transaction if need be.
        block_bytes: the same in bytes of the stream; wide rows take longer in
            more than a processor's cache holds (ADR 0076).
        block_interval_s: least time between two blocks while the log does not pause; less is fresher and costs
            capture more.
        spool_folder: where large open transactions wait for their commit; the system's temporary folder when None.
        spool_memory_bytes: how much of them may stay in memory.
        columns: tables of which some columns are left out.
        ddl: what tells of migrations besides the log's own descriptions: looks at the ``catalog``, or also an
            event ``trigger``, which knows their exact place.
        text_columns: columns that are kept as the server renders them, whatever their type.
        log_format: ``auto``: the log comes in binary where the binary form of every captured column is known.
        summed: changes of one transaction come whole, and in no certain order: what becomes of a key is their sum.
    """

    url: str = field(repr=False)
    tables: tuple[str, ...] = ("public.*",)
    exclude: tuple[str, ...] = ()
    slot: str | None = None
    publication: str | None = None
    watermark: Literal["message", "table"] = "message"
    name: str = "headrace"
    connect_timeout_s: float = 15.0
    statement_timeout_s: float = 60.0
    slot_timeout_s: float = 300.0
    slot_busy_s: float = 5.0
    feedback_s: float = 10.0
    chunk_bytes: int = 16 << 20
    heartbeat_s: float = 10.0
    failover: bool = False
    block_rows: int = 65_536
    block_bytes: int = 4 << 20
    block_interval_s: float = 0.001
    spool_folder: Path | None = None
    spool_memory_bytes: int = 32 << 20
    columns: tuple[ColumnChoice, ...] = ()
    ddl: Literal["catalog", "trigger"] = "catalog"
    text_columns: Mapping[TableId, frozenset[str]] = field(default_factory=dict)
    log_format: Literal["auto", "text"] = "auto"
    summed: bool = False

    def validate(self) -> None:
        """Check what can be checked without the server.

        Raises:
            ConfigError: names the field.
        """
        try:
            options = pq.Conninfo.parse(self.url.encode())
        except psycopg.Error:
            # The library's own text may quote a part of the URL, password included.
            raise _bad_url() from None
        # An @ or / in a password that was not escaped puts the rest of it into other fields, which
        # errors may quote.
        spilled = any(o.keyword in (b"host", b"dbname") and b"@" in (o.val or b"") for o in options)
        ports = [o.val for o in options if o.keyword == b"port" and o.val]
        if spilled or not all(p.replace(b",", b"").isdigit() for p in ports):
            raise _bad_url()
        if self.watermark not in ("message", "table"):
            raise ConfigError(
                f"source.watermark is {self.watermark!r}.", next_step="use message or table."
            )
        if self.ddl not in ("catalog", "trigger"):
            raise ConfigError(f"source.ddl is {self.ddl!r}.", next_step="use catalog or trigger.")
        if self.log_format not in ("auto", "text"):
            raise ConfigError(
                f"source.log_format is {self.log_format!r}.", next_step="use auto or text."
            )
        if not self.tables:
            raise ConfigError(
                "source.tables is empty.", next_step="name a table or a pattern such as public.*"
            )
        for label, value in (("slot", self.slot), ("publication", self.publication)):
            if value is not None and not 0 < len(value.encode()) <= _NAME_LIMIT:
                raise ConfigError(
                    f"source.{label} has {len(value.encode())} bytes.",
                    next_step=f"use 1 to {_NAME_LIMIT} bytes.",
                )

    @property
    def own_name(self) -> str:
        """Name of what we create at the source: lower case, only what a slot's name may hold.

        A name that had to be changed for that ends with a hash of what it was: no two names meet in one.
        """
        plain = re.sub(r"[^a-z0-9_]+", "_", self.name.lower()).strip("_") or "source"
        own = plain if plain == "headrace" else f"headrace_{plain}"
        if plain == self.name and len(own) <= _NAME_LIMIT:
            return own
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:_HASH_DIGITS]
        return f"{own[: _NAME_LIMIT - _HASH_DIGITS - 1]}_{digest}"

    def columns_of(self, table: TableId) -> ColumnChoice | None:
        """Return which columns of a table are captured, None for all."""
        return next((choice for choice in self.columns if choice.table == table), None)

    def text_of(self, table: TableId) -> frozenset[str]:
        """Return the columns of a table that are kept as text."""
        return self.text_columns.get(table, frozenset())

    @property
    def slot_name(self) -> str:
        """The slot that is read."""
        return self.slot if self.slot is not None else self.own_name

    @property
    def publication_name(self) -> str:
        """The publication that is read."""
        return self.publication if self.publication is not None else self.own_name

    @property
    def mark_prefix(self) -> str:
        """Prefix of our logical messages: pipelines on one database do not read each other's."""
        return f"headrace/{self.slot_name}"

    @property
    def filter(self) -> TableFilter:
        """Return which tables are captured."""
        return _filter(self.tables, self.exclude)


@functools.cache
def _filter(include: tuple[str, ...], exclude: tuple[str, ...]) -> TableFilter:
    return TableFilter(include, exclude)


def _bad_url() -> ConfigError:
    return ConfigError(
        "source.url is not a PostgreSQL connection URL.",
        next_step="write postgresql://user@host:port/database, with special characters escaped (%40 for @).",
    )
