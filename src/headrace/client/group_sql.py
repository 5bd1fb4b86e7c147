"""Groups in a database: SQLite for the processes of one machine, PostgreSQL for any number of machines.

One member at a time changes a group. Leases are told by the database's clock alone, and one whose end that clock has
moved away from ends as if it began now. A consumer that stores its place in a transaction of its own loses the whole
of that when its claim is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, TypeVar

from headrace.client.errors import CheckpointUnusable, GroupUnavailable, StaleGeneration
from headrace.client.group_state import Claim, GroupState
from headrace.errors import ConfigError
from headrace.wire.place import Place

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["SqlGroupStore"]

T = TypeVar("T")

_BUSY_S = 30.0
"""How long SQLite waits for another process to finish its own."""

_CLOCKS = {
    "sqlite": "SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    "postgresql": "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)",
}
"""Microseconds since 1970 UTC, by the name of SQLAlchemy's dialect."""


class SqlGroupStore:
    """Tables in any SQLite or PostgreSQL database that SQLAlchemy reaches.

    Args:
        database: a URL, or an engine: the consumers' own where they store in their own transactions.
        prefix: what the names of the tables begin with; they are made when they are not there.
        clock: microseconds that rise for all members alike; None for the database's own.

    Raises:
        ConfigError: the database is of another kind.
    """

    def __init__(
        self,
        database: str | Engine,
        *,
        prefix: str = "headrace_group",
        clock: Callable[[], int] | None = None,
    ) -> None:
        import sqlalchemy as sa

        from headrace.client.group_rows import GroupRows

        if isinstance(database, str):
            is_sqlite = sa.make_url(database).get_backend_name() == "sqlite"
            database = sa.create_engine(
                database, connect_args={"timeout": _BUSY_S} if is_sqlite else {}
            )
        self._kind = database.dialect.name
        if self._kind not in _CLOCKS:
            raise ConfigError(
                f"A group cannot be kept in a database of the kind {self._kind}.",
                next_step="keep it in PostgreSQL or SQLite.",
            )
        if self._kind == "postgresql":
            # A turn has to see what the one before it left, for which it waited: a snapshot would be older than that.
            database = database.execution_options(isolation_level="READ COMMITTED")
        self._engine = database
        self._clock = clock
        self._rows = GroupRows(prefix)
        self._made = False

    def read(self, group: str) -> GroupState | None:
        """Return the state of a group, None when there is none of this name.

        Raises:
            GroupUnavailable: the database does not answer, or what it holds does not read.
        """
        with self._guard(group), self._engine.begin() as connection:
            return self._rows.read(connection, group)

    def create(self, group: str, state: GroupState) -> None:
        """Keep a new group, unless there is one of this name.

        Raises:
            GroupUnavailable: the database does not answer.
        """
        import sqlalchemy as sa

        with self._guard(group):
            try:
                with self._engine.begin() as connection:
                    self._rows.insert(connection, group, state)
            except sa.exc.IntegrityError:
                # Somebody else made it at the same time, or long ago.
                return

    def change(self, group: str, act: Callable[[GroupState, int], T]) -> T:
        """Change the state of a group in one transaction, and return what ``act`` returned.

        Raises:
            GroupUnavailable: the database does not answer, or has no such group; nothing was changed.
        """
        with self._guard(group), self._engine.begin() as connection:
            self._rows.lock(connection, group)
            state = self._rows.read(connection, group, lock=True)
            if state is None:
                raise GroupUnavailable(
                    f"There is no group {group}.", next_step="start a member of it first."
                )
            before = deepcopy(state)
            done = act(state, self._now_us(connection))
            self._rows.write(connection, group, before, state)
            return done

    def load(self, group: str, claim: Claim) -> Place:
        """Return the place of a partition.

        Raises:
            StaleGeneration: the claim is over.
            CheckpointUnusable: the database does not answer, or holds no place.
        """
        import sqlalchemy as sa

        try:
            with self._engine.connect() as connection:
                text = self._rows.load(connection, group, claim)
            if text is None:
                raise StaleGeneration(group, claim.number, claim.generation)
            return Place.parse(text)
        except (sa.exc.SQLAlchemyError, ValueError) as error:
            raise _unusable(group, claim, "does not read", error) from error

    def store(
        self, group: str, claim: Claim, place: Place, connection: Connection | None = None
    ) -> None:
        """Remember the place of a partition.

        Args:
            group: its name.
            claim: under which the partition is held.
            place: to remember.
            connection: the consumer's own, inside its transaction; None for a transaction of its own.

        Raises:
            StaleGeneration: the claim is over; nothing was stored.
            CheckpointUnusable: the database refused.
        """
        import sqlalchemy as sa

        try:
            if connection is not None:
                stored = self._rows.store(connection, group, claim, place)
            else:
                with self._engine.begin() as own:
                    stored = self._rows.store(own, group, claim, place)
        except sa.exc.SQLAlchemyError as error:
            raise _unusable(group, claim, "cannot be stored", error) from error
        if not stored:
            raise StaleGeneration(group, claim.number, claim.generation)

    def _now_us(self, connection: Connection) -> int:
        if self._clock is not None:
            return self._clock()
        return int(connection.exec_driver_sql(_CLOCKS[self._kind]).scalar_one())

    @contextmanager
    def _guard(self, group: str) -> Iterator[None]:
        """Make the tables before the first use, and name what goes wrong."""
        import sqlalchemy as sa

        try:
            if not self._made:
                self._make()
            yield
        except (sa.exc.SQLAlchemyError, ValueError) as error:
            raise GroupUnavailable(
                f"The state of group {group} cannot be read or changed ({type(error).__name__}).",
                next_step="see that the database is up, and that its user may read and write there; tried again.",
            ) from error

    def _make(self) -> None:
        import sqlalchemy as sa

        try:
            self._create_tables()
        except sa.exc.SQLAlchemyError:
            # Somebody else made them between PostgreSQL's looking and making.
            self._create_tables()
        self._made = True

    def _create_tables(self) -> None:
        with self._engine.begin() as connection:
            self._rows.make(connection)


def _unusable(group: str, claim: Claim, what: str, error: Exception) -> CheckpointUnusable:
    return CheckpointUnusable(
        f"The place of partition {claim.number} of group {group} {what} ({type(error).__name__}).",
        next_step="repair the database; the partition goes on from the last place.",
    )
