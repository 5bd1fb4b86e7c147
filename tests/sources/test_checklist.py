"""The checklist of docs/sources.md: every answer of a database is a statement that its real server understands."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.testing.mariadb_server import MariadbServer
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.testing.mysql_server import MysqlServer
from headrace.testing.postgres import EmbeddedPostgres
from tests.requirements import req

DOCUMENT = Path(__file__).parents[2] / "docs" / "sources.md"
BEGINNING = "START TRANSACTION"
"""Begins statements that have no rows."""

Ask = Callable[[str], int]
"""Runs a statement; returns how many rows it has."""


def answers(database: str) -> list[tuple[str, str]]:
    """Return what a database must offer, each with the statement in its column."""
    text = DOCUMENT.read_text()
    lines = text[text.index("| must offer |") :].split("\n\n")[0].splitlines()
    place = [cell.strip() for cell in lines[0].split("|")].index(database)
    found = []
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.split("|")]
        match = re.fullmatch(r"`(.+)`", cells[place])
        assert match is not None, f"{database} has no answer to {cells[1]}"
        found.append((cells[1], match[1]))
    return found


@contextlib.contextmanager
def _postgres() -> Iterator[Ask]:
    with EmbeddedPostgres() as server, psycopg.connect(server.create_database("c")) as connection:
        connection.autocommit = True
        yield lambda sql: max(connection.execute(sql.encode()).rowcount, 0)


@contextlib.contextmanager
def _server(kind: type[MysqlProtocolServer]) -> Iterator[Ask]:
    with kind() as server, contextlib.closing(server.connect()) as connection:

        def ask(sql: str) -> int:
            with connection.cursor() as cursor:
                return cursor.execute(sql)

        yield ask


@req("N28")
@pytest.mark.parametrize(
    ("database", "opened"),
    [
        pytest.param("PostgreSQL", _postgres, marks=pytest.mark.postgres),
        pytest.param("MySQL", lambda: _server(MysqlServer), marks=pytest.mark.mysql),
        pytest.param("MariaDB", lambda: _server(MariadbServer), marks=pytest.mark.mariadb),
    ],
    ids=["postgres", "mysql", "mariadb"],
)
def test_each_database_answers_every_line_of_the_checklist(
    database: str, opened: Callable[[], contextlib.AbstractContextManager[Ask]]
) -> None:
    listed = answers(database)
    assert len(listed) > 9
    with opened() as ask:
        for what, statement in listed:
            rows = ask(statement)
            if statement.startswith(BEGINNING):
                ask("ROLLBACK")
            else:
                assert rows, what
