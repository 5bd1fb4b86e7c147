"""The state of one capture in a database: requests, progress, re-read lists, certificates.

Any SQLAlchemy URL works; SQLite beside the change log is the default. Writers wait for each other, readers never
see half a change. Every write that belongs to a finished chunk goes into one transaction (`StateStore.write`).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, delete, event, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateTable

from headrace.errors import StateError
from headrace.model.schema import TableId
from headrace.state import tables as t

__all__ = ["Certificate", "DumpProgress", "DumpRequest", "RequestState", "Scope", "StateStore"]

Key = tuple[str, ...]

_BUSY_S = 30.0
"""How long a write waits for another process to finish its own."""


class Scope(Enum):
    """What a request asks for."""

    ALL_TABLES = "ALL_TABLES"
    """Every captured table, one after the other."""
    TABLE = "TABLE"
    """One table."""
    PRIMARY_KEYS = "PRIMARY_KEYS"
    """Some keys of one table."""


class RequestState(Enum):
    """Where a request stands."""

    QUEUED = "QUEUED"
    """Accepted, not begun."""
    ACTIVE = "ACTIVE"
    """Capture works on it."""
    COMPLETED = "COMPLETED"
    """Everything it asked for is in the change log."""
    FAILED = "FAILED"
    """It cannot be carried out; the reason is kept."""


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """One request. ``table`` is empty for all tables; keys are as the source renders them."""

    request_id: str
    scope: Scope
    table: TableId | None
    keys: tuple[Key, ...]
    missing: tuple[Key, ...]
    state: RequestState
    reason: str


@dataclass(frozen=True, slots=True)
class DumpProgress:
    """How far one table of one request is.

    Attributes:
        until: largest key when the dump began, None when it has not begun or the table was empty.
        after: last key of the last finished chunk, None at the start.
        rows_read: rows of finished chunks; ``rows_voided``: rows read in vain.
        completed_scn: position of the completion, 0 before.
    """

    request_id: str
    table: TableId
    state: str = "waiting"
    until: Key | None = None
    after: Key | None = None
    chunks: int = 0
    rows_read: int = 0
    rows_emitted: int = 0
    rows_voided: int = 0
    rows_estimated: int = 0
    completed_scn: int = 0


@dataclass(frozen=True, slots=True)
class Certificate:
    """What one finished chunk vouches for; ``digest`` is over the emitted rows."""

    request_id: str
    table: TableId
    after: Key | None
    last: Key | None
    low_scn: int
    high_scn: int
    snapshot: str
    rows: int
    emitted: int
    digest: str
    schema_id: int


def _dump(key: Sequence[str] | None) -> str:
    return "" if key is None else json.dumps(list(key))


def _load(text: str) -> Key | None:
    return tuple(json.loads(text)) if text else None


class StateStore:
    """Opens or creates the database at ``path``."""

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        self._path = path
        self._engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": _BUSY_S})
        event.listen(self._engine, "connect", _prepare_sqlite)
        with self._guard():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._create_tables()

    def _create_tables(self) -> None:
        # Several processes open a new database at once: looking first and creating then would race.
        with self._engine.begin() as connection:
            for table in t.metadata.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
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
        self, scope: str | Scope, table: TableId | None = None, keys: Sequence[Sequence[str]] = ()
    ) -> str:
        """Queue a request and return its id; it survives restarts.

        Raises:
            ValueError: the scope, table and keys do not fit together.
        """
        scope = Scope(scope)
        if (scope is Scope.ALL_TABLES) != (table is None) or (scope is Scope.PRIMARY_KEYS) != bool(
            keys
        ):
            raise ValueError(
                "ALL_TABLES takes no table, TABLE takes a table, PRIMARY_KEYS a table and at least one key"
            )
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
        }
        with self._begin() as connection:
            connection.execute(insert(t.requests).values(row))
        return request_id

    def requests(self) -> list[DumpRequest]:
        """Return every request in order of submission."""
        with self._begin() as connection:
            rows = connection.execute(select(t.requests).order_by(t.requests.c.number)).mappings()
            return [_request(row) for row in rows]

    def next_request(self) -> DumpRequest | None:
        """Return the oldest request that is not finished."""
        open_states = (RequestState.QUEUED, RequestState.ACTIVE)
        return next((r for r in self.requests() if r.state in open_states), None)

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

    def get(self, name: str) -> str | None:
        """Return a single value."""
        with self._begin() as connection:
            return connection.execute(select(t.meta.c.value).where(t.meta.c.name == name)).scalar()

    # -- writes -----------------------------------------------------------------------------------

    def write(self, changes: Sequence[Callable[[StateWriter], None]]) -> None:
        """Carry out changes in one transaction; durable when it returns."""
        if not changes:
            return
        with self._begin() as connection:
            writer = StateWriter(connection)
            for change in changes:
                change(writer)


class StateWriter:
    """Writes inside one transaction of `StateStore.write`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def set(self, name: str, value: str) -> None:
        """Keep a single value."""
        statement = upsert(t.meta).values(name=name, value=value)
        self._connection.execute(
            statement.on_conflict_do_update(index_elements=["name"], set_={"value": value})
        )

    def request_state(
        self, request_id: str, state: RequestState, reason: str = "", missing: Sequence[Key] = ()
    ) -> None:
        """Move a request to a state."""
        values: dict[str, Any] = {"state": state.value, "reason": reason, "updated_s": time.time()}
        if missing:
            values["missing"] = json.dumps([list(key) for key in missing])
        self._connection.execute(
            update(t.requests).where(t.requests.c.request_id == request_id).values(values)
        )

    def put_progress(self, progress: DumpProgress, position: int) -> None:
        """Keep a table's progress."""
        row = {
            "request_id": progress.request_id,
            "table": str(progress.table),
            "position": position,
            "state": progress.state,
            "until": _dump(progress.until),
            "after": _dump(progress.after),
            "chunks": progress.chunks,
            "rows_read": progress.rows_read,
            "rows_emitted": progress.rows_emitted,
            "rows_voided": progress.rows_voided,
            "rows_estimated": progress.rows_estimated,
            "completed_scn": progress.completed_scn,
        }
        statement = upsert(t.progress).values(row)
        self._connection.execute(
            statement.on_conflict_do_update(index_elements=["request_id", "table"], set_=row)
        )

    def add_reread(self, table: TableId, keys: Sequence[Key]) -> None:
        """Put keys on a table's re-read list."""
        for key in keys:
            row = {"table": str(table), "key": _dump(key)}
            self._connection.execute(upsert(t.reread).values(row).on_conflict_do_nothing())

    def remove_reread(self, table: TableId, keys: Sequence[Key]) -> None:
        """Take keys off a table's re-read list."""
        for key in keys:
            self._connection.execute(
                delete(t.reread).where(t.reread.c.table == str(table), t.reread.c.key == _dump(key))
            )

    def add_certificate(self, c: Certificate) -> None:
        """Keep what a chunk vouches for."""
        self._connection.execute(
            insert(t.certificates).values(
                request_id=c.request_id,
                table=str(c.table),
                after=_dump(c.after),
                last=_dump(c.last),
                low_scn=c.low_scn,
                high_scn=c.high_scn,
                snapshot=c.snapshot,
                rows=c.rows,
                emitted=c.emitted,
                digest=c.digest,
                schema_id=f"{c.schema_id:016x}",
            )
        )


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
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
