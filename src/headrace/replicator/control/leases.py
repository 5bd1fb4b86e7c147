"""One active control plane per database: a lease that ends by itself, and a number that shuts out who had it before.

In: a database that several control planes share. Out: a `Lease` for one of them at a time. Who was frozen or cut off
for longer than the lease lasts finds every write refused, however late it comes.
"""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import Connection, insert, select, update

from headrace.errors import LeaseLost
from headrace.replicator.control import tables as t
from headrace.replicator.control.database import Database
from headrace.replicator.control.records import Lease
from headrace.replicator.orphans import birth_of

__all__ = ["CONTROL", "fence", "holder_name", "read", "release", "renew", "take"]

CONTROL = "control"
"""Name of the one lease that there is so far."""


def holder_name() -> str:
    """Return a name that tells this process from every other one, here and elsewhere."""
    pid = os.getpid()
    return f"{_here()} {pid} {birth_of(pid)}"


def take(database: Database, holder: str, lasts_s: float) -> Lease | None:
    """Return the lease if it is free, has ended, or its holder is a process of this machine that is gone.

    Raises:
        StateError: the database does not answer.
    """
    with database.begin() as connection:
        row = _row(connection, lock=True)
        now = database.now_s(connection)
        if (
            row is not None
            and row.until_s > now
            and row.holder != holder
            and not _is_gone(row.holder)
        ):
            return None
        lease = Lease(CONTROL, holder, row.generation + 1 if row else 1, now + lasts_s)
        values = {"holder": holder, "generation": lease.generation, "until_s": lease.until_s}
        if row is None:
            connection.execute(insert(t.leases).values(name=CONTROL, **values))
        else:
            connection.execute(update(t.leases).where(t.leases.c.name == CONTROL).values(**values))
        return lease


def renew(database: Database, lease: Lease, lasts_s: float) -> bool:
    """Let a lease last longer; false when somebody else has it by now.

    Raises:
        StateError: the database does not answer.
    """
    with database.begin() as connection:
        done = connection.execute(
            update(t.leases)
            .where(t.leases.c.name == lease.name, t.leases.c.generation == lease.generation)
            .values(until_s=database.now_s(connection) + lasts_s)
        )
        return bool(done.rowcount)


def release(database: Database, lease: Lease) -> None:
    """End a lease, so that the next one need not wait; nothing when somebody else has it."""
    with database.begin() as connection:
        connection.execute(
            update(t.leases)
            .where(t.leases.c.name == lease.name, t.leases.c.generation == lease.generation)
            .values(until_s=0.0)
        )


def read(connection: Connection) -> Lease | None:
    """Return the lease as the database has it, None before the first."""
    return _row(connection, lock=False)


def fence(connection: Connection, lease: Lease) -> None:
    """Refuse the rest of a transaction unless the lease is the newest; nobody else takes it or writes before its end.

    Raises:
        LeaseLost: another control plane has it.
    """
    query = select(t.leases.c.generation).where(t.leases.c.name == lease.name)
    held = connection.execute(query.with_for_update()).scalar()
    if held != lease.generation:
        raise LeaseLost(
            f"Another control plane has taken over (generation {held}, this one is {lease.generation}).",
            next_step="ask that one; this one waits for its turn.",
        )


def _row(connection: Connection, *, lock: bool) -> Lease | None:
    query = select(t.leases).where(t.leases.c.name == CONTROL)
    row = connection.execute(query.with_for_update() if lock else query).mappings().first()
    return Lease(**row) if row else None


def _here() -> str:
    """Return what tells this machine since its start, and what sees its processes, from every other."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "unknown"


def _is_gone(holder: str) -> bool:
    """Whether a holder was a process of this machine, and is no more."""
    here, _, rest = holder.partition(" ")
    pid, _, birth = rest.partition(" ")
    if here != _here() or here == "unknown" or not pid.isdecimal():
        return False
    return birth_of(int(pid)) != birth
