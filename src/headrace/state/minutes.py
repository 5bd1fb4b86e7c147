"""What became visible minute by minute, and hour by hour, in a small database of its own.

In: at any time of a minute, the sums that the newest frontier holds. Out: sums as of the ends of minutes and of hours,
from which anybody takes the differences; each is kept for its own time. Sums, and not differences, are kept: writing
them twice, or missing some, changes nothing but where in time a change is shown. Written by one process, read by any;
capture's own database never waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    URL,
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
from headrace.state.write_ahead import write_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

__all__ = ["ALL", "HOUR_S", "MINUTE_S", "MinuteStore"]

MINUTE_S, HOUR_S = 60, 3_600
"""The spans as of whose ends sums are kept."""

ALL = ""
"""Stands in the place of a table for what is counted of all together."""

_WAIT_S = 5.0

_metadata = MetaData()
_SPANS = {
    span_s: Table(
        f"{name}s",
        _metadata,
        Column(name, Integer, key="at", primary_key=True),
        Column("table", String, primary_key=True),
        Column("sums", Text, nullable=False),
    )
    for span_s, name in ((MINUTE_S, "minute"), (HOUR_S, "hour"))
}
"""``at``: minutes, or hours, since 1970 UTC. ``sums``: JSON, as of the last frontier of that span."""
_values = Table(
    "notes",
    _metadata,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)
"""Single values of those who look at the minutes."""

_SET = upsert(_values)
_SET = _SET.on_conflict_do_update(index_elements=["name"], set_={"value": _SET.excluded["value"]})


class MinuteStore:
    """Opens or creates the database at ``path``.

    Raises:
        StateError: of every method: the database cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        url = URL.create("sqlite", database=str(path))
        self._engine = create_engine(url, connect_args={"timeout": _WAIT_S})
        event.listen(self._engine, "connect", _prepare)
        with self._begin() as connection:
            for table in _metadata.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))

    def close(self) -> None:
        """Release the connections."""
        self._engine.dispose()

    def put(
        self, at: int, sums: Mapping[str, Mapping[str, Any]], keep_from: int, span_s: int = MINUTE_S
    ) -> None:
        """Keep the sums of some tables as of a minute, or an hour, in the place of earlier ones of the same.

        Args:
            at: minutes, or hours, since 1970 UTC.
            sums: by table, or `ALL`.
            keep_from: what lies before it goes, but for the newest of each table, which still stands.
            span_s: which of the two.
        """
        kept = _SPANS[span_s]
        rows = [{"at": at, "table": table, "sums": json.dumps(of)} for table, of in sums.items()]
        later = kept.alias()
        newest = (
            select(func.max(later.c.at))
            .where(later.c.table == kept.c.table, later.c.at < keep_from)
            .scalar_subquery()
        )
        put = upsert(kept)
        put = put.on_conflict_do_update(
            index_elements=[kept.c.at, kept.c.table], set_={"sums": put.excluded["sums"]}
        )
        with self._begin() as connection:
            if rows:
                connection.execute(put, rows)
            connection.execute(delete(kept).where(kept.c.at < keep_from, kept.c.at < newest))

    def read(
        self, from_at: int, table: str | None = None, span_s: int = MINUTE_S
    ) -> list[tuple[int, str, Any]]:
        """Return minute, table and sums: those from a minute on, and before them the newest of each table.

        Args:
            from_at: minutes, or hours, since 1970 UTC.
            table: only this one, or `ALL`; None for every table and `ALL`.
            span_s: which of the two.
        """
        kept = _SPANS[span_s]
        before = (
            select(kept.c.table, func.max(kept.c.at).label("at"))
            .where(kept.c.at < from_at)
            .group_by(kept.c.table)
            .subquery()
        )
        query = (
            select(kept.c.at, kept.c.table, kept.c.sums)
            .join(before, before.c.table == kept.c.table, isouter=True)
            .where((kept.c.at >= from_at) | (kept.c.at == before.c.at))
            .order_by(kept.c.at, kept.c.table)
        )
        if table is not None:
            query = query.where(kept.c.table == table)
        with self._begin() as connection:
            found = connection.execute(query)
            return [(at, name, json.loads(sums)) for at, name, sums in found]

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
                next_step="check that its folder is writable and has room; deleting it loses the activity in it.",
            ) from error


def _prepare(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    write_ahead(cursor, _WAIT_S)
    # What a power cut takes is a few seconds of a day.
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
