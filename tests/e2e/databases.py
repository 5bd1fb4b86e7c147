"""The databases that replicators copy from: the same questions and statements, whichever server it is."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest

__all__ = ["KINDS", "asked", "connected", "each_source", "said"]

KINDS = ("postgres", "mariadb", "mysql")


def each_source(*, kinds: Sequence[str] = KINDS, long: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Run a test on each kind of server, which its fixtures take from ``kind``.

    Args:
        kinds: of servers.
        long: kinds that wait for ``--long``.
    """
    of_kind: dict[str, tuple[pytest.MarkDecorator, ...]] = {
        "mariadb": (pytest.mark.mariadb,),
        "mysql": (pytest.mark.mysql,),
    }
    later = dict.fromkeys(long, (pytest.mark.long,))
    return pytest.mark.parametrize(
        "kind",
        [
            pytest.param(kind, marks=[*of_kind.get(kind, ()), *later.get(kind, ())])
            for kind in kinds
        ],
    )


def connected(url: str) -> Any:
    """Return a session in which each statement is a transaction."""
    parts = urlsplit(url)
    if parts.scheme != "mysql":
        return psycopg.connect(url, autocommit=True)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        charset="utf8mb4",
        autocommit=True,
    )


def said(url: str, *statements: str) -> None:
    """Run statements in one session, each in a transaction of its own unless they say otherwise."""
    with contextlib.closing(connected(url)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def asked(url: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with contextlib.closing(connected(url)) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())
