"""The tables of a control plane's database, as they are after the last migration."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "RETIRED",
    "audit",
    "drafts",
    "generations",
    "leases",
    "metadata",
    "namespaces",
    "replicators",
]

metadata = MetaData()

_Number = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only where the type is exactly INTEGER."""

namespaces = Table(
    "namespaces",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("name", String(40), nullable=False, unique=True),
    Column("created_ms", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
"""A number is never given twice: what belonged to a namespace that was deleted does not come back with its name."""

drafts = Table(
    "drafts",
    metadata,
    Column("namespace", _Number, ForeignKey("namespaces.number"), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("label", Text, nullable=False),
    Column("config", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
)
"""Unfinished configurations; ``config`` is JSON as it was given, its references to secrets unresolved."""

replicators = Table(
    "replicators",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("namespace", _Number, ForeignKey("namespaces.number"), nullable=False),
    Column("name", String(40), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("config", Text, nullable=False),
    Column("base", Text, nullable=False),
    Column("desired", String(20), nullable=False),
    Column("state", String(20), nullable=False),
    Column("reason", Text, nullable=False),
    Column("drop_target", Boolean, nullable=False),
    Column("leave_source", Boolean, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    UniqueConstraint("namespace", "name"),
    sqlite_autoincrement=True,
)
"""``generation`` tells a replicator from one of its name that was deleted, ``revision`` one configuration from the
next, ``version`` one write of the row from the next; ``base`` is where relative paths of ``config`` begin."""

generations = Table(
    "generations",
    metadata,
    Column("namespace", _Number, primary_key=True),
    Column("name", String(40), primary_key=True),
    Column("last", BigInteger, nullable=False),
)
"""The last generation of each name, kept when its replicator goes; when its namespace goes, under `RETIRED` and the
name that no other replicator of the control plane has."""

RETIRED = 0
"""In the place of a namespace's number, which begin with 1: the namespace is no more."""

audit = Table(
    "audit",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("who", String(100), nullable=False),
    Column("what", String(40), nullable=False),
    Column("object", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    sqlite_autoincrement=True,
)
"""Who asked for what, and what became of it."""

leases = Table(
    "leases",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("until_s", Float(53), nullable=False),
)
"""Who may write; ``until_s`` is seconds since 1970 on the database's clock."""
