"""What a control plane knows: namespaces, drafts, replicators, who asked for what.

In: a `Database`, and for writes the `Lease`. Out: the values of `records`. Every write is one transaction that first
looks whether the lease is still the newest; so what a former control plane begins late changes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, update

from headrace.errors import CommandRefused, NotFound
from headrace.observe.failpoints import failpoint
from headrace.plural import counted
from headrace.replicator.control import leases
from headrace.replicator.control import tables as t
from headrace.replicator.control.database import Database
from headrace.replicator.control.lifecycle import Command, Desired, State, commanded
from headrace.replicator.control.records import (
    Audited,
    Deployed,
    Draft,
    Lease,
    Who,
    full_name,
)

__all__ = ["AUDIT_LINES", "ControlStore", "Writer"]

AUDIT_LINES = 100_000
"""How many lines of the audit log are kept of what was done, and as many of what was refused."""
_DONE = "done"
_TRIM_EVERY = 1_000


class ControlStore:
    """Reads what there is, and hands out a `Writer` to who holds the lease."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @contextmanager
    def writing(self, lease: Lease) -> Iterator[Writer]:
        """Run a transaction; durable when the block ends, undone when it fails.

        Raises:
            LeaseLost: another control plane has taken over; nothing was written.
            StateError: the database does not answer.
        """
        with self.database.begin() as connection:
            leases.fence(connection, lease)
            yield Writer(connection)
            failpoint("control.before_commit")
        failpoint("control.after_commit")

    def lease(self) -> Lease | None:
        """Return who may write, None before the first."""
        with self.database.read() as connection:
            return leases.read(connection)

    def namespaces(self) -> list[str]:
        """Return their names in order."""
        with self.database.read() as connection:
            return list(
                connection.execute(
                    select(t.namespaces.c.name).order_by(t.namespaces.c.name)
                ).scalars()
            )

    def require(self, namespace: str) -> None:
        """Refuse a namespace that there is not.

        Raises:
            NotFound: there is none.
        """
        with self.database.read() as connection:
            _number_of(connection, namespace)

    def drafts(self, namespace: str) -> list[Draft]:
        """Return the drafts of a namespace by name.

        Raises:
            NotFound: there is no such namespace.
        """
        with self.database.read() as connection:
            number = _number_of(connection, namespace)
            query = select(t.drafts).where(t.drafts.c.namespace == number)
            rows = connection.execute(query.order_by(t.drafts.c.name)).mappings()
            return [_draft(row) for row in rows]

    def draft(self, namespace: str, name: str) -> Draft:
        """Return one draft.

        Raises:
            NotFound: there is none, or no such namespace.
        """
        with self.database.read() as connection:
            return _draft_of(connection, namespace, name)

    def replicators(self, namespace: str | None = None) -> list[Deployed]:
        """Return the replicators of a namespace, or of all, by name.

        Raises:
            NotFound: there is no such namespace.
        """
        with self.database.read() as connection:
            query = _replicators()
            if namespace is not None:
                number = _number_of(connection, namespace)
                query = query.where(t.replicators.c.namespace == number)
            order = (t.namespaces.c.name, t.replicators.c.name)
            return [_deployed(row) for row in connection.execute(query.order_by(*order)).mappings()]

    def replicator(self, namespace: str, name: str) -> Deployed:
        """Return one replicator.

        Raises:
            NotFound: there is none, or no such namespace.
        """
        with self.database.read() as connection:
            return _deployed_of(connection, namespace, name)

    def audit(self, limit: int = 100, before: int | None = None) -> list[Audited]:
        """Return lines of the audit log, newest first.

        Args:
            limit: how many.
            before: only lines with smaller numbers.
        """
        query = select(t.audit).order_by(t.audit.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(t.audit.c.number < before)
        with self.database.read() as connection:
            return [Audited(**row) for row in connection.execute(query).mappings()]


class Writer:
    """Changes inside one transaction of who holds the lease."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- people -----------------------------------------------------------------------------------

    def note(self, who: Who, outcome: str = _DONE) -> None:
        """Add a line to the audit log; the oldest of its kind go, now and then, when there are too many."""
        added = self._connection.execute(
            insert(t.audit).values(
                at_ms=_now_ms(),
                who=who.name[:100],
                what=who.what[:40],
                object=who.object[:400],
                outcome=outcome[:400],
            )
        )
        if added.inserted_primary_key and added.inserted_primary_key[0] % _TRIM_EVERY == 0:
            # Apart, so that nobody can ask what was done out of the log by asking for what they may not.
            self._trim(t.audit.c.outcome == _DONE)
            self._trim(t.audit.c.outcome != _DONE)

    def _trim(self, of_kind: ColumnElement[bool]) -> None:
        number = t.audit.c.number
        newest_first = select(number).where(of_kind).order_by(number.desc())
        beyond = self._connection.execute(newest_first.offset(AUDIT_LINES).limit(1)).scalar()
        if beyond is not None:
            self._connection.execute(delete(t.audit).where(of_kind, number <= beyond))

    # -- namespaces and drafts --------------------------------------------------------------------

    def put_namespace(self, name: str) -> bool:
        """Make a namespace; false when there is one of that name."""
        query = select(t.namespaces.c.number).where(t.namespaces.c.name == name)
        if self._connection.execute(query).scalar() is not None:
            return False
        self._connection.execute(insert(t.namespaces).values(name=name, created_ms=_now_ms()))
        return True

    def delete_namespace(self, name: str) -> None:
        """Remove a namespace and its drafts.

        Raises:
            NotFound: there is none.
            CommandRefused: it still has replicators, or is the one that everybody has.
        """
        number = _number_of(self._connection, name)
        query = select(func.count()).where(t.replicators.c.namespace == number)
        held = self._connection.execute(query).scalar_one()
        if held or name == "default":
            raise CommandRefused(
                f"Namespace {name} has {counted(held, 'replicator')}."
                if held
                else "Namespace default stays.",
                next_step="delete its replicators first."
                if held
                else "delete its drafts one by one.",
            )
        self._connection.execute(delete(t.drafts).where(t.drafts.c.namespace == number))
        self._retire_generations(number, name)
        self._connection.execute(delete(t.namespaces).where(t.namespaces.c.number == number))

    def put_draft(self, namespace: str, name: str, label: str, config: Mapping[str, Any]) -> bool:
        """Make a draft, or give it another text; return whether it is new.

        Raises:
            NotFound: there is no such namespace.
        """
        number = _number_of(self._connection, namespace)
        values = {"label": label, "config": json.dumps(config), "updated_ms": _now_ms()}
        done = self._connection.execute(
            update(t.drafts).where(*_key(number, name)).values(**values)
        )
        if done.rowcount:
            return False
        self._connection.execute(
            insert(t.drafts).values(
                namespace=number, name=name, created_ms=values["updated_ms"], **values
            )
        )
        return True

    def draft(self, namespace: str, name: str) -> Draft:
        """Return a draft as it is inside this transaction; as `ControlStore.draft`."""
        return _draft_of(self._connection, namespace, name)

    def delete_draft(self, namespace: str, name: str) -> None:
        """Remove a draft.

        Raises:
            NotFound: there is none, or no such namespace.
        """
        _draft_of(self._connection, namespace, name)
        number = _number_of(self._connection, namespace)
        self._connection.execute(delete(t.drafts).where(*_key(number, name)))

    # -- replicators ------------------------------------------------------------------------------

    def deploy(
        self, namespace: str, name: str, config: Mapping[str, Any], base: str
    ) -> tuple[Deployed, bool]:
        """Make a replicator, or give one another configuration; return it, and whether it is new.

        Raises:
            NotFound: there is no such namespace.
            CommandRefused: its state does not allow it.
        """
        number = _number_of(self._connection, namespace)
        query = _replicators().where(
            t.replicators.c.namespace == number, t.replicators.c.name == name
        )
        row = self._connection.execute(query).mappings().first()
        if row is not None:
            held = _deployed(row)
            state, desired = commanded(name, held.state, held.desired, Command.DEPLOY)
            self._set(
                held,
                config=json.dumps(config),
                base=base,
                revision=held.revision + 1,
                state=state.value,
                desired=desired.value,
                reason="",
            )
            return _deployed_of(self._connection, namespace, name), False
        generation = self._next_generation(number, name)
        now = _now_ms()
        self._connection.execute(
            insert(t.replicators).values(
                namespace=number,
                name=name,
                generation=generation,
                revision=1,
                config=json.dumps(config),
                base=base,
                desired=Desired.STOPPED.value,
                state=State.DEPLOYED.value,
                reason="",
                drop_target=False,
                leave_source=False,
                version=1,
                created_ms=now,
                changed_ms=now,
            )
        )
        return _deployed_of(self._connection, namespace, name), True

    def _next_generation(self, namespace: int, name: str) -> int:
        # The design has the time of deployment here; a clock may be set back, and this may not.
        where = (t.generations.c.namespace == namespace, t.generations.c.name == name)
        last = self._connection.execute(select(t.generations.c.last).where(*where)).scalar()
        if last is None:
            following = self._retired_generation(namespace, name) + 1
            values = {"namespace": namespace, "name": name, "last": following}
            self._connection.execute(insert(t.generations).values(**values))
            return following
        self._connection.execute(update(t.generations).where(*where).values(last=last + 1))
        return int(last) + 1

    def _retired_generation(self, namespace: int, name: str) -> int:
        """Return the last generation of a name in a namespace of the same name that was deleted, 0 without one."""
        called = select(t.namespaces.c.name).where(t.namespaces.c.number == namespace)
        full = full_name(self._connection.execute(called).scalar_one(), name)
        where = (t.generations.c.namespace == t.RETIRED, t.generations.c.name == full)
        last = self._connection.execute(select(t.generations.c.last).where(*where)).scalar()
        self._connection.execute(delete(t.generations).where(*where))
        return int(last or 0)

    def _retire_generations(self, number: int, namespace: str) -> None:
        """Keep the generations of a namespace by its name: what is left of one may be found under it again."""
        held = select(t.generations.c.name).where(t.generations.c.namespace == number)
        for name in self._connection.execute(held).scalars().all():
            self._connection.execute(
                update(t.generations)
                .where(t.generations.c.namespace == number, t.generations.c.name == name)
                .values(namespace=t.RETIRED, name=full_name(namespace, name))
            )

    def command(self, namespace: str, name: str, command: Command, **also: bool) -> Deployed:
        """Note what people want of a replicator, and return how it is noted.

        Args:
            namespace: that it belongs to.
            name: of it.
            command: what they want.
            also: columns that go with the command.

        Raises:
            NotFound: there is none, or no such namespace.
            CommandRefused: its state does not allow it.
        """
        held = _deployed_of(self._connection, namespace, name)
        state, desired = commanded(name, held.state, held.desired, command)
        values: dict[str, Any] = dict(also)
        if state is not held.state or desired is not held.desired:
            values |= {"state": state.value, "desired": desired.value, "reason": ""}
        if values:
            self._set(held, **values)
        return _deployed_of(self._connection, namespace, name)

    def moved(
        self, seen: Deployed, state: State, reason: str = "", desired: Desired | None = None
    ) -> bool:
        """Note where a replicator is by now; false when somebody wrote to it since it was ``seen``."""
        wanted = (desired or seen.desired).value
        # The last words of a process may hold what a text of PostgreSQL cannot.
        said = reason.replace("\0", "")[:4000]
        return self._set(seen, state=state.value, reason=said, desired=wanted)

    def unchanged(self, seen: Deployed) -> bool:
        """Whether nobody wrote to a replicator since it was ``seen``."""
        query = select(t.replicators.c.number).where(*_version(seen))
        return self._connection.execute(query).scalar() is not None

    def forget(self, seen: Deployed) -> bool:
        """Remove a replicator of which nothing else is left; false when somebody wrote to it since it was ``seen``."""
        done = self._connection.execute(delete(t.replicators).where(*_version(seen)))
        return bool(done.rowcount)

    def _set(self, seen: Deployed, **values: Any) -> bool:
        done = self._connection.execute(
            update(t.replicators)
            .where(*_version(seen))
            .values(**values, version=seen.version + 1, changed_ms=_now_ms())
        )
        return bool(done.rowcount)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _key(namespace: int, name: str) -> tuple[Any, Any]:
    return t.drafts.c.namespace == namespace, t.drafts.c.name == name


def _version(seen: Deployed) -> tuple[Any, Any]:
    return t.replicators.c.number == seen.number, t.replicators.c.version == seen.version


def _number_of(connection: Connection, namespace: str) -> int:
    query = select(t.namespaces.c.number).where(t.namespaces.c.name == namespace)
    number = connection.execute(query).scalar()
    if number is None:
        raise NotFound(
            f"There is no namespace {namespace}.",
            next_step="see GET /v1/contexts for those that there are; an admin makes one by PUT /v1/contexts/NAME.",
        )
    return int(number)


def _draft_of(connection: Connection, namespace: str, name: str) -> Draft:
    number = _number_of(connection, namespace)
    row = connection.execute(select(t.drafts).where(*_key(number, name))).mappings().first()
    if row is None:
        raise NotFound(
            f"Namespace {namespace} has no draft {name}.",
            next_step=f"see those that there are: headrace draft list, or GET /v1/contexts/{namespace}/drafts.",
        )
    return _draft(row)


def _replicators() -> Select[Any]:
    return select(t.replicators, t.namespaces.c.name.label("namespace_name")).join(
        t.namespaces, t.namespaces.c.number == t.replicators.c.namespace
    )


def _deployed_of(connection: Connection, namespace: str, name: str) -> Deployed:
    number = _number_of(connection, namespace)
    query = _replicators().where(t.replicators.c.namespace == number, t.replicators.c.name == name)
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound(
            f"Namespace {namespace} has no replicator {name}.",
            next_step=f"see those that there are: headrace replicators, or GET /v1/contexts/{namespace}/replicators.",
        )
    return _deployed(row)


def _draft(row: Any) -> Draft:
    return Draft(
        row["name"],
        row["label"],
        json.loads(row["config"]),
        row["created_ms"],
        row["updated_ms"],
    )


def _deployed(row: Any) -> Deployed:
    return Deployed(
        row["number"],
        row["namespace_name"],
        row["name"],
        row["generation"],
        row["revision"],
        json.loads(row["config"]),
        row["base"],
        Desired(row["desired"]),
        State(row["state"]),
        row["reason"],
        bool(row["drop_target"]),
        bool(row["leave_source"]),
        row["version"],
        row["created_ms"],
        row["changed_ms"],
    )
