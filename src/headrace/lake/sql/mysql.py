"""Warehouses that are MySQL or MariaDB servers.

Rows go in by statements of many rows, built by Arrow, and come back page by page along our own row number.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pymysql
from pymysql.constants import CLIENT

from headrace.errors import (
    HeadraceError,
    IncompatibleSchemaChange,
    TargetConflict,
    TargetError,
    TargetUnwritable,
)
from headrace.lake.sql.ledger import SCHEMA
from headrace.lake.sql.mysql_forms import arrow_of
from headrace.lake.sql.mysql_rows import RowTooLarge, insertions
from headrace.lake.sql.mysql_words import (
    MYSQL,
    MYSQL_TEXTS,
    ROW_ID,
    MysqlDialect,
    name_of,
    statements,
    table_of,
    table_text,
)
from headrace.lake.sql.types import column_type
from headrace.model.change import table_arrow_schema
from headrace.model.mysql_address import Address
from headrace.model.schema import Column, TableId, TableSchema

__all__ = ["Extremes", "MysqlSession", "MysqlWarehouse"]

Extremes = Literal["refuse", "text"]
"""What becomes of values that the server's floats, dates and times do not hold."""

_FETCH_ROWS = 5_000
_CONNECT_S = 10
_OLDEST = {"MySQL": (8, 0, 23), "MariaDB": (10, 6, 0)}
"""The first with columns that no ``*`` shows, and with changes of tables that are done or not."""
_COLLATIONS = {"MySQL": "utf8mb4_0900_bin", "MariaDB": "utf8mb4_nopad_bin"}
"""By which two texts are one only when all their bytes are the same, spaces at the end too."""
_SETTINGS = (
    # As the SQL standard has it: a backslash is a letter. What does not fit is an error.
    "sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "time_zone = '+00:00'",
    "innodb_lock_wait_timeout = 30",
    "lock_wait_timeout = 30",
    "sql_select_limit = DEFAULT",
    "sql_auto_is_null = 0",
    # What keeps people at a prompt from mistakes would keep batches from tables.
    "sql_safe_updates = 0",
    "sql_big_selects = 1",
)
_MOST_STATEMENT = 16 * 2**20
_KEEPALIVE = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 30,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 10,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
    # What was sent and nobody acknowledges keeps the others waiting.
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 60_000,
}

_ROOM = "give the server room or connections"
_LEFT_ALONE = "let headrace be the only writer"
_REASONS: tuple[tuple[set[int], type[HeadraceError], str, str], ...] = (
    # Numbers of the server's errors; the error; what it means; what to do.
    (
        {1044, 1142, 1143, 1227, 1370},
        TargetUnwritable,
        "the user may not do that there",
        "grant the user what it lacks",
    ),
    (
        {1045, 1698, 3118},
        TargetUnwritable,
        "the server refused user or password",
        "correct target.url",
    ),
    (
        {1290, 1792, 1836, 3100},
        TargetUnwritable,
        "it is read-only",
        "name a server that takes writes",
    ),
    ({1021, 1114, 28}, TargetUnwritable, "its disk is full", "make room on the server"),
    ({1037, 1038, 1040, 1041, 1203, 1226}, TargetUnwritable, "the server has no room", _ROOM),
    ({1205}, TargetUnwritable, "somebody holds a lock on it", "end what holds the lock"),
    (
        {1053, 1927, 1152, 1158, 1159, 1160, 1161},
        TargetUnwritable,
        "the connection was lost",
        "look at server and network",
    ),
    ({2006, 2013, 2055}, TargetUnwritable, "the connection was lost", "look at server and network"),
    (
        {2002, 2003, 2005},
        TargetUnwritable,
        "the server cannot be reached",
        "look at server and network",
    ),
    ({1153}, TargetError, "a row is larger than the server takes", "raise its max_allowed_packet"),
    ({1213, 1412, 1020}, TargetConflict, "another writer came in between", _LEFT_ALONE),
    ({1050}, TargetConflict, "a table came in its place", _LEFT_ALONE),
    ({1051, 1146, 1049}, TargetConflict, "a table is gone", "put the table back"),
    ({1054, 1072, 1091}, TargetConflict, "a column is gone", "undo the change of its columns"),
    (
        {1435, 1451, 1217, 1701, 1828, 1829, 1830, 3730},
        TargetConflict,
        "something else depends on it",
        "drop what depends on it",
    ),
    (
        {1060},
        IncompatibleSchemaChange,
        "two of its columns have one name to the server",
        "rename one of them at the source, or leave it out",
    ),
    (
        {1117, 1118, 1071, 1074},
        IncompatibleSchemaChange,
        "it has more or wider columns than a table of the server has",
        "leave columns out: source.columns",
    ),
    (
        {1062, 1264, 1265, 1292, 1366, 1367, 1406, 1411, 1048, 1364, 3819, 4025},
        TargetError,
        "the server cannot hold a value",
        "keep the column as another type, or leave it out",
    ),
)


@dataclass(frozen=True, slots=True)
class MysqlWarehouse:
    """One server, MySQL (8.0.23 or newer) or MariaDB (10.6 or newer); schemas of the source are databases there.

    Attributes:
        url: ``mysql://user:password@host:port/?tls=…&ca=…``; holds secrets.
        schema_prefix: put before the names of the source's schemas.
        extremes: whether values that the server's floats, dates and times do not hold stop their table, or all of
            these lie as text. Not to be changed while there are tables.
    """

    url: str = field(repr=False)
    schema_prefix: str = ""
    extremes: Extremes = "refuse"

    @property
    def dialect(self) -> MysqlDialect:
        """MySQL's, which MariaDB shares."""
        return MYSQL if self.extremes == "refuse" else MYSQL_TEXTS

    def place(self, table: TableId) -> TableId:
        """Return database and name of a table's target."""
        return TableId(self.schema_prefix + table.schema, table.name)

    @contextmanager
    def opened(self, *, read_only: bool = False) -> Iterator[MysqlSession]:
        """Open a session; a read-only one is a single transaction, which sees one moment."""
        with closing(self.connect(read_only=read_only)) as session:
            yield session

    def connect(self, *, read_only: bool = False) -> MysqlSession:
        """Open a session that the caller closes.

        Raises:
            ConfigError: the URL does not read.
            TargetError: the server is too old.
        """
        address = Address.parse(self.url, "target.url")
        connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=_CONNECT_S,
            # Rows that are found count, whether or not an update changes them.
            client_flag=CLIENT.FOUND_ROWS,
            program_name="headrace",
            **address.encryption(),
        )
        try:
            for option, value in _KEEPALIVE.items():
                connection._sock.setsockopt(*option, value)
            brand = _brand(connection.get_server_info())
            session = MysqlSession(connection, self.dialect, brand)
            session.begin(read_only=read_only)
        except BaseException:
            connection.close()
            raise
        return session

    def refusal(self, error: Exception, what: str) -> HeadraceError:
        """Return what an error of the driver means; its own text may hold values of rows."""
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        if isinstance(error, RowTooLarge):
            code = 1153
        if isinstance(error, pymysql.err.InterfaceError):
            code = 2006
        for codes, kind, reason, step in _REASONS:
            if code in codes and isinstance(error, pymysql.err.MySQLError | RowTooLarge):
                return kind(
                    f"{what} cannot be written: {reason} ({code}).",
                    next_step=f"{step}; the batch is tried again.",
                )
        if isinstance(error, OSError):
            return TargetUnwritable(
                f"{what} cannot be written: the server cannot be reached.",
                next_step="look at server and network; the batch is tried again.",
            )
        return TargetError(
            f"{what} cannot be written: {type(error).__name__} {code or ''}".rstrip() + ".",
            next_step="the batch is tried again; HEADRACE_DEBUG=1 shows the whole error.",
        )


def _brand(version: str) -> str:
    """Return which of the two servers answers.

    Raises:
        TargetError: it is too old.
    """
    brand = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    # MariaDB hides its own version behind one that old clients know.
    numbers = version.removeprefix("5.5.5-").partition("-")[0].split(".")
    oldest = _OLDEST[brand]
    if tuple(int(number) for number in numbers[:3]) < oldest:
        raise TargetError(
            f"The target is {brand} {'.'.join(numbers[:3])}; {'.'.join(map(str, oldest))} is the oldest that tables "
            "can be kept in.",
            next_step=f"upgrade the server to {brand} {'.'.join(map(str, oldest))} or newer, or choose another target.",
        )
    return brand


class MysqlSession:
    """One connection.

    Args:
        connection: of the driver.
        dialect: says which types are used.
        brand: ``MySQL`` or ``MariaDB``.
    """

    def __init__(
        self, connection: pymysql.Connection[Any], dialect: MysqlDialect, brand: str
    ) -> None:
        self._connection = connection
        self._dialect = dialect
        self._brand = brand
        self._collation = _COLLATIONS[brand]
        self._most = _MOST_STATEMENT
        self._inside = False
        self._temporary: set[str] = set()
        self._left: list[str] = []

    def begin(self, *, read_only: bool) -> None:
        """Bring the connection into the state that everything here expects."""
        self._execute(f"SET NAMES utf8mb4 COLLATE {self._collation}")
        limit = "max_statement_time" if self._brand == "MariaDB" else "max_execution_time"
        self._execute(f"SET SESSION {', '.join(_SETTINGS)}, {limit} = 0")
        level = "REPEATABLE READ" if read_only else "READ COMMITTED"
        self._execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        ((most,),) = self.rows("SELECT @@max_allowed_packet")
        self._most = min(int(most), _MOST_STATEMENT)
        self._largest = int(most)
        self._use_ours()
        if read_only:
            self._execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def run(self, text: str, *, own: bool = False) -> int:
        """Carry out a statement; return how many rows it changed, or found to be so already."""
        changed = 0
        for statement in (text,) if own else statements(self._dialect, text, self._collation):
            changed = max(0, self._execute(statement))
            if statement.startswith(("CREATE DATABASE", "CREATE SCHEMA")):
                self._use_ours()
        return changed

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return the few rows that a query has."""
        with self._connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Return a block that is committed at its end, or leaves nothing behind but what the server commits itself.

        A statement that makes, changes or drops a table commits what was done before it; what comes behind it is one
        transaction again.
        """
        self._connection.autocommit(False)
        self._inside = True
        try:
            yield
            self._connection.commit()
        except BaseException:
            # Whoever tries again reads the same rows.
            self._left.clear()
            # A connection that is lost has undone it already.
            with contextlib.suppress(pymysql.err.MySQLError):
                self._connection.rollback()
            raise
        finally:
            self._inside = False
            with contextlib.suppress(pymysql.err.MySQLError):
                self._connection.autocommit(True)
        while self._left:
            self._execute(f"DROP TABLE IF EXISTS {self._left.pop()}")

    def stage(self, name: str, rows: pa.Table) -> None:
        """Make a staging table of rows: inside a transaction for this session alone, outside for all.

        Raises:
            UnheldCell: a cell has a value that no type of the server's holds.
            RowTooLarge: one row is more than the server takes at once.
        """
        kinds = [f"{name_of(f.name)} {self._type(f.type)}" for f in rows.schema]
        if "place" in rows.column_names:
            # Versions ask for the one ahead of them.
            kinds.append("KEY (`place`)")
        table = _staged(name)
        statements = insertions(
            table,
            rows,
            self._most,
            self._largest,
            as_text=self._dialect.as_text,
            signs_zeros=self._brand == "MySQL",
        )
        made = table_text(table, kinds, self._collation)
        if self._inside:
            # The word keeps it from ending the transaction.
            self._execute(f"DROP TEMPORARY TABLE IF EXISTS {table}")
            self._execute(made.replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1))
            self._temporary.add(name)
        else:
            self._execute(f"DROP TABLE IF EXISTS {table}")
            self._execute(made)
        try:
            if not self._inside:
                self._connection.begin()
            for statement in statements:
                self._execute(statement)
            if not self._inside:
                self._connection.commit()
                self.rows(f"ANALYZE NO_WRITE_TO_BINLOG TABLE {table}")
        except BaseException:
            if not self._inside:
                with contextlib.suppress(pymysql.err.MySQLError):
                    self._connection.rollback()
                    self._execute(f"DROP TABLE IF EXISTS {table}")
            raise

    def unstage(self, name: str) -> None:
        """Remove a staging table; one that others see goes behind the transaction, which it would end."""
        if name in self._temporary:
            self._temporary.discard(name)
            self._execute(f"DROP TEMPORARY TABLE {_staged(name)}")
        elif self._inside:
            self._left.append(_staged(name))
        else:
            self._execute(f"DROP TABLE {_staged(name)}")

    def read(self, place: TableId, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a table, in the columns of the version it has."""
        cells = ", ".join(map(self._readable, schema.columns))
        form = table_arrow_schema(schema)
        last = 0
        while True:
            rows = self.rows(
                f"SELECT {cells}, {ROW_ID} FROM {table_of(place)} WHERE {ROW_ID} > {last} "
                f"ORDER BY {ROW_ID} LIMIT {_FETCH_ROWS}"
            )
            if not rows:
                return
            *columns, numbers = zip(*rows, strict=True)
            last = numbers[-1]
            as_text = self._dialect.as_text
            yield pa.record_batch(
                [
                    arrow_of(cells, f.type, as_text=as_text)
                    for cells, f in zip(columns, form, strict=True)
                ],
                schema=form,
            )

    def is_alive(self) -> bool:
        """Return whether the server still answers."""
        try:
            self._connection.ping(reconnect=False)
        except (pymysql.err.MySQLError, OSError):
            return False
        return True

    def close(self) -> None:
        """End the session."""
        if self._connection.open:
            self._connection.close()

    def _execute(self, text: str | bytes) -> int:
        with self._connection.cursor() as cursor:
            # The text is ours; names and values in it are quoted.
            return int(cursor.execute(text))

    def _use_ours(self) -> None:
        """Name a database: without one, MySQL finds no alias."""
        with contextlib.suppress(pymysql.err.MySQLError):
            self._connection.select_db(SCHEMA)

    def _readable(self, column: Column) -> str:
        name = name_of(column.name)
        # As itself it is told with six digits.
        single = column.type == pa.float32() and not self._dialect.as_text
        return f"CAST({name} AS double)" if single else name

    def _type(self, type_: pa.DataType) -> str:
        return self._dialect.type_of(column_type(type_))


def _staged(name: str) -> str:
    schema, _, own = name.rpartition(".")
    return table_of(TableId(schema or SCHEMA, own))
