"""The three tables of groups in a database, inside a transaction of whoever calls.

Places are stored by updates that name the generation, so the database decides between a late owner and the present
one. The row of a group is the lock of everything else.
"""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from headrace.client.group_state import Claim, GroupState, PartitionState
from headrace.wire.place import Place

__all__ = ["GroupRows"]

_OF_GROUP = ("generation", "target", "barrier", "rewind", "dumped")
"""Columns of a group that are called as what they hold."""


class GroupRows:
    """Reads and writes rows.

    Args:
        prefix: what the names of the tables begin with.

    Attributes:
        metadata: all three tables.
    """

    def __init__(self, prefix: str) -> None:
        self.metadata = sa.MetaData()
        self._groups = sa.Table(
            f"{prefix}s",
            self.metadata,
            sa.Column("name", sa.String(200), primary_key=True),
            sa.Column("definition", sa.Text, nullable=False),
            sa.Column("generation", sa.BigInteger, nullable=False),
            sa.Column("target", sa.Integer),
            sa.Column("barrier", sa.BigInteger),
            sa.Column("rewind", sa.BigInteger),
            sa.Column("dumped", sa.BigInteger),
        )
        self._members = sa.Table(
            f"{prefix}_members",
            self.metadata,
            sa.Column("name", sa.String(200), primary_key=True),
            sa.Column("member", sa.String(200), primary_key=True),
            sa.Column("until_us", sa.BigInteger, nullable=False),
            sa.Column("lease_us", sa.BigInteger),
        )
        self._partitions = sa.Table(
            f"{prefix}_partitions",
            self.metadata,
            sa.Column("name", sa.String(200), primary_key=True),
            sa.Column("number", sa.Integer, primary_key=True),
            sa.Column("owner", sa.String(200)),
            sa.Column("generation", sa.BigInteger, nullable=False),
            sa.Column("place", sa.String(64), nullable=False),
            sa.Column("stored_us", sa.BigInteger, nullable=False),
        )

    def make(self, connection: sa.Connection) -> None:
        """Make the tables that are not there, and the columns that those of earlier versions do not have."""
        prepare = connection.dialect.identifier_preparer
        for table in self.metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
            there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
            for column in table.columns:
                if column.name not in there:
                    connection.exec_driver_sql(
                        f"ALTER TABLE {prepare.format_table(table)} "
                        f"ADD COLUMN {prepare.format_column(column)} {column.type.compile(connection.dialect)}"
                    )

    # -- places -----------------------------------------------------------------------------------

    def load(self, connection: sa.Connection, group: str, claim: Claim) -> str | None:
        """Return the place of a partition as text, None when the claim is over."""
        query = sa.select(self._partitions.c.place).where(self._held(group, claim))
        return connection.execute(query).scalar()

    def store(self, connection: sa.Connection, group: str, claim: Claim, place: Place) -> bool:
        """Remember a place; return False, and change nothing, when the claim is over."""
        put = self._partitions.update().where(self._held(group, claim))
        cells = {"place": str(place), "stored_us": _now_us()}
        return connection.execute(put.values(cells)).rowcount == 1

    def _held(self, group: str, claim: Claim) -> sa.ColumnElement[bool]:
        return self._one(group, claim.number) & (self._partitions.c.generation == claim.generation)

    # -- the group --------------------------------------------------------------------------------

    def lock(self, connection: sa.Connection, group: str) -> None:
        """Wait until nobody else changes the group. In SQLite this is the lock of the whole database."""
        columns = self._groups.c
        own = self._groups.update().where(columns.name == group)
        connection.execute(own.values(generation=columns.generation))

    def read(
        self, connection: sa.Connection, group: str, *, lock: bool = False
    ) -> GroupState | None:
        """Return a group, None when there is none.

        Args:
            connection: inside a transaction.
            group: its name.
            lock: hold all places until the transaction ends; those that somebody is storing now are marked busy.
        """
        query = sa.select(self._groups).where(self._groups.c.name == group)
        row = connection.execute(query).one_or_none()
        if row is None:
            return None
        of_members, of_partitions = self._members.c.name == group, self._partitions.c.name == group
        quiet: set[int] | None = None
        if lock:
            # A consumer that was frozen inside its transaction holds the row of its partition: nobody waits for it.
            numbers = sa.select(self._partitions.c.number).where(of_partitions)
            quiet = set(connection.execute(numbers.with_for_update(skip_locked=True)).scalars())
        found = connection.execute(
            sa.select(self._partitions).where(of_partitions).order_by(self._partitions.c.number)
        )
        partitions = [
            PartitionState(
                one.number,
                Place.parse(one.place),
                one.owner,
                one.generation,
                busy=quiet is not None and one.number not in quiet,
            )
            for one in found
        ]
        leases = connection.execute(sa.select(self._members).where(of_members))
        members: dict[str, int] = {}
        lengths: dict[str, int] = {}
        for one in leases:
            members[one.member] = one.until_us
            if one.lease_us is not None:
                lengths[one.member] = one.lease_us
        cells = {name: getattr(row, name) for name in _OF_GROUP}
        return GroupState(row.definition, partitions, members, lengths, **cells)

    def insert(self, connection: sa.Connection, group: str, state: GroupState) -> None:
        """Add a group.

        Raises:
            IntegrityError: there is one of this name.
        """
        values = {"name": group, "definition": state.definition, "generation": state.generation}
        connection.execute(self._groups.insert().values(values))
        self.write(connection, group, GroupState(state.definition, []), state)

    def write(
        self, connection: sa.Connection, group: str, before: GroupState, after: GroupState
    ) -> None:
        """Write what differs, and nothing to a partition that stayed as it was: its place may just be moving."""
        cells = {name: getattr(after, name) for name in _OF_GROUP}
        if any(getattr(before, name) != cell for name, cell in cells.items()):
            own = self._groups.update().where(self._groups.c.name == group)
            connection.execute(own.values(cells))
        self._write_members(connection, group, before, after)
        held = {partition.number: partition for partition in before.partitions}
        for partition in after.partitions:
            was = held.pop(partition.number, None)
            if was != partition:
                self._write_partition(connection, group, was, partition)
        for number in held:
            connection.execute(self._partitions.delete().where(self._one(group, number)))

    def _write_members(
        self, connection: sa.Connection, group: str, before: GroupState, after: GroupState
    ) -> None:
        table = self._members
        for member in before.members.keys() | after.members.keys():
            one = (table.c.name == group) & (table.c.member == member)
            cells = {"until_us": after.members.get(member), "lease_us": after.leases.get(member)}
            was = {"until_us": before.members.get(member), "lease_us": before.leases.get(member)}
            if member not in after.members:
                connection.execute(table.delete().where(one))
            elif member not in before.members:
                connection.execute(table.insert().values(name=group, member=member, **cells))
            elif was != cells:
                connection.execute(table.update().where(one).values(cells))

    def _write_partition(
        self,
        connection: sa.Connection,
        group: str,
        was: PartitionState | None,
        now: PartitionState,
    ) -> None:
        cells: dict[str, Any] = {"owner": now.owner, "generation": now.generation}
        if was is None or was.place != now.place:
            cells |= {"place": str(now.place), "stored_us": _now_us()}
        if was is None:
            values = {"name": group, "number": now.number, **cells}
            connection.execute(self._partitions.insert().values(values))
        else:
            own = self._partitions.update().where(self._one(group, now.number))
            connection.execute(own.values(cells))

    def _one(self, group: str, number: int) -> sa.ColumnElement[bool]:
        columns = self._partitions.c
        return (columns.name == group) & (columns.number == number)


def _now_us() -> int:
    return time.time_ns() // 1000
