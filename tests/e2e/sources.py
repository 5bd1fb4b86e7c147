"""End-to-end tests over both kinds of database."""

from __future__ import annotations

import contextlib

import psycopg
import pytest

from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.settings import MysqlSettings

__all__ = ["on_each_source", "run_at"]

on_each_source = pytest.mark.parametrize(
    "kind", ["postgres", pytest.param("mysql", marks=pytest.mark.mariadb)]
)


def run_at(url: str, *statements: str) -> None:
    """Run statements at the database that a URL names, each in a transaction of its own unless they say otherwise."""
    if url.startswith("mysql:"):
        with connect(MysqlSettings(url)) as session:
            session.run(*statements)
        return
    with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
        for statement in statements:
            connection.execute(statement.encode())
