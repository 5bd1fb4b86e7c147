"""The tables of the state database."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, MetaData, String, Table, Text

__all__ = ["VERSION", "certificates", "meta", "metadata", "progress", "requests", "reread"]

VERSION = 5
"""Written into the database; raise it with every new column."""

metadata = MetaData()

requests = Table(
    "requests",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("request_id", String, nullable=False, unique=True),
    Column("scope", String, nullable=False),
    Column("table", String, nullable=False),
    Column("keys", Text, nullable=False),
    Column("missing", Text, nullable=False),
    Column("state", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_s", Float, nullable=False),
    Column("updated_s", Float, nullable=False),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("cause", String, nullable=False, server_default="ASKED"),
    Column("predicate", Text, nullable=False, server_default=""),
    Column("delete_missing", Boolean, nullable=False, server_default="0"),
    Column("pace", Text, nullable=False, server_default="{}"),
    Column("key_order", String, nullable=False, server_default=""),
)
"""Dump requests in order of submission. ``keys`` and ``missing`` are JSON lists of keys as the source renders them.

``pace`` is a JSON object of the settings of `headrace.state.pace.OwnPace` that are set.
"""

progress = Table(
    "progress",
    metadata,
    Column("request_id", String, primary_key=True),
    Column("table", String, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("until", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("chunks", Integer, nullable=False),
    Column("rows_read", BigInteger, nullable=False),
    Column("rows_emitted", BigInteger, nullable=False),
    Column("rows_voided", BigInteger, nullable=False),
    Column("rows_estimated", BigInteger, nullable=False),
    Column("completed_scn", BigInteger, nullable=False),
    Column("keys_done", BigInteger, nullable=False, server_default="0"),
    Column("rows_per_s", Float, nullable=False, server_default="0"),
    Column("first_scn", BigInteger, nullable=False, server_default="0"),
    Column("key_order", String, nullable=False, server_default=""),
)
"""One table of one request. ``after`` is the last key of the last finished chunk, JSON, empty at the start."""

reread = Table(
    "reread",
    metadata,
    Column("table", String, primary_key=True),
    Column("key", Text, primary_key=True),
)
"""Keys whose row moved in with missing columns while the table's dump was running."""

certificates = Table(
    "certificates",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("request_id", String, nullable=False),
    Column("table", String, nullable=False),
    Column("after", Text, nullable=False),
    Column("last", Text, nullable=False),
    Column("low_scn", BigInteger, nullable=False),
    Column("high_scn", BigInteger, nullable=False),
    Column("snapshot", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("emitted", BigInteger, nullable=False),
    Column("digest", String, nullable=False),
    Column("schema_id", String, nullable=False),
)
"""What each finished chunk vouches for."""

meta = Table(
    "meta",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)
"""Single values: the source's incarnation, the SCN up to which a snapshot has seen everything, the pace, the slots at
servers."""
