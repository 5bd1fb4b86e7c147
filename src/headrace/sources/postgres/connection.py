"""Connections: libpq through psycopg's thin layer, text cells in and out, every wait with a deadline.

psycopg's own type adaptation is not used: cells stay the text that the server rendered, so that a chunk's
cell and the log's cell of one value are the same bytes.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import psycopg
from psycopg import pq

from headrace.errors import HeadraceError, SourceUnavailable
from headrace.sources.base import PASSWORD_CHANGED
from headrace.sources.postgres.settings import PostgresSettings

__all__ = [
    "LONGEST_S",
    "QueryFailed",
    "Row",
    "Session",
    "connect",
    "quote",
    "quote_literal",
    "wait_socket",
]

Row = tuple[str | None, ...]

RENDERING = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "lc_monetary": "C",
    "search_path": "pg_catalog",
    # Rows that a policy hides must be an error, never silently absent.
    "row_security": "off",
}
"""Session settings that decide how values look as text; equal on every connection."""

_FREEDOM = {
    # What an administrator set for people is none of a capture's: a chunk takes as long as it does, publication and
    # marks are written.
    "statement_timeout": "0",
    "default_transaction_read_only": "off",
    # Nothing that we commit waits for a standby: rows are captured before standbys have them.
    "synchronous_commit": "local",
    # A connection that waits for the next chunk, or for a dump to be written, is not a forgotten one.
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
_LIMITED_VERSION = 17
"""From here on a whole transaction may have a limit, ``transaction_timeout``."""

LONGEST_S = 7 * 86_400.0
"""Where there is no limit: a week."""

_KEEPALIVES = {
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}

# SQLSTATE classes whose messages may quote values of rows or parameters.
_QUOTING_CLASSES = ("22", "23")

# Cancelled or timed out, deadlock or serialisation, resources, lock timeout: the next try may succeed.
_PASSING = ("57014", "40", "53", "55P03")


class QueryFailed(HeadraceError):
    """The server refused a statement; callers turn it into an error that says what was wanted.

    Attributes:
        sqlstate: the server's code.
    """

    def __init__(self, what: str, sqlstate: str, text: str) -> None:
        quiet = sqlstate[:2] in _QUOTING_CLASSES
        super().__init__(
            f"PostgreSQL refused {what} ({sqlstate}{'' if quiet else ': ' + text}).",
            next_step="see the server's log for the statement.",
        )
        self.sqlstate = sqlstate

    def __reduce__(self) -> tuple[type[HeadraceError], tuple[str]]:
        return HeadraceError, (self.message,)


def connect(settings: PostgresSettings, *, replication: bool = False) -> Session:
    """Open a connection with the rendering settings.

    Raises:
        SourceUnavailable: when the server cannot be reached or refuses us; names host, database and role.
    """
    options = {
        option.keyword.decode(): option.val.decode()
        for option in pq.Conninfo.parse(settings.url.encode())
        if option.val is not None
    }
    options = {"fallback_application_name": f"headrace {settings.name}", **_KEEPALIVES, **options}
    options["client_encoding"] = "UTF8"
    # Only where it is asked for: it cannot be told from a plain connection afterwards.
    options.setdefault("gssencmode", "disable")
    if replication:
        options["replication"] = "database"
    text = " ".join(f"{name}={_escape(value)}" for name, value in options.items())
    connection = pq.PGconn.connect_start(text.encode())
    deadline = time.monotonic() + settings.connect_timeout_s
    try:
        _finish_connecting(connection, deadline)
    except BaseException:
        connection.finish()
        raise
    connection.nonblocking = 1
    plain = options["gssencmode"] == "disable" and not connection.ssl_in_use
    session = Session(connection, settings.statement_timeout_s, encrypted=not plain)
    try:
        _set(session)
    except BaseException:
        session.close()
        raise
    return session


def _set(session: Session) -> None:
    """Set what we rely on: libpq sends PGTZ and PGDATESTYLE behind every option, so they would win over those."""
    wanted = RENDERING | _FREEDOM
    if session.version >= _LIMITED_VERSION:
        wanted["transaction_timeout"] = "0"
    # One statement: before 15 a replication connection takes no second one behind a semicolon.
    calls = (f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in wanted.items())
    session.result(f"SELECT {', '.join(calls)}")


def _finish_connecting(connection: pq.abc.PGconn, deadline: float) -> None:
    while True:
        if connection.status == pq.ConnStatus.BAD:
            raise _refused(connection)
        status = connection.connect_poll()
        if status == pq.PollingStatus.OK:
            return
        if status == pq.PollingStatus.FAILED:
            raise _refused(connection)
        writing = status == pq.PollingStatus.WRITING
        if not wait_socket(connection.socket, deadline, writing=writing):
            raise SourceUnavailable(
                "PostgreSQL did not answer while connecting.",
                next_step="check host, port and firewall; the connection is tried again.",
            )


def _refused(connection: pq.abc.PGconn) -> SourceUnavailable:
    text = _one_line(connection.get_error_message()) or "no reason given"
    return SourceUnavailable(
        f"PostgreSQL cannot be reached: {text}.",
        next_step="check that the server runs and that host, database, role and password are right."
        + (f" {PASSWORD_CHANGED}" if connection.used_password else ""),
    )


def _escape(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def wait_socket(
    descriptor: int, deadline: float, *, writing: bool = False, reading: bool = True
) -> bool:
    """Wait until the socket is ready; return False when the deadline passed first."""
    poller = select.poll()
    wanted = (select.POLLOUT if writing else 0) | (select.POLLIN if reading and not writing else 0)
    poller.register(descriptor, wanted)
    left = max(0.0, deadline - time.monotonic())
    return bool(poller.poll(left * 1000))


class Session:
    """One connection. Not for two threads at once.

    Attributes:
        encrypted: whether only libpq can read what goes over it.
    """

    def __init__(
        self, connection: pq.abc.PGconn, timeout_s: float, *, encrypted: bool = True
    ) -> None:
        self.pgconn = connection
        self.encrypted = encrypted
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def version(self) -> int:
        """The server's major version."""
        return self.pgconn.server_version // 10_000

    @property
    def usable(self) -> bool:
        """Whether statements may still be sent."""
        return self.pgconn.status == pq.ConnStatus.OK

    @property
    def ended(self) -> bool:
        """Whether the server has ended the connection while nothing was asked of it."""
        try:
            while wait_socket(self.pgconn.socket, 0.0):
                self.pgconn.consume_input()
        except psycopg.Error:
            return True
        return not self.usable

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction block is open."""
        return self.pgconn.transaction_status in (
            pq.TransactionStatus.INTRANS,
            pq.TransactionStatus.INERROR,
            pq.TransactionStatus.ACTIVE,
        )

    def rows(self, sql: str, *parameters: str | None, timeout_s: float | None = None) -> list[Row]:
        """Run one statement and return its rows as text."""
        result = self.result(sql, *parameters, timeout_s=timeout_s)
        columns = range(result.nfields)
        return [
            tuple(_text(result.get_value(row, column)) for column in columns)
            for row in range(result.ntuples)
        ]

    def value(self, sql: str, *parameters: str | None) -> str:
        """Run one statement and return the one non-null cell it yields."""
        rows = self.rows(sql, *parameters)
        if len(rows) != 1 or rows[0][0] is None:
            raise QueryFailed("a query", "02000", "it gave no value")
        return rows[0][0]

    def cells(self, sql: str, *parameters: str | None) -> list[list[bytes | None]]:
        """Run one select and return its rows as the bytes that the server rendered; no time limit."""
        result = self.result(sql, *parameters, timeout_s=float("inf"), single=True)
        columns = range(result.nfields)
        get = result.get_value
        return [[get(row, column) for column in columns] for row in range(result.ntuples)]

    def run(self, sql: str, *parameters: str | None, timeout_s: float | None = None) -> str:
        """Run one statement and return its command tag."""
        tag = self.result(sql, *parameters, timeout_s=timeout_s).command_status
        return (tag or b"").decode()

    def result(
        self,
        sql: str,
        *parameters: str | None,
        timeout_s: float | None = None,
        single: bool = False,
    ) -> pq.abc.PGresult:
        """Run one statement.

        Args:
            sql: the statement.
            parameters: values of its ``$1`` and so on.
            timeout_s: how long to wait for the answer; as for all statements when None.
            single: let the server refuse a text of several statements, as it does anyway with parameters.

        Raises:
            QueryFailed: the server refused it.
            SourceUnavailable: the connection is gone, or the answer did not come in time.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + min(limit, LONGEST_S)
        try:
            self._send(sql, parameters, single=single)
            result = self.receive(deadline)
        except psycopg.Error as error:
            raise self.lost() from error
        status = result.status
        if status in (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE):
            raise self.failure(result, sql)
        return result

    def _send(self, sql: str, parameters: Sequence[str | None], *, single: bool) -> None:
        if parameters or single:
            values = [None if p is None else p.encode() for p in parameters]
            self.pgconn.send_query_params(sql.encode(), values)
        else:
            self.pgconn.send_query(sql.encode())

    def receive(self, deadline: float) -> pq.abc.PGresult:
        """Return the last result of what was sent; copy mode ends the wait at once."""
        self.flush(deadline)
        last: pq.abc.PGresult | None = None
        while True:
            while self.pgconn.is_busy():
                if not wait_socket(self.pgconn.socket, deadline):
                    self.close()
                    raise SourceUnavailable(
                        "PostgreSQL did not answer a statement in time.",
                        next_step="look for locks and load at the server; it is tried again.",
                    )
                self.pgconn.consume_input()
            result = self.pgconn.get_result()
            if result is None:
                break
            failed = last is not None and last.status == pq.ExecStatus.FATAL_ERROR
            last = last if failed else result
            if result.status in (pq.ExecStatus.COPY_BOTH, pq.ExecStatus.COPY_OUT):
                break
        if last is None:
            raise self.lost()
        return last

    def flush(self, deadline: float) -> None:
        """Send what libpq still holds."""
        while self.pgconn.flush():
            if not wait_socket(self.pgconn.socket, deadline, writing=True):
                raise SourceUnavailable(
                    "PostgreSQL does not take what we send.",
                    next_step="look at the load of the server and the network; it is tried again.",
                )
            self.pgconn.consume_input()

    def failure(self, result: pq.abc.PGresult, sql: str) -> HeadraceError:
        """Return what a failed result means."""
        sqlstate = _text(result.error_field(pq.DiagnosticField.SQLSTATE)) or ""
        text = _text(result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)) or ""
        return self.refused(sqlstate, text, sql)

    def refused(self, sqlstate: str, text: str, sql: str) -> HeadraceError:
        """Return what the server's error to a statement means."""
        # Class 57P and 08: an administrator, a crash or the network ended the connection.
        if not self.usable or sqlstate[:3] == "57P" or sqlstate[:2] == "08" or not sqlstate:
            return self.lost(text)
        if sqlstate.startswith(_PASSING):
            return SourceUnavailable(
                f"PostgreSQL gave up a statement ({sqlstate}: {text}).",
                next_step="look for load, locks and time limits at the server; it is tried again.",
            )
        return QueryFailed(sql.split(None, 1)[0].upper(), sqlstate, text)

    def lost(self, text: str = "") -> SourceUnavailable:
        """Return the error for a connection that is gone."""
        reason = _one_line(text or self.pgconn.get_error_message()) or "closed"
        return SourceUnavailable(
            f"The connection to PostgreSQL is gone: {reason}.",
            next_step="nothing to do while the server comes back; it is tried again.",
        )

    def close(self) -> None:
        """Close the connection."""
        self.pgconn.finish()


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def quote(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Return a text as an SQL literal, whatever ``standard_conforming_strings`` says."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return (" E'" if "\\" in text else "'") + escaped + "'"
