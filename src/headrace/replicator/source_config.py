"""The sections of databases: where changes come from when no relay stands between."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from headrace.replicator.section import Section
from headrace.replicator.units import Bytes

__all__ = [
    "ColumnsConfig",
    "DatabaseConfig",
    "FilesConfig",
    "Identifier",
    "MysqlConfig",
    "Pattern",
    "PostgresConfig",
    "TriggerConfig",
    "mysql_url",
    "postgres_url",
]

NAME = r"^[a-z][a-z0-9_-]{0,39}$"
# The first point ends the schema's name; a table's own may hold more.
Pattern = Annotated[str, Field(pattern=r"^[^.]+\.[\s\S]+$")]
Identifier = Annotated[str, Field(min_length=1, max_length=63)]
_Table = Annotated[str, Field(pattern=r"^[^.*?]+\.[^*?]+$")]
_SlotName = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,63}$")]


class ColumnsConfig(Section):
    """Which columns of one table are captured; the columns of its key always are.

    Attributes:
        include: the only columns to take.
        exclude: columns to leave out.
    """

    include: tuple[Identifier, ...] = ()
    exclude: tuple[Identifier, ...] = ()

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.include) == bool(self.exclude):
            raise ValueError("either include or exclude, with at least one column")
        return self


class PostgresConfig(Section):
    """Where changes come from.

    Attributes:
        type: the kind of source.
        url: libpq URL; put the password into the environment and write ``${env:NAME}``.
        tables: patterns ``schema.table``; ``*`` and ``?`` stand for any characters.
        exclude: patterns of tables to leave out, applied after ``tables``.
        columns: by ``schema.table``, tables of which some columns are left out.
        text_columns: by ``schema.table``, columns that are kept as the server renders them, whatever their type.
        slot: an existing replication slot; headrace makes and names its own when absent.
        publication: an existing publication; headrace makes and names its own when absent.
        watermark: ``message`` (needs no table at the source) or ``table``.
        ddl: ``catalog`` (needs no more rights), or ``trigger`` for the exact place of migrations.
        log_format: ``auto``: the log comes in binary where that is known for every captured column; or ``text``.
        heartbeat_s: how often an idle database is moved on.
        on_lost_slot: ``stop`` and wait for ``headrace resync``, or ``recover`` as if it had been given.
        failover: let our own slot be kept on standbys too (PostgreSQL 17 and newer).
        slow_query_s: a query for chunks or the catalog that takes longer is counted, and said in the log.
        large_value: from this size on a value is counted, and its column said in the log.
    """

    type: Literal["postgres"]
    url: SecretStr
    tables: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    exclude: tuple[Pattern, ...] = ()
    columns: dict[_Table, ColumnsConfig] = Field(default={})
    text_columns: dict[_Table, Annotated[tuple[Identifier, ...], Field(min_length=1)]] = Field(
        default={}
    )
    slot: _SlotName | None = None
    publication: Identifier | None = None
    watermark: Literal["message", "table"] = "message"
    ddl: Literal["catalog", "trigger"] = "catalog"
    log_format: Literal["auto", "text"] = "auto"
    heartbeat_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    on_lost_slot: Literal["stop", "recover"] = "stop"
    failover: bool = False
    slow_query_s: Annotated[float, Field(gt=0)] = 5.0
    large_value: Annotated[Bytes, Field(ge=1024)] = 2**20

    @field_validator("url")
    @classmethod
    def _is_a_postgres_url(cls, value: SecretStr) -> SecretStr:
        return postgres_url(value)


class MysqlConfig(Section):
    """Where changes come from: a MariaDB server.

    Attributes:
        type: the kind of source, one for servers of MySQL and of MariaDB.
        url: ``mysql://user@host:port/``; put the password into the environment and write ``${env:NAME}``.
        tables: patterns ``database.table``; ``*`` and ``?`` stand for any characters.
        exclude: patterns of tables to leave out, applied after ``tables``.
        zero_dates: dates that are no days stop the capture, or are null.
        heartbeat_s: after so much silence the server says that it is there.
        on_lost_slot: ``stop`` and wait for ``headrace resync``, or ``recover`` as if it had been given.
        slow_query_s: a query for chunks or the catalog that takes longer is counted, and said in the log.
        large_value: from this size on a value is counted, and its column said in the log.
    """

    type: Literal["mysql"]
    url: SecretStr
    tables: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    exclude: tuple[Pattern, ...] = ()
    zero_dates: Literal["refuse", "null"] = "refuse"
    heartbeat_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    on_lost_slot: Literal["stop", "recover"] = "stop"
    slow_query_s: Annotated[float, Field(gt=0)] = 5.0
    large_value: Annotated[Bytes, Field(ge=1024)] = 2**20

    @field_validator("url")
    @classmethod
    def _is_a_mysql_url(cls, value: SecretStr) -> SecretStr:
        return mysql_url(value)


class TriggerConfig(Section):
    """Where changes come from: a database whose log is not to be read; triggers keep its changes in tables.

    Attributes:
        type: the kind of source.
        url: libpq URL, or ``mysql://user@host:port/``; put the password into the environment and write ``${env:NAME}``.
        tables: patterns ``schema.table``; ``*`` and ``?`` stand for any characters.
        exclude: patterns of tables to leave out, applied after ``tables``.
        text_columns: by ``schema.table``, columns that PostgreSQL's rendering is kept of, whatever their type.
        zero_dates: dates of MySQL that are no days stop the capture, or are null.
        queues: patterns of tables into which events are inserted; what else becomes of their rows is no change.
        queue_rows: whether the rows of queues are kept, or removed when they are delivered.
        start: where a replicator without state begins to read changes: ``now``, or at the ``oldest`` that is kept.
        poll_s: longest time between two looks for changes while none come.
        keep_hours: how long changes stay that every replicator has read.
        abandon_hours: a replicator that was away for so long is waited for no more: its changes may go.
        on_lost_slot: ``stop`` and wait for ``headrace resync``, or ``recover`` as if it had been given.
        slow_query_s: a query for changes, chunks or the catalog that takes longer is counted, and said in the log.
        large_value: from this size on a value is counted, and its column said in the log.
    """

    type: Literal["trigger"]
    url: SecretStr
    tables: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    exclude: tuple[Pattern, ...] = ()
    text_columns: dict[_Table, Annotated[tuple[Identifier, ...], Field(min_length=1)]] = Field(
        default={}
    )
    zero_dates: Literal["refuse", "null"] = "refuse"
    queues: tuple[Pattern, ...] = ()
    queue_rows: Literal["keep", "delete"] = "keep"
    start: Literal["now", "oldest"] = "now"
    poll_s: Annotated[float, Field(gt=0, le=60)] = 0.25
    keep_hours: Annotated[float, Field(ge=0)] = 24.0
    abandon_hours: Annotated[float, Field(gt=0)] = 168.0
    on_lost_slot: Literal["stop", "recover"] = "stop"
    slow_query_s: Annotated[float, Field(gt=0)] = 5.0
    large_value: Annotated[Bytes, Field(ge=1024)] = 2**20

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, value: SecretStr) -> SecretStr:
        return value if _is_mysql(value) else postgres_url(value)

    @property
    def on_mysql(self) -> bool:
        """Whether the server is MySQL or MariaDB."""
        return _is_mysql(self.url)

    @model_validator(mode="after")
    def _asks_what_its_server_has(self) -> Self:
        if self.on_mysql and self.text_columns:
            raise ValueError("text_columns for PostgreSQL alone")
        if not self.on_mysql and self.zero_dates != "refuse":
            raise ValueError("zero_dates for MySQL or MariaDB alone")
        return self

    @model_validator(mode="after")
    def _waits_as_long_as_it_keeps(self) -> Self:
        if self.abandon_hours < self.keep_hours:
            raise ValueError("abandon_hours that are at least keep_hours")
        return self


class FilesConfig(Section):
    """Where changes come from: a folder of files of changes, which another capture or product writes.

    Attributes:
        type: the kind of source.
        path: the folder; relative to the configuration's own.
        tables: patterns ``schema.table``; ``*`` and ``?`` stand for any characters.
        exclude: patterns of tables to leave out, applied after ``tables``.
        poll_s: time between two looks for more while nothing comes.
        on_lost_slot: ``stop``, when files are gone that were not read; they cannot be asked for again.
        slow_query_s: a look at the folder's tables that takes longer is counted, and said in the log.
        large_value: from this size on a value is counted, and its column said in the log.
    """

    type: Literal["files"]
    path: Path
    tables: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    exclude: tuple[Pattern, ...] = ()
    poll_s: Annotated[float, Field(gt=0, le=60)] = 0.25
    on_lost_slot: Literal["stop"] = "stop"
    slow_query_s: Annotated[float, Field(gt=0)] = 5.0
    large_value: Annotated[Bytes, Field(ge=1024)] = 2**20


DatabaseConfig = PostgresConfig | MysqlConfig | TriggerConfig | FilesConfig
"""Any database, whichever way its changes are read."""


def mysql_url(value: SecretStr) -> SecretStr:
    """Return a URL of a MySQL or MariaDB server.

    Raises:
        ValueError: it is none.
    """
    if not _is_mysql(value):
        raise ValueError("a URL such as mysql://user@host:3306/")
    return value


def postgres_url(value: SecretStr) -> SecretStr:
    """Return a URL of libpq.

    Raises:
        ValueError: it is none.
    """
    try:
        parts = urlsplit(value.get_secret_value())
        good = parts.scheme in ("postgresql", "postgres")
    except ValueError:
        good = False
    if not good:
        raise ValueError("a URL such as postgresql://user@host:5432/database")
    return value


def _is_mysql(value: SecretStr) -> bool:
    try:
        parts = urlsplit(value.get_secret_value())
        return bool(parts.scheme in ("mysql", "mariadb") and parts.hostname and parts.username)
    except ValueError:
        return False
