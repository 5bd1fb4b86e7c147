"""The ports of a warehouse: how to reach it, and one connection to it.

A `Warehouse` is a value that travels to Spark's tasks; secrets in it stay out of its ``repr``. What goes wrong in a
session is an error of the driver below; `Warehouse.refusal` says what it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.lake.sql.dialect import Dialect
from headrace.model.schema import TableId, TableSchema

__all__ = ["ServerSession", "ServerWarehouse", "Session", "Warehouse", "told"]


class Session(Protocol):
    """One connection, used from one thread."""

    def run(self, text: str, *, own: bool = False) -> int:
        """Carry out a statement; return how many rows it changed.

        Args:
            text: in PostgreSQL's words.
            own: whether it is in the dialect's own instead.
        """
        ...

    def rows(self, text: str) -> Sequence[tuple[Any, ...]]:
        """Return the few rows that a query has; it is in the dialect's own words."""
        ...

    def transaction(self) -> AbstractContextManager[object]:
        """Return a block that is committed at its end, or leaves nothing behind."""
        ...

    def stage(self, name: str, rows: pa.Table) -> None:
        """Make a staging table of rows; see `headrace.lake.sql.staged`."""
        ...

    def unstage(self, name: str) -> None:
        """Remove a staging table, with the transaction that read it if there is one."""
        ...

    def read(self, place: TableId, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a table, in the columns of the version it has."""
        ...


class Warehouse(Protocol):
    """Where a warehouse is, and how it speaks."""

    @property
    def dialect(self) -> Dialect:
        """Its SQL."""
        ...

    def place(self, table: TableId) -> TableId:
        """Return schema and name of a table's target."""
        ...

    def opened(self, *, read_only: bool = False) -> AbstractContextManager[Session]:
        """Open a session and close it afterwards; a read-only one sees one moment of all tables."""
        ...

    def refusal(self, error: Exception, what: str) -> HeadraceError:
        """Return what an error of the driver means.

        Args:
            error: of the driver. What it says may hold values of rows.
            what: begins the message: the object that was worked on.
        """
        ...


class ServerSession(Session, Protocol):
    """A session that outlives a batch."""

    def is_alive(self) -> bool:
        """Return whether the server still answers."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class ServerWarehouse(Warehouse, Protocol):
    """A warehouse behind a server, whose staging tables other sessions see."""

    def connect(self, *, read_only: bool = False) -> ServerSession:
        """Open a session that the caller closes; a read-only one is a single transaction, which sees one moment."""
        ...


@contextmanager
def told(warehouse: Warehouse, table: TableId | None = None) -> Iterator[None]:
    """Turn what the driver raises inside the block into errors of ours that name a table, or the warehouse."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        what = "The warehouse" if table is None else f"The target table of {table}"
        raise warehouse.refusal(error, what) from error
