"""What only PostgreSQL has: databases and sessions whose letters are not ours."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql as names
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.errors import TargetError
from headrace.fold import fold
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.lake.sql.session import told
from headrace.testing.notation import change_batch, table_of
from headrace.testing.postgres_server import PostgresServer
from tests.lake.sql.warehouses import apply, content, counted
from tests.requirements import req

ROW = (1, "é", "x")
ORDERS = table_of(3, name="tä")


def written(warehouse: PostgresWarehouse, scn: int, *row: int | str) -> None:
    apply(warehouse, ORDERS, fold(ORDERS, [change_batch(ORDERS, [(scn, 0, "+I", row)])]), scn)


@req("C-18")
@pytest.mark.parametrize("told_by", ["database", "url", "environment"])
def test_letters_are_the_same_whatever_a_session_was_told_to_take_them_for(
    database: str, monkeypatch: pytest.MonkeyPatch, told_by: str
) -> None:
    url = database
    if told_by == "database":
        name = names.Identifier(str(conninfo_to_dict(database)["dbname"]))
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute(
                names.SQL("ALTER DATABASE {} SET client_encoding = 'latin1'").format(name)
            )
    elif told_by == "url":
        url = make_conninfo(database, client_encoding="latin1")
    else:
        monkeypatch.setenv("PGCLIENTENCODING", "latin1")
    written(PostgresWarehouse(url), 1, *ROW)
    with psycopg.connect(make_conninfo(database, client_encoding="utf8")) as reader:
        assert reader.execute('SELECT * FROM public."tä"').fetchall() == [ROW]


@pytest.fixture
def latin(postgres_server: PostgresServer, database: str) -> PostgresWarehouse:
    """Give an empty database of another encoding; it goes with the server."""
    name = f"{conninfo_to_dict(database)['dbname']}_latin"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            names.SQL(
                "CREATE DATABASE {} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            ).format(names.Identifier(name))
        )
    return PostgresWarehouse(make_conninfo(database, dbname=name))


def test_a_database_of_another_encoding_holds_its_letters_and_refuses_others(
    latin: PostgresWarehouse,
) -> None:
    written(latin, 1, *ROW)
    with psycopg.connect(make_conninfo(latin.url, client_encoding="utf8")) as reader:
        assert reader.execute('SELECT * FROM public."tä"').fetchall() == [ROW]
    with pytest.raises(TargetError, match="cannot hold a value") as caught, told(latin):
        written(latin, 2, 2, "日", "x")
    assert "日" not in str(caught.value)
    assert counted(content(latin, ORDERS)) == {ROW: 1}
