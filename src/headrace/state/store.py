"""The state of one capture in a database: requests, progress, re-read lists, certificates, the pace.

Any SQLAlchemy URL works; SQLite beside the change log is the default. Writers wait for each other, readers never
see half a change. Every write that belongs to a finished chunk goes into one transaction (`StateStore.write`).
"""

from __future__ import annotations

import errno
import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    bindparam,
    create_engine,
    event,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateColumn, CreateTable

from headrace.durable import make_folder
from headrace.errors import StateBusy, StateError, StateFull
from headrace.model.schema import TableId
from headrace.state import tables as t
from headrace.state.copies import Copy, copies_of
from headrace.state.pace import OwnPace, Pace
from headrace.state.records import (
    OPEN,
    Cause,
    Certificate,
    DumpProgress,
    DumpRequest,
    RequestState,
    Scope,
    Turn,
)
from headrace.state.write_ahead import is_busy, write_ahead
from headrace.state.writer import GAP, SINCE, StateWriter

__all__ = ["Certificate", "DumpProgress", "DumpRequest", "RequestState", "Scope", "StateStore"]

Key = tuple[str, ...]

_WAIT_S = 30.0
"""How long is tried to get at a database that another process holds, unless told otherwise."""

_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
"""What SQLite says on a full disk, of its files and of the index of its log."""

_PACE = "pace."
"""What the names of values begin with that make up the pace."""

# Asked for again and again while a capture runs, so they are put together once.
_PACE_VALUES = select(t.meta.c.name, t.meta.c.value).where(
    t.meta.c.name > _PACE, t.meta.c.name < _PACE + "~"
)
_ONE = select(t.requests).where(t.requests.c.request_id == bindparam("wanted"))
_VALUE = select(t.meta.c.value).where(t.meta.c.name == bindparam("wanted"))
_LINE = (
    select(t.requests.c.request_id, t.requests.c.state, t.requests.c.priority, t.requests.c.table)
    .where(or_(*(t.requests.c.state == state.value for state in OPEN)))
    .order_by(
        t.requests.c.priority.desc(),
        t.requests.c.state != RequestState.ACTIVE.value,
        t.requests.c.number,
    )
)
_OWN = select(t.requests.c.request_id, t.requests.c.pace).where(
    or_(*(t.requests.c.state == state.value for state in OPEN)), t.requests.c.pace != "{}"
)


def _load(text: str) -> Key | None:
    return tuple(json.loads(text)) if text else None


class StateStore:
    """Opens or creates the database at ``path``.

    Args:
        path: of the file.
        wait_s: how long is tried to get at it while another process holds it; then it is a `StateError`.
    """

    def __init__(self, path: Path | str, wait_s: float = _WAIT_S) -> None:
        path = Path(path)
        self._path = path
        # As a value: in a text the name's own % and ? would mean something.
        url = URL.create("sqlite", database=str(path))
        self._engine = create_engine(url, connect_args={"timeout": wait_s})
        event.listen(self._engine, "connect", partial(_prepare_sqlite, wait_s))
        with self._guard():
            # The state folder: whoever opens the database first makes it.
            make_folder(path.parent, 0o700)
            self._create_tables()

    def _create_tables(self) -> None:
        """Create what is not there, and bring what an older headrace made up to date."""
        with self._engine.connect() as connection:
            if connection.exec_driver_sql("PRAGMA user_version").scalar() == t.VERSION:
                return
        with self._engine.begin() as connection:
            # Several processes open a new database at once: looking first and creating then would race.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            for table in t.metadata.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))
                info = connection.exec_driver_sql(f'PRAGMA table_info("{table.name}")')
                held = {row[1] for row in info}
                for column in table.columns:
                    if column.name not in held:
                        wanted = CreateColumn(column).compile(self._engine)
                        connection.exec_driver_sql(
                            f'ALTER TABLE "{table.name}" ADD COLUMN {wanted}'
                        )
            connection.exec_driver_sql(f"PRAGMA user_version = {t.VERSION}")

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            if _has_no_room(error):
                raise StateFull(
                    f"The state database {self._path.name} has no room; nothing of the change is in it.",
                    next_step="free space on its file system; it is tried again.",
                ) from error
            if _is_held(error):
                raise StateBusy(
                    f"The state database {self._path.name} is held by another process; nothing of the change is in it.",
                    next_step="end what holds it, a backup or an open shell for example; it is tried again.",
                ) from error
            raise StateError(
                f"The state database {self._path.name} cannot be used ({type(error).__name__}).",
                next_step="check that its folder is writable and has room; the change log is untouched.",
            ) from error

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        with self._guard(), self._engine.begin() as connection:
            yield connection

    def close(self) -> None:
        """Release the connections."""
        self._engine.dispose()

    # -- requests ---------------------------------------------------------------------------------

    def submit(
        self,
        scope: str | Scope,
        table: TableId | None = None,
        keys: Sequence[Sequence[str]] = (),
        *,
        predicate: str = "",
        delete_missing: bool = False,
        priority: int = 0,
        cause: Cause = Cause.ASKED,
        key_order: str = "",
    ) -> str:
        """Queue a request and return its id; it survives restarts.

        With ``key_order``, as in `DumpRequest`, keys are read by no other key; without, by none but the first that they
        are read by.

        Raises:
            ValueError: the scope and what goes with it do not fit together, or are no text.
        """
        scope = Scope(scope)
        if (
            (scope is Scope.ALL_TABLES) != (table is None)
            or (scope is not Scope.REPAIR and (scope is Scope.PRIMARY_KEYS) != bool(keys))
            or (scope is Scope.PREDICATE) != bool(predicate)
            or (delete_missing and not keys)
        ):
            raise ValueError(
                "ALL_TABLES takes no table, TABLE takes a table, PREDICATE a table and a condition, "
                "PRIMARY_KEYS a table and at least one key, REPAIR a table"
            )
        if not all(
            map(_is_text, (*(table or ()), predicate, *(part for key in keys for part in key)))
        ):
            raise ValueError("a name, key or condition that holds what is no text in UTF-8")
        now, request_id = time.time(), uuid.uuid4().hex[:12]
        row = {
            "request_id": request_id,
            "scope": scope.value,
            "table": str(table or ""),
            "keys": json.dumps([list(key) for key in keys]),
            "missing": "[]",
            "state": RequestState.QUEUED.value,
            "reason": "",
            "created_s": now,
            "updated_s": now,
            "priority": priority,
            "cause": cause.value,
            "predicate": predicate,
            "delete_missing": delete_missing,
            "pace": "{}",
            "key_order": key_order,
        }
        with self._begin() as connection:
            connection.execute(insert(t.requests).values(row))
        return request_id

    def requests(self) -> list[DumpRequest]:
        """Return every request in order of submission."""
        with self._begin() as connection:
            rows = connection.execute(select(t.requests).order_by(t.requests.c.number)).mappings()
            return [_request(row) for row in rows]

    def request(self, request_id: str) -> DumpRequest | None:
        """Return one request."""
        with self._begin() as connection:
            row = connection.execute(_ONE, {"wanted": request_id}).mappings().first()
            return _request(row) if row else None

    def line(self) -> list[Turn]:
        """Return the requests that have not ended, in the order in which they are carried out."""
        with self._begin() as connection:
            return [
                Turn(
                    request_id,
                    RequestState(state),
                    priority,
                    TableId.parse(table) if table else None,
                )
                for request_id, state, priority, table in connection.execute(_LINE)
            ]

    def next_request(self) -> DumpRequest | None:
        """Return the request whose turn it is; paused ones have none."""
        turns = (turn for turn in self.line() if turn.state is not RequestState.PAUSED)
        turn = next(turns, None)
        return self.request(turn.request_id) if turn else None

    def move(self, request_id: str, state: RequestState, *, since: Sequence[RequestState]) -> bool:
        """Move a request to a state if it is in one of some others; return whether it was."""
        with self._begin() as connection:
            return StateWriter(connection).request_state(request_id, state, since=since)

    def steer(
        self,
        request_id: str,
        *,
        priority: int | None = None,
        pace: Mapping[str, float | None] | None = None,
    ) -> bool:
        """Change a request that has not ended; return whether there is one.

        Args:
            request_id: which.
            priority: the new one, None to leave it.
            pace: settings of `OwnPace` to change; None as a value takes one back, names left out stay.

        Raises:
            ValueError: a setting is out of bounds; nothing was changed.
        """
        wanted = dict(pace or {})
        Pace().with_own(OwnPace(**wanted)).validate()  # type: ignore[arg-type]
        where = (
            t.requests.c.request_id == request_id,
            t.requests.c.state.in_([state.value for state in OPEN]),
        )
        with self._begin() as connection:
            # The lock comes first: of two who change two settings at once both succeed.
            touched = update(t.requests).where(*where).values(updated_s=time.time())
            if not connection.execute(touched).rowcount:
                return False
            held = connection.execute(select(t.requests.c.pace).where(*where)).scalar_one()
            own = {n: v for n, v in {**json.loads(held), **wanted}.items() if v is not None}
            values: dict[str, Any] = {"pace": json.dumps(own)}
            if priority is not None:
                values["priority"] = priority
            connection.execute(update(t.requests).where(*where).values(**values))
            return True

    # -- the pace ---------------------------------------------------------------------------------

    def own_paces(self) -> dict[str, OwnPace]:
        """Return the settings of the requests that have not ended and have some of their own, by request."""
        with self._begin() as connection:
            return {name: OwnPace(**json.loads(pace)) for name, pace in connection.execute(_OWN)}

    def pace(self) -> Pace:
        """Return what people have set."""
        with self._begin() as connection:
            rows = connection.execute(_PACE_VALUES)
            return Pace.of({name.removeprefix(_PACE): value for name, value in rows})

    def set_pace(self, **values: float | bool | None) -> Pace:
        """Change some settings of the pace, None taking one back, and return what they all are now.

        Raises:
            ValueError: a value is out of bounds; nothing was changed.
        """
        Pace(**{**asdict(Pace()), **values}).validate()
        with self._begin() as connection:
            writer = StateWriter(connection)
            for name, value in values.items():
                writer.set(_PACE + name, "" if value is None else str(value))
        return self.pace()

    # -- progress ---------------------------------------------------------------------------------

    def progress(self, request_id: str | None = None) -> list[DumpProgress]:
        """Return progress per table, of one request or of all, in order."""
        query = select(t.progress, t.requests.c.number).join(
            t.requests, t.requests.c.request_id == t.progress.c.request_id
        )
        if request_id is not None:
            query = query.where(t.progress.c.request_id == request_id)
        query = query.order_by(t.requests.c.number, t.progress.c.position)
        with self._begin() as connection:
            return [_progress(row) for row in connection.execute(query).mappings()]

    def copies(self) -> dict[TableId, Copy]:
        """Return for each table the dump that says how its copy stands."""
        return copies_of(self.requests(), self.progress(), self.captured())

    def spoken_for(self) -> set[TableId]:
        """Return the tables that a dump of the whole of them was begun for, or waits for its turn."""
        found = set(self.copies())
        for request in self.requests():
            if request.state in OPEN and request.scope.is_whole:
                found.update([request.table] if request.table else self.captured())
        return found

    def since(self, table: TableId) -> int | None:
        """Return from which SCN on the log lacks no change of a table, None when that was not noted.

        Noted of tables whose first copy is adopted.
        """
        text = self.get(f"{SINCE}{table}")
        return int(text) if text else None

    def captured(self) -> list[TableId]:
        """Return the tables that were captured when capture last began; none before the first time."""
        return [TableId.parse(name) for name in json.loads(self.get("tables") or "[]")]

    def gaps(self) -> set[TableId]:
        """Return the tables that changes are missing of, and that are compared and repaired."""
        query = select(t.meta.c.name).where(t.meta.c.name.startswith(GAP), t.meta.c.value != "")
        with self._begin() as connection:
            names = connection.execute(query).scalars()
            return {TableId.parse(name.removeprefix(GAP)) for name in names}

    def reread(self, table: TableId) -> list[Key]:
        """Return the keys on a table's re-read list."""
        query = select(t.reread.c.key).where(t.reread.c.table == str(table))
        with self._begin() as connection:
            return [tuple(json.loads(key)) for key in connection.execute(query).scalars()]

    def certificates(self) -> list[Certificate]:
        """Return what every finished chunk vouches for, in order."""
        with self._begin() as connection:
            rows = connection.execute(
                select(t.certificates).order_by(t.certificates.c.number)
            ).mappings()
            return [_certificate(row) for row in rows]

    def read_scn(self) -> int:
        """Return the position of the rows of the chunk that was finished last, 0 before the first."""
        newest = select(t.certificates.c.high_scn).order_by(t.certificates.c.number.desc()).limit(1)
        with self._begin() as connection:
            return connection.execute(newest).scalar() or 0

    def get(self, name: str) -> str | None:
        """Return a single value."""
        with self._begin() as connection:
            return connection.execute(_VALUE, {"wanted": name}).scalar()

    # -- writes -----------------------------------------------------------------------------------

    def write(self, changes: Sequence[Callable[[StateWriter], object]]) -> None:
        """Carry out changes in one transaction; durable when it returns."""
        if not changes:
            return
        with self._begin() as connection:
            writer = StateWriter(connection)
            for change in changes:
                change(writer)


def _is_text(text: str) -> bool:
    """Whether a text can be sent to a database; half a character cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_held(error: Exception) -> bool:
    return is_busy(getattr(error, "orig", None))


def _has_no_room(error: SQLAlchemyError | OSError) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = getattr(error.orig, "sqlite_errorcode", None) if isinstance(error, DBAPIError) else None
    return code in _NO_ROOM


def _prepare_sqlite(wait_s: float, connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    write_ahead(cursor, wait_s)
    # A finished chunk must survive a power cut before the source is acknowledged.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _request(row: Any) -> DumpRequest:
    return DumpRequest(
        row["request_id"],
        Scope(row["scope"]),
        TableId.parse(row["table"]) if row["table"] else None,
        tuple(tuple(key) for key in json.loads(row["keys"])),
        tuple(tuple(key) for key in json.loads(row["missing"])),
        RequestState(row["state"]),
        row["reason"],
        row["priority"],
        Cause(row["cause"]),
        row["predicate"],
        row["delete_missing"],
        row["created_s"],
        row["updated_s"],
        OwnPace(**json.loads(row["pace"])),
        row["key_order"],
    )


def _progress(row: Any) -> DumpProgress:
    return DumpProgress(
        row["request_id"],
        TableId.parse(row["table"]),
        row["state"],
        _load(row["until"]),
        _load(row["after"]),
        row["chunks"],
        row["rows_read"],
        row["rows_emitted"],
        row["rows_voided"],
        row["rows_estimated"],
        row["completed_scn"],
        row["keys_done"],
        row["rows_per_s"],
        row["first_scn"],
        row["key_order"],
    )


def _certificate(row: Any) -> Certificate:
    return Certificate(
        row["request_id"],
        TableId.parse(row["table"]),
        _load(row["after"]),
        _load(row["last"]),
        row["low_scn"],
        row["high_scn"],
        row["snapshot"],
        row["rows"],
        row["emitted"],
        row["digest"],
        int(row["schema_id"], 16),
    )
