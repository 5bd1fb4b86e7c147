"""What became visible minute by minute, in a small database of its own.

In: at any time of a minute, the sums that the newest frontier holds. Out: sums as of the ends of minutes, from which
anybody takes the differences. Sums, and not differences, are kept: writing them twice, or missing some, changes nothing
but where in time a change is shown. Written by one process, read by any; capture's own database never waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    select,
)
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateTable

from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

__all__ = ["ALL", "MinuteStore"]

ALL = ""
"""Stands in the place of a table for what is counted of all together."""

_WAIT_S = 5.0

_metadata = MetaData()
_minutes = Table(
    "minutes",
    _metadata,
    Column("minute", Integer, primary_key=True),
    Column("table", String, primary_key=True),
    Column("sums", Text, nullable=False),
)
"""``minute``: minutes since 1970 UTC. ``sums``: JSON, as of the last frontier of that minute."""
_values = Table(
    "notes",
    _metadata,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)
"""Single values of those who look at the minutes."""

_PUT = upsert(_minutes)
_PUT = _PUT.on_conflict_do_update(
    index_elements=["minute", "table"], set_={"sums": _PUT.excluded["sums"]}
)
_SET = upsert(_values)
_SET = _SET.on_conflict_do_update(index_elements=["name"], set_={"value": _SET.excluded["value"]})


class MinuteStore:
    """Opens or creates the database at ``path``.

    Raises:
        StateError: of every method: the database cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": _WAIT_S})
        event.listen(self._engine, "connect", _prepare)
        with self._begin() as connection:
            for table in _metadata.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))

    def close(self) -> None:
        """Release the connections."""
        self._engine.dispose()

    def put(self, minute: int, sums: Mapping[str, Mapping[str, Any]], keep_from: int) -> None:
        """Keep the sums of some tables as of a minute, in the place of earlier ones of the same minute.

        Args:
            minute: since 1970 UTC.
            sums: by table, or `ALL`.
            keep_from: minutes before it go, but for the newest of each table, which still stands.
        """
        rows = [
            {"minute": minute, "table": table, "sums": json.dumps(of)} for table, of in sums.items()
        ]
        later = _minutes.alias()
        newest = (
            select(func.max(later.c.minute))
            .where(later.c.table == _minutes.c.table, later.c.minute < keep_from)
            .scalar_subquery()
        )
        with self._begin() as connection:
            if rows:
                connection.execute(_PUT, rows)
            connection.execute(
                delete(_minutes).where(_minutes.c.minute < keep_from, _minutes.c.minute < newest)
            )

    def read(self, from_minute: int, table: str | None = None) -> list[tuple[int, str, Any]]:
        """Return minute, table and sums: those from a minute on, and before them the newest of each table.

        Args:
            from_minute: since 1970 UTC.
            table: only this one, or `ALL`; None for every table and `ALL`.
        """
        before = (
            select(_minutes.c.table, func.max(_minutes.c.minute).label("minute"))
            .where(_minutes.c.minute < from_minute)
            .group_by(_minutes.c.table)
            .subquery()
        )
        query = (
            select(_minutes)
            .join(before, before.c.table == _minutes.c.table, isouter=True)
            .where((_minutes.c.minute >= from_minute) | (_minutes.c.minute == before.c.minute))
            .order_by(_minutes.c.minute, _minutes.c.table)
        )
        if table is not None:
            query = query.where(_minutes.c.table == table)
        with self._begin() as connection:
            return [
                (row.minute, row.table, json.loads(row.sums)) for row in connection.execute(query)
            ]

    def get(self, name: str) -> str:
        """Return a note; empty when there is none."""
        with self._begin() as connection:
            query = select(_values.c.value).where(_values.c.name == name)
            return str(connection.execute(query).scalar() or "")

    def set(self, name: str, value: str) -> None:
        """Keep a note."""
        with self._begin() as connection:
            connection.execute(_SET, {"name": name, "value": value})

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except (SQLAlchemyError, OSError) as error:
            raise StateError(
                f"The database {self._path.name} cannot be used ({type(error).__name__}).",
                next_step="check that its folder is writable and has room; deleting it loses the last day only.",
            ) from error


def _prepare(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    # What a power cut takes is a few seconds of a day.
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
