"""Whether source and target are reached as the configuration says; every refusal a problem, no refusal an error.

In: errors of the adapters. Out: problems beside the field that is to blame. Messages of servers are told by their
words, of which libpq's own are English everywhere; what is not understood is still a problem, with the server's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.errors import ConfigError, HeadraceError, SourceUnavailable
from headrace.model.schema import TableId
from headrace.replicator.assess.problems import Problem

if TYPE_CHECKING:
    from headrace.lake.sql.session import Session, Warehouse

__all__ = ["source_problem", "taken_tables", "warehouse_problems"]

OLDEST_TARGET = 15
"""Oldest PostgreSQL that tables can be kept in: MERGE, and keys that let null in once."""

_WORDS = (
    # What a message holds; what follows of it; part of the URL; what to do.
    ("could not translate host name", "host-unknown", "host", "Correct the host's name."),
    ("its host has no address", "host-unknown", "host", "Correct the host's name."),
    (
        "password authentication failed",
        "login-refused",
        "user, password",
        "Correct role and password.",
    ),
    ("no password supplied", "login-refused", "password", "Give the role's password."),
    (
        "no pg_hba.conf entry",
        "login-refused",
        "user",
        "Let pg_hba.conf admit the role from this machine.",
    ),
    ("is not permitted to log in", "login-refused", "user", 'ALTER ROLE "<role>" LOGIN;'),
    ('role "', "login-refused", "user", "Correct the role, or CREATE ROLE it with LOGIN."),
    (
        'database "',
        "database-unknown",
        "database",
        "Correct the name of the database, or create it.",
    ),
    (
        "there is no such role or database",
        "database-unknown",
        "user, database",
        "Correct role and database.",
    ),
    (
        "is the oldest that tables can be kept in",
        "server-too-old",
        "host, port",
        "Upgrade the server, or choose another target.",
    ),
    ("refused role or password", "login-refused", "user, password", "Correct role and password."),
    ("refused user or password", "login-refused", "user, password", "Correct user and password."),
    (
        "there is no such database",
        "database-unknown",
        "database",
        "Correct the name of the database.",
    ),
    (
        "certificate",
        "certificate-refused",
        "sslmode, sslrootcert",
        "Name the authority's certificate.",
    ),
    ("SSL", "certificate-refused", "sslmode", "Switch SSL on at the server, or change sslmode."),
    (
        "Connection refused",
        "unreachable",
        "host, port",
        "Start the server, or correct host and port.",
    ),
    ("timeout", "unreachable", "host, port", "Look at host, port and firewall."),
    ("did not answer", "unreachable", "host, port", "Look at host, port and firewall."),
    ("cannot be reached", "unreachable", "host, port", "Look at server and network."),
)


def source_problem(error: HeadraceError) -> Problem:
    """Return what an error of the source means."""
    if isinstance(error, SourceUnavailable):
        return _by_words("source", error.message, Problem("source-unreachable", *_said(error)))
    return Problem("source-failed", *_said(error), field="source")


def warehouse_problems(open_: Callable[[], Warehouse | None]) -> Iterator[Problem]:
    """Yield what keeps us from the target's warehouse, and from making schemas there.

    Args:
        open_: returns where it is, None where the target is no warehouse.
    """
    try:
        warehouse = open_()
    except ConfigError as error:
        yield Problem("target-package-missing", *_said(error), field="target.type")
        return
    if warehouse is None:
        return
    from headrace.lake.sql.session import told

    try:
        with told(warehouse), warehouse.opened(read_only=True) as session:
            if warehouse.dialect.name == "postgres":
                yield from _rights(session)
    except HeadraceError as error:
        message, step = _said(error)
        fallback = Problem("target-failed", message, step, field="target")
        if warehouse.dialect.name in ("postgres", "mysql"):
            fallback = _by_words("target", message, fallback)
        yield fallback


def _rights(session: Session) -> Iterator[Problem]:
    ((version, database, role, may),) = session.rows(
        "SELECT current_setting('server_version_num')::int / 10000, current_database()::text, "
        "current_user::text, has_database_privilege(current_database(), 'CREATE')"
    )
    if version < OLDEST_TARGET:
        yield Problem(
            "target-server-too-old",
            f"The target is PostgreSQL {version}; {OLDEST_TARGET} is the oldest that tables can be kept in.",
            f"Upgrade the server to PostgreSQL {OLDEST_TARGET} or newer, or choose another target.",
            field="target.url",
        )
    if not may:
        from headrace.lake.sql.dialect import quoted

        yield Problem(
            "target-may-not-create",
            f"Role {role} may not make schemas in database {database}.",
            f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(role)};",
            field="target.url",
        )


def taken_tables(
    warehouse: Warehouse, pipeline: str, tables: Sequence[TableId]
) -> Iterator[Problem]:
    """Yield the places of target tables in which there is another table.

    Args:
        warehouse: which can be reached.
        pipeline: name under which positions are committed.
        tables: of the source.
    """
    from headrace.lake.sql.columns import found_columns
    from headrace.lake.sql.session import told
    from headrace.lake.sql.tables import WarehouseTables

    try:
        with told(warehouse), warehouse.opened(read_only=True) as session:
            ours = WarehouseTables(warehouse, pipeline).entries(session)
            places = {table: warehouse.place(table) for table in tables if table not in ours}
            taken = [t for t, p in places.items() if found_columns(session, warehouse.dialect, p)]
    except HeadraceError as error:
        yield Problem("target-failed", *_said(error), field="target")
        return
    for table in taken:
        yield Problem(
            "target-table-taken",
            f"{places[table]}, the place of the target table of {table}, holds a table that {pipeline} did not make.",
            f"Move {places[table]} away, or give the replicator a place of its own"
            + (": target.schema_prefix." if hasattr(warehouse, "schema_prefix") else "."),
            table=str(table),
        )


def _by_words(side: str, message: str, fallback: Problem) -> Problem:
    for words, kind, part, step in _WORDS:
        if words in message:
            return Problem(f"{side}-{kind}", message, step, field=f"{side}.url ({part})")
    return fallback


def _said(error: HeadraceError) -> tuple[str, str]:
    step = error.next_step or "See the server's log."
    return error.message, f"{step[:1].upper()}{step[1:]}"
