"""How a control plane's database came to be as it is: numbered steps, each carried out once, in order.

A step is never changed after a release; what comes later is another step. All that are missing are carried out in one
transaction under a lock, so of several control planes that start at once one does it and the others find it done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Column, Connection, Integer, MetaData, Table, func, insert, select, text
from sqlalchemy.schema import CreateTable

from headrace.errors import StateNewer
from headrace.replicator.control import tables as t

__all__ = ["MIGRATIONS", "Migration", "migrate"]

Migration = Callable[[Connection], None]

_LOCK = 0x6865_6164_7261_6365
"""Key of PostgreSQL's advisory lock."""

_steps = Table("migrations", MetaData(), Column("number", Integer, primary_key=True))


def _first(connection: Connection) -> None:
    """Make the tables, and the namespace that needs no name."""
    for table in t.metadata.sorted_tables:
        connection.execute(CreateTable(table))
    connection.execute(
        insert(t.namespaces).values(name="default", created_ms=time.time_ns() // 1_000_000)
    )


MIGRATIONS: Sequence[Migration] = (_first,)
"""Every step, in order; their numbers count from 1."""


def migrate(connection: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Carry out the steps that are missing, inside the connection's transaction; return how many there were.

    Raises:
        StateNewer: the database has seen steps that are unknown here; nothing was changed.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    connection.execute(CreateTable(_steps, if_not_exists=True))
    done = connection.execute(select(func.coalesce(func.max(_steps.c.number), 0))).scalar_one()
    if done > len(migrations):
        raise StateNewer(
            f"The control plane's database is of version {done}, and this headrace knows {len(migrations)}.",
            next_step="start the newer headrace that has written it, or restore a backup of before.",
        )
    for number in range(done, len(migrations)):
        migrations[number](connection)
        connection.execute(insert(_steps).values(number=number + 1))
    return len(migrations) - int(done)
