"""Connections: PyMySQL does login and encryption; cells stay the bytes that the server rendered."""

from __future__ import annotations

import contextlib
import io
import socket
import struct
from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import pymysql
from pymysql.constants import CLIENT, COMMAND
from pymysql.cursors import SSCursor
from pymysql.protocol import FieldDescriptorPacket

from headrace.errors import HeadraceError, SourceError, SourceUnavailable
from headrace.sources.base import PASSWORD_CHANGED
from headrace.sources.mysql.packets import PacketReader, is_end
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.wire import Wire, wire_of

__all__ = ["Cells", "QueryFailed", "Session", "connect", "quote", "quote_literal"]

Cells = tuple[bytes | None, ...]

SESSION = (
    "SET NAMES utf8mb4",
    # How values look as text, and what a snapshot is, whatever the server's own settings.
    "SET SESSION sql_mode = '', time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    # Of the first: a key that MySQL made by itself is in its log. Of the last: a list cut short would be but a warning.
    (
        "SET SESSION /*!80030 show_gipk_in_create_table_and_information_schema = ON, */ "
        "sql_select_limit = DEFAULT, sql_auto_is_null = 0, autocommit = 1, group_concat_max_len = 1048576"
    ),
)
"""Run on every connection; equal settings, so that equal values have equal text."""

_KEEPALIVE = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 30,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 10,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 60_000,
}
# Bytes; by themselves servers write 16 KB at once, and each write wakes us.
_WRITTEN_AT_ONCE = 1 << 18
_DENIED = 1045
_LOST = {1040, 1053, 1152, 1159, 1161, 1203, 1317, 1927, 2003, 2006, 2013, 2055}
# Codes whose messages may quote values of rows or parameters.
_QUOTING = {1062, 1064, 1264, 1265, 1292, 1366, 1406, 1411, 1525}


class QueryFailed(HeadraceError):
    """The server refused a statement; callers turn it into an error that says what was wanted.

    Attributes:
        code: the server's number.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Session:
    """One connection; not to be shared between threads."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def version(self) -> str:
        """What the server calls itself, such as ``10.11.19-MariaDB``."""
        return str(self._connection.get_server_info())

    @property
    def open(self) -> bool:
        """Whether it can still be asked; a server that went away is only noticed when it is."""
        return bool(self._connection.open)

    def rows(self, sql: str) -> list[Cells]:
        """Return all rows of a statement, each cell as the server rendered it.

        Raises:
            QueryFailed: the server refused it.
            SourceUnavailable: the connection is gone.
        """
        with self._failures(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def texts(self, sql: str) -> list[tuple[str | None, ...]]:
        """Return all rows of a statement as text; likewise."""
        return [
            tuple(None if cell is None else cell.decode() for cell in row) for row in self.rows(sql)
        ]

    def value(self, sql: str) -> str:
        """Return the one cell of the first row as text, empty for null; likewise."""
        return self.texts(sql)[0][0] or ""

    def stream(self, sql: str, most: int) -> Generator[Sequence[Cells], None, None]:
        """Yield the rows of a statement as they come, up to ``most`` at once; likewise.

        The session is free again when the iterator is at its end or closed.
        """
        with self._failures(), self._connection.cursor(SSCursor) as cursor:
            cursor.execute(sql)
            while rows := cursor.fetchmany(most):
                yield rows

    @contextlib.contextmanager
    def prepared(self, sql: str) -> Iterator[tuple[PacketReader, list[Wire]]]:
        """Give the rows of a prepared statement as packets, and how their cells lie in them; likewise.

        The refusal may come when the block is left. The session is free again behind the block, which need not have
        read all rows; after an error in it the session is closed.
        """
        connection = self._connection
        with self._failures(), self._statement(sql) as number:
            # Without a cursor: the rows come as they are found.
            execute = struct.pack("<IBI", number, 0, 1)
            connection._execute_command(COMMAND.COM_STMT_EXECUTE, execute)
            count = connection._read_packet().read_length_encoded_integer()
            fields = [connection._read_packet(FieldDescriptorPacket) for _ in range(count)]
            connection._read_packet()
            packets = PacketReader(_Buffered(connection._rfile, self.socket()))
            ended = False
            try:
                yield packets, [wire_of(field.type_code, field.flags) for field in fields]
                while not ended:
                    payload = packets.whole()
                    refused = payload[:1] == b"\xff"
                    ended = refused or (bool(payload) and is_end(payload[0], len(payload)))
                    if refused:
                        pymysql.err.raise_mysql_exception(payload)
            finally:
                # The driver would take rows that are left for its next answer.
                if not ended:
                    self.close()

    @contextlib.contextmanager
    def _statement(self, sql: str) -> Iterator[int]:
        """Prepare a statement without parameters and give its number."""
        connection = self._connection
        connection._execute_command(COMMAND.COM_STMT_PREPARE, sql)
        number, columns = struct.unpack_from("<xIH", connection._read_packet().get_all_data())
        # Their description, which comes again with the rows and is true then, and its end.
        for _ in range(columns + 1):
            connection._read_packet()
        try:
            yield number
        finally:
            if self.open:
                connection._execute_command(COMMAND.COM_STMT_CLOSE, struct.pack("<I", number))

    def widen(self) -> None:
        """Let the server write rows in large pieces: its buffer has the size of the largest packet that it received.

        Source: https://dev.mysql.com/doc/refman/en/server-system-variables.html#sysvar_net_buffer_length
        """
        most = int(self.value("SELECT @@max_allowed_packet")) // 2
        self.run("DO 0 /*" + " " * min(_WRITTEN_AT_ONCE, most) + "*/")

    def run(self, *statements: str) -> int:
        """Run statements without rows; return how many rows the last one changed."""
        changed = 0
        with self._failures(), self._connection.cursor() as cursor:
            for sql in statements:
                changed = cursor.execute(sql)
        return changed

    def socket(self) -> Any:
        """Return the connected socket, for a protocol that the driver does not speak."""
        return self._connection._sock

    def close(self) -> None:
        """Release the connection."""
        with contextlib.suppress(Exception):
            self._connection._force_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except pymysql.err.InterfaceError as error:
            raise _gone() from error
        except pymysql.err.MySQLError as error:
            code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            if code in _LOST:
                raise _gone() from error
            raise QueryFailed(code, _told(code, error)) from None


class _Buffered:
    """What the driver may have read ahead, and then its socket; waits as long as the driver would."""

    def __init__(self, file: Any, socket: Any) -> None:
        self._file = file
        self._socket = socket

    def settimeout(self, timeout_s: float) -> None:
        pass

    def recv_into(self, view: memoryview) -> int:
        if self._file is None:
            return int(self._socket.recv_into(view))
        # So many bytes are all that it can hold; when asked for more, it would wait for them.
        count = int(self._file.readinto1(view[: io.DEFAULT_BUFFER_SIZE]))
        self._file = None
        return count


def connect(settings: MysqlSettings, *, patient: bool = False) -> Session:
    """Log in and bring the session into the state that everything here expects.

    Args:
        settings: of the source.
        patient: wait for a statement's rows however long they take.

    Raises:
        SourceUnavailable: the server does not answer or has no connection to spare.
        SourceError: it refuses us.
    """
    address = settings.address
    try:
        connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            charset="utf8mb4",
            use_unicode=False,
            conv={},
            autocommit=True,
            connect_timeout=settings.connect_timeout_s,
            read_timeout=None if patient else settings.statement_timeout_s,
            write_timeout=settings.statement_timeout_s,
            client_flag=CLIENT.FOUND_ROWS,
            **address.encryption(),
        )
    except (pymysql.err.MySQLError, OSError, RuntimeError) as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        where = f"{address.host}:{address.port}"
        if code and code not in _LOST:
            raise SourceError(
                f"The server at {where} refuses {address.user}: {_told(code, error)}",
                next_step="check user, password, grants and ?tls= in source.url."
                + (f" {PASSWORD_CHANGED}" if code == _DENIED else ""),
            ) from None
        raise SourceUnavailable(
            f"The server at {where} cannot be reached ({code or type(error).__name__}).",
            next_step="check that it runs and that the address is right.",
        ) from None
    session = Session(connection)
    try:
        # Whoever waits for rows without a limit learns of a server that is gone all the same.
        for option, value in _KEEPALIVE.items():
            connection._sock.setsockopt(*option, value)
        session.run(*SESSION)
    except BaseException:
        session.close()
        raise
    return session


def quote(name: str) -> str:
    """Return an identifier."""
    return "`" + name.replace("`", "``") + "`"


def quote_literal(text: str) -> str:
    """Return a text as a literal that no server setting reads otherwise."""
    raw = text.encode()
    return f"_utf8mb4 X'{raw.hex()}'" if raw else "''"


def _told(code: int, error: BaseException) -> str:
    """Return what the server said, unless its text may quote a value."""
    text = str(error.args[1]) if len(error.args) > 1 else type(error).__name__
    return f"error {code}" if code in _QUOTING else f"{text} ({code})"


def _gone() -> SourceUnavailable:
    return SourceUnavailable(
        "The connection to the server is gone.", next_step="nothing: it is made again."
    )
