"""The database of a control plane: SQLite in a file, or PostgreSQL, behind one way to begin a transaction.

In: a URL. Out: transactions that are whole or not there, and errors of our own. A transaction on SQLite has the file
to itself from its beginning; on PostgreSQL it may not stand still for long, so that a frozen process holds nobody up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, event, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from headrace.errors import ConfigError, StateError
from headrace.replicator.control.migrations import MIGRATIONS, Migration, migrate
from headrace.state.write_ahead import write_ahead

__all__ = ["Database"]

_POSTGRES_OPTIONS = (
    "-c idle_in_transaction_session_timeout=5000 -c lock_timeout=10000 -c statement_timeout=20000"
)
_WAIT_S = 10.0


class Database:
    """Opens a database, and brings its tables up to date.

    Args:
        url: ``sqlite:///path`` or ``postgresql://…``; as a value where the path is not ours to choose.
        migrations: the steps that lead to the tables.

    Raises:
        ConfigError: the URL is neither.
        StateError: the database cannot be used.
        StateNewer: a newer headrace has written it.
    """

    def __init__(self, url: str | URL, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        parsed = _parsed(url)
        self.is_sqlite = parsed.drivername == "sqlite"
        given: dict[str, Any] = {"timeout": _WAIT_S}
        if not self.is_sqlite:
            options = f"{parsed.query.get('options', '')} {_POSTGRES_OPTIONS}".strip()
            given = {"connect_timeout": 5, "options": options}
        self.name = (
            f"{parsed.drivername.partition('+')[0]} database {parsed.database or ''}".strip()
        )
        self._engine = create_engine(parsed, connect_args=given, pool_pre_ping=True)
        if self.is_sqlite:
            event.listen(self._engine, "connect", _prepare_sqlite)
        try:
            with self.begin() as connection:
                migrate(connection, migrations)
        except BaseException:
            self._engine.dispose()
            raise

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Run a transaction that may write; it is durable when the block ends, and undone when it fails.

        Raises:
            StateError: the database does not answer, or refuses.
        """
        try:
            with self._engine.begin() as connection:
                if self.is_sqlite:
                    # Not when the first row is written: what was read before would be older than that.
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
        except SQLAlchemyError as error:
            raise self._refusal(error) from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Run a transaction that only reads, and waits for nobody who writes.

        Raises:
            StateError: the database does not answer, or refuses.
        """
        try:
            with self._engine.begin() as connection:
                if self.is_sqlite:
                    connection.exec_driver_sql("BEGIN")
                yield connection
        except SQLAlchemyError as error:
            raise self._refusal(error) from error

    def now_s(self, connection: Connection) -> float:
        """Return seconds since 1970 on the clock that all who share the database share."""
        if self.is_sqlite:
            return time.time()
        value = connection.execute(text("SELECT extract(epoch FROM clock_timestamp())::float8"))
        return float(value.scalar_one())

    def close(self) -> None:
        """Release the connections."""
        self._engine.dispose()

    def _refusal(self, error: SQLAlchemyError) -> StateError:
        # The driver's own message may quote the statement and its values.
        kind = type(error.orig if isinstance(error, DBAPIError) and error.orig else error).__name__
        return StateError(
            f"The control plane's {self.name} cannot be used ({kind}).",
            next_step="see that it runs, may be written and has room; running replicators go on meanwhile.",
        )


def _parsed(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is not None and parsed.drivername == "sqlite" and parsed.database:
        return parsed
    if parsed is not None and parsed.drivername in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise ConfigError(
        "The control plane's database: expected a PostgreSQL URL.",
        next_step="write postgresql://user@host/db, or leave it out for a file in the state folder.",
    )


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # Transactions begin where we say so; the driver's own habit leaves the making of tables outside.
    connection.isolation_level = None
    cursor = connection.cursor()
    write_ahead(cursor, _WAIT_S)
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
