"""What a MySQL or MariaDB source is told."""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass, field
from typing import Literal

from headrace.model.mysql_address import Address
from headrace.model.schema import TableId
from headrace.sources.patterns import TablePatterns

__all__ = ["MysqlSettings", "ZeroDates"]

ZeroDates = Literal["refuse", "null"]
"""What becomes of a date that is no day, such as ``0000-00-00``: the capture stops, or it is null."""

_HIDDEN = frozenset({"mysql", "information_schema", "performance_schema", "sys", "headrace"})


@dataclass(frozen=True, slots=True)
class MysqlSettings:
    """Everything that a connection and the log are told.

    Attributes:
        url: connection URL; never shown.
        tables: patterns of captured tables, such as ``shop.*``.
        exclude: patterns of tables that are not, whatever ``tables`` says.
        name: of the pipeline; its watermarks have a row of that name.
        connect_timeout_s: limit for a connection to be made.
        statement_timeout_s: limit for a catalog query or a mark; selects of rows have none.
        write_timeout_s: how long the server waits for us to take more of the log before it cuts the connection.
        heartbeat_s: after so much silence the server says that it is there.
        zero_dates: what becomes of a date that is no day.
    """

    url: str = field(repr=False)
    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    name: str = "headrace"
    connect_timeout_s: float = 15.0
    statement_timeout_s: float = 60.0
    write_timeout_s: int = 600
    heartbeat_s: float = 5.0
    zero_dates: ZeroDates = "refuse"

    @property
    def address(self) -> Address:
        """Return where the server is.

        Raises:
            ConfigError: the URL does not read.
        """
        return Address.parse(self.url)

    @property
    def server_id(self) -> int:
        """The number under which we are a replica: by our name, above those that people give."""
        return zlib.crc32(self.name.encode()) | 1 << 31

    @property
    def asking_id(self) -> int:
        """The number under which we look into the log beside the reader, which would be thrown out by its own."""
        return self.server_id ^ 1

    @property
    def selection(self) -> str:
        """What tells these patterns from others."""
        return f"{zlib.crc32(repr((self.tables, self.exclude)).encode()):08x}"

    def selects(self, table: TableId) -> bool:
        """Return whether a table is captured; those of the server and our own never are."""
        if table.schema in _HIDDEN:
            return False
        include, exclude = _patterns(self.tables), _patterns(self.exclude)
        return include.match(table) and not exclude.match(table)


@functools.cache
def _patterns(texts: tuple[str, ...]) -> TablePatterns:
    return TablePatterns(texts)
