"""Where a consumer's place is kept: in a file, in a database, in the consumer's own transaction, or nowhere."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.client.errors import CheckpointUnusable
from headrace.durable import replace_file
from headrace.wire.place import Place

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Engine, Table

__all__ = ["Checkpoints", "FileCheckpoints", "NoCheckpoints", "SqlCheckpoints"]

_STAMPS = 16
"""As many of our own stores as one transaction of a consumer may undo, and more than any has reason to hold."""


class Checkpoints(Protocol):
    """The place of one consumer in the stream of one source. Used from one thread at a time."""

    def load(self) -> Place | None:
        """Return what was stored last, None when nothing was.

        Raises:
            CheckpointUnusable: it does not read.
        """

    def store(self, place: Place) -> None:
        """Remember a place; it outlives a crash once this returns.

        Raises:
            CheckpointUnusable: it cannot be stored.
        """


class NoCheckpoints:
    """Remembers in memory only: a new process begins where the subscription says."""

    def __init__(self) -> None:
        self._place: Place | None = None

    def load(self) -> Place | None:
        """Return what was stored last by this object."""
        return self._place

    def store(self, place: Place) -> None:
        """Remember a place as long as this object lives."""
        self._place = place


class FileCheckpoints:
    """One small JSON file, replaced as a whole: a reader and a crash find the old place or the new one.

    Two consumers that were given one file by mistake would each go on where the other was. The one that finds a place
    that it did not store itself says so, and neither stores nor begins anew any more.

    Args:
        path: of the file; its folder is made.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        # What we have put there or found when we came; None while that is not known.
        self._known: bytes | None = None
        self._place: Place | None = None
        self._is_shared = False

    def load(self) -> Place | None:
        """Return the place in the file, None when there is none yet.

        Raises:
            CheckpointUnusable: the file does not read, or another consumer stores in it.
        """
        self._check_shared()
        try:
            found = self._path.read_bytes()
            self._place = Place.parse(json.loads(found)["place"])
            self._known = found
            return self._place
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unusable(str(self._path), f"does not read ({type(error).__name__})") from error

    def store(self, place: Place) -> None:
        """Put a place into the file; it is on disk when this returns.

        Raises:
            CheckpointUnusable: the file cannot be written, or another consumer stores in it.
        """
        self._check_shared()
        said = {"place": str(place), "stored_us": time.time_ns() // 1000}
        data = json.dumps(said).encode() + b"\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, data)
            self._known, self._place = data, place
        except OSError as error:
            # It may be in its place all the same.
            self._known = None
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise CheckpointUnusable(
                f"The checkpoint {self._path} cannot be written ({reason}); the one before stays.",
                next_step="make room on its file system, and check its rights; what lies behind it comes again.",
            ) from error

    def _check_shared(self) -> None:
        """Look whether the file is as it was left; one that was removed may be made anew."""
        if self._known is not None and not self._is_shared:
            try:
                self._is_shared = self._path.read_bytes() != self._known
            except OSError:
                return
        if self._is_shared:
            raise CheckpointUnusable(
                f"The checkpoint {self._path} was changed by somebody else while this consumer, which has processed "
                f"everything up to {self._place}, stored there: two consumers use it.",
                next_step="end one of them, or give it a checkpoint of its own; then begin with each where it was.",
            )


class SqlCheckpoints:
    """One row of a table in any database that SQLAlchemy reaches.

    Stored through the consumer's own connection, data and place become durable together or not at all: each change is
    processed exactly once, whatever happens. The consumer then returns ``Result.SKIP_CHECKPOINT`` from
    ``on_end_window``.

    A place is stored only over the one that was stored or found before. Of two consumers that were given one name by
    mistake the one that began first finds a place of the other, says so, and neither stores nor begins anew any more.
    What a process that was killed stores late is found too, before anything was stored over it: its successor goes on
    behind that.

    Args:
        database: a URL, or an engine.
        name: of the consumer; one row each.
        table: of the checkpoints, made when it is not there.
    """

    def __init__(
        self, database: str | Engine, name: str, *, table: str = "headrace_checkpoints"
    ) -> None:
        import sqlalchemy as sa

        self._engine = sa.create_engine(database) if isinstance(database, str) else database
        self._name = name
        self._table: Table = sa.Table(
            table,
            sa.MetaData(),
            sa.Column("consumer", sa.String(200), primary_key=True),
            sa.Column("place", sa.String(64), nullable=False),
            sa.Column("stored_us", sa.BigInteger, nullable=False),
        )
        self._made = False
        # What ``stored_us`` is if nobody else stores: what we found, or one of what we wrote since, for transactions of
        # the consumer may have come to nothing. None while we have not looked.
        self._stamps: tuple[int, ...] | None = None
        self._has_stored = self._is_shared = False

    def load(self) -> Place | None:
        """Return the place of this consumer, None when it has none yet.

        Raises:
            CheckpointUnusable: the database does not answer, or holds no place, or another consumer stores there.
        """
        import sqlalchemy as sa

        columns = self._table.c
        query = sa.select(columns.place, columns.stored_us).where(self._mine)
        try:
            self._make()
            with self._engine.connect() as connection:
                found = connection.execute(query).one_or_none()
            if self._has_stored:
                self._check_unmoved(None if found is None else found.stored_us)
            self._stamps = () if found is None else (found.stored_us,)
            return None if found is None else Place.parse(found.place)
        except (sa.exc.SQLAlchemyError, ValueError) as error:
            raise _unusable(self._what, f"does not read ({type(error).__name__})") from error

    def store(self, place: Place, *, connection: Connection | None = None) -> None:
        """Remember a place.

        Args:
            place: to remember.
            connection: the consumer's own, inside its transaction: the place becomes durable when that commits. None
                for a transaction of its own.

        Raises:
            CheckpointUnusable: the database refused, or another consumer stores there.
        """
        import sqlalchemy as sa

        try:
            self._make()
            if connection is not None:
                self._put(connection, place)
            else:
                with self._engine.begin() as own:
                    self._put(own, place)
        except sa.exc.SQLAlchemyError as error:
            raise _unusable(self._what, f"cannot be stored ({type(error).__name__})") from error

    def _put(self, connection: Connection, place: Place) -> None:
        import sqlalchemy as sa

        stamps = self._stamps or ()
        # Another one each time, also where the clock stands or goes back.
        stamp = max((time.time_ns() // 1000, *(before + 1 for before in stamps)))
        cells: dict[str, Any] = {"place": str(place), "stored_us": stamp}
        column = self._table.c.stored_us
        put = self._table.update().where(self._mine).values(cells)
        if self._stamps is not None:
            put = put.where(column.in_(stamps))
        if not connection.execute(put).rowcount:
            self._check_unmoved(connection.execute(sa.select(column).where(self._mine)).scalar())
            connection.execute(self._table.insert().values(consumer=self._name, **cells))
        self._stamps, self._has_stored = (stamp, *stamps)[:_STAMPS], True

    def _check_unmoved(self, found: int | None) -> None:
        """Look whether the row is as it was left; one that was removed may be made anew."""
        if not self._is_shared and (found is None or found in (self._stamps or ())):
            return
        # Whoever has not stored anything yet has met what its predecessor still stored, and may go on behind that.
        self._is_shared = self._has_stored
        raise CheckpointUnusable(
            f"The checkpoint {self._what} was changed by somebody else while this consumer stored there: two consumers "
            "have this name, or one that has ended was still storing.",
            next_step="end one of them, or give it a name of its own; then begin with each where it was.",
        )

    def _make(self) -> None:
        """Make the table before the first use: not inside the consumer's transaction, where some databases cannot."""
        import sqlalchemy as sa

        if self._made:
            return
        try:
            self._table.create(self._engine, checkfirst=True)
        except sa.exc.SQLAlchemyError:
            # Another consumer made it between our looking and making.
            self._table.create(self._engine, checkfirst=True)
        self._made = True

    @property
    def _mine(self) -> ColumnElement[bool]:
        return self._table.c.consumer == self._name

    @property
    def _what(self) -> str:
        return f"{self._name} in table {self._table.name}"


def _unusable(which: str, what: str) -> CheckpointUnusable:
    return CheckpointUnusable(
        f"The checkpoint {which} {what}.",
        next_step="repair what holds it, or remove it to begin where the subscription says.",
    )
