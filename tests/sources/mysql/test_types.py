"""The table of types of docs/mysql.md: the log's value and the select's are one Arrow value."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headrace.errors import SourceError, UndecodableValue
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableId, render_type
from headrace.sources.mysql.catalog import facts_schema, read_collations, read_table
from headrace.sources.mysql.charsets import CODECS, decode_text
from headrace.sources.mysql.connection import connect, quote
from headrace.sources.mysql.engine import ENGINES, Engine
from headrace.sources.mysql.results import select
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.texts import selected
from headrace.sources.mysql.vendors import vendor_of
from headrace.sources.mysql.versions import Version, version_of
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.binlog_servers import is_mysql
from tests.fixtures_binlog import MARIADB, Sql
from tests.requirements import req
from tests.sources.mysql.kinds import Kind, documented, kinds, on_servers
from tests.sources.mysql.support import changes, decoded, here, settings

KINDS = kinds()


def create(kind: Kind, suffix: str = "") -> str:
    charset = " CHARACTER SET utf8mb4" if suffix == "" else suffix
    texts = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
    declared = kind.name + charset * kind.name.startswith(texts)
    return f"CREATE TABLE t (id int PRIMARY KEY, v {declared} NULL)"


def fill(kind: Kind, made: int, seed: int = 5) -> str:
    """Return an insert of all extremes, a null, and values that are made up."""
    rng = random.Random(seed)
    values = ["NULL", *kind.values]
    if kind.make is not None:
        values += [kind.make(rng) if rng.random() < 0.9 else "NULL" for _ in range(made)]
    rows = ", ".join(f"({n}, {value})" for n, value in enumerate(values))
    return f"INSERT INTO t VALUES {rows}"


def read(
    server: MysqlProtocolServer, table: TableId, engine: Engine, zero_dates: ZeroDates = "refuse"
) -> tuple[dict[str, tuple[str, str]], pa.RecordBatch]:
    """Return a table by a select, with name and neutral type of each column as the catalog has it."""
    with connect(settings(server)) as session:
        facts = read_table(session, table, read_collations(session))
        assert facts is not None
        types = {c.name: c.type for c in facts.columns if c.type is not None}
        wanted = ", ".join(selected(type_, quote(name)) for name, type_ in types.items())
        sql = f"SELECT {wanted} FROM {table} ORDER BY 1"
        # In pieces, so that rows come in several batches.
        pieces = select(session, sql, engine, facts, facts_schema(facts), zero_dates, 500)
        rows = pa.Table.from_batches(batch for batch, _ in pieces).combine_chunks().to_batches()[0]
        assert session.value("SELECT 1") == "1"
    named = {name: (type_.name, render_type(type_.arrow)) for name, type_ in types.items()}
    return named, rows


def test_the_document_has_every_type_once() -> None:
    names = [name for name, *_ in documented()]
    assert len(names) == len(set(names)) > 50


@req("D112", "P18")
@pytest.mark.parametrize(("server", "kind"), on_servers(KINDS), indirect=["server"])
def test_a_value_is_the_same_through_the_log_and_by_a_select(
    server: MysqlProtocolServer, database: str, sql: Sql, kind: Kind
) -> None:
    table = TableId(database, "t")
    start = here(server)
    sql("SET NAMES utf8mb4", "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
    sql(create(kind), fill(kind, made=60))
    (twin, *others) = [decoded(server, table, start, engine=e) for e in ENGINES.values()]
    (map_,) = twin.maps
    assert map_.named
    assert [column.name for column in map_.columns] == ["id", "v"]
    assert twin.rows.schema.field("v").metadata[b"source_type"].decode() == kind.name
    for found in others:
        assert found.rows.schema.equals(twin.rows.schema, check_metadata=True)
        assert bits(found.rows.column("v")) == bits(twin.rows.column("v"))
    for engine in ENGINES.values():
        types, rows = read(server, table, engine)
        assert types["v"] == (kind.name, kind.neutral)
        assert rows.schema.field("v").type == twin.rows.schema.field("v").type
        for name in ("id", "v"):
            assert bits(rows.column(name)) == bits(twin.rows.column(name)), name


def bits(column: pa.Array) -> list[object]:
    """Return cells so that what differs in any bit differs."""
    return encode_rows([column]).to_pylist()


@req("D112")
def test_every_collation_that_the_server_lists_is_known(server: MysqlProtocolServer) -> None:
    with connect(settings(server)) as session:
        listed = session.texts(vendor_of(session).collations)
        widths = session.texts(
            "SELECT character_set_name, maxlen FROM information_schema.character_sets"
        )
        found = read_collations(session)
    assert len(listed) > 200
    assert found.charsets == {int(number or 0): name for number, name in listed}
    assert found.widths == {name: int(width or 0) for name, width in widths}


@req("D112")
def test_character_sets_are_decoded_as_the_server_converts_them(
    server: MysqlProtocolServer,
) -> None:
    with connect(settings(server)) as session:
        widths = read_collations(session).widths
        single = [name for name in CODECS if widths.get(name) == 1]
        assert len(single) > 8
        for charset in single:
            wanted = ", ".join(
                f"CONVERT(_{charset} X'{code:02x}' USING utf8mb4)" for code in range(256)
            )
            (row,) = session.rows(f"SELECT {wanted}")
            for code, cell in enumerate(row):
                assert cell is not None
                if cell == b"?" and code != ord("?"):
                    with pytest.raises(ValueError):
                        decode_text(bytes([code]), charset)
                else:
                    assert decode_text(bytes([code]), charset) == cell.decode(), (charset, code)


@pytest.mark.parametrize(
    "charset", ["latin1", "cp1251", "koi8r", "ucs2", "utf16le", "utf32", "utf8mb3"]
)
def test_text_of_other_character_sets_is_the_same_both_ways(
    server: MysqlProtocolServer, database: str, sql: Sql, charset: str
) -> None:
    start = here(server)
    words = {"latin1": "é€ß", "cp1251": "Жук", "koi8r": "Жук"}.get(charset, "é日Ж")
    sql(
        "SET NAMES utf8mb4",
        f"CREATE TABLE t (id int PRIMARY KEY, a varchar(20), b text, c char(9), e enum('{words}', 'x')) "
        f"CHARACTER SET {charset}",
        f"INSERT INTO t VALUES (1, '{words}', '{words}', '{words} ', '{words}'), (2, 'plain', '', NULL, 'x')",
    )
    found = decoded(server, TableId(database, "t"), start)
    assert changes(found.rows) == [
        ("+I", 1, words, words, words, words),
        ("+I", 2, "plain", "", None, "x"),
    ]
    for engine in ENGINES.values():
        types, rows = read(server, TableId(database, "t"), engine)
        for name in types:
            assert bits(found.rows.column(name)) == bits(rows.column(name))
    for name, (type_, _) in types.items():
        assert found.rows.schema.field(name).metadata[b"source_type"].decode() == type_


def test_text_that_is_not_decoded_here_is_refused_by_name(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(9) CHARACTER SET sjis)",
        "INSERT INTO t VALUES (1, 'a')",
    )
    with pytest.raises(SourceError, match=rf"{database}\.t\.v has the character set sjis"):
        decoded(server, TableId(database, "t"), start)


BAD_DATES = ("'0000-00-00'", "'2024-00-01'", "'2024-02-31'", "'0000-01-01'")


@pytest.mark.parametrize("type_", ["date", "datetime", "datetime(3)"])
@pytest.mark.parametrize("value", BAD_DATES)
def test_a_date_that_is_no_day_is_refused_or_null(
    server: MysqlProtocolServer, database: str, sql: Sql, type_: str, value: str
) -> None:
    start = here(server)
    sql(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        f"CREATE TABLE t (id int PRIMARY KEY, v {type_})",
        f"INSERT INTO t VALUES (1, '2024-02-29'), (2, {value}), (3, NULL)",
    )
    table = TableId(database, "t")
    for engine in ENGINES.values():
        with pytest.raises(UndecodableValue, match=rf"{database}\.t\.v: ") as caught:
            decoded(server, table, start, engine=engine)
        assert value.strip("'") not in str(caught.value)
        with pytest.raises(UndecodableValue, match=rf"{database}\.t\.v: ") as caught:
            read(server, table, engine)
        assert value.strip("'") not in str(caught.value)
        rows = decoded(server, table, start, "null", engine).rows
        assert [cell is None for cell in rows.column("v").to_pylist()] == [False, True, True]
        _, found = read(server, table, engine, "null")
        assert found.column("v").equals(rows.column("v"))


def test_a_timestamp_of_zeros_is_no_day_either(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql(
        "SET sql_mode = ''",
        "CREATE TABLE t (id int PRIMARY KEY, v timestamp(3) NULL)",
        "INSERT INTO t VALUES (1, '0000-00-00 00:00:00')",
    )
    with pytest.raises(UndecodableValue, match=r"zero_dates"):
        decoded(server, TableId(database, "t"), start)
    assert changes(decoded(server, TableId(database, "t"), start, "null").rows) == [("+I", 1, None)]


@pytest.mark.parametrize("server", [MARIADB], indirect=True)
def test_columns_of_unknown_form_are_refused_by_name(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(200) COMPRESSED)",
        "INSERT INTO t VALUES (1, 'a')",
    )
    with pytest.raises(SourceError, match=rf"{database}\.t has a COMPRESSED column"):
        decoded(server, TableId(database, "t"), start)


def test_without_names_in_the_log_the_catalog_has_them_and_must_have_the_same_columns(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    table = TableId(database, "t")
    mysql = is_mysql(server)
    sql(f"SET GLOBAL binlog_row_metadata = {'MINIMAL' if mysql else 'NO_LOG'}")
    try:
        sql(
            "CREATE TABLE t (id int unsigned PRIMARY KEY, a varchar(20) CHARACTER SET latin1, "
            f"u {'char(36)' if mysql else 'uuid'}, "
            "e enum('x', 'y'))",
            "INSERT INTO t VALUES (4294967295, 'é', '123e4567-e89b-12d3-a456-426655440000', 'y')",
        )
        found = decoded(server, table, start)
        assert not found.maps[0].named
        cells = (4294967295, "é", "123e4567-e89b-12d3-a456-426655440000", "y")
        assert changes(found.rows) == [("+I", *cells)]
        sql("ALTER TABLE t MODIFY a varchar(30) CHARACTER SET latin1")
        with pytest.raises(SourceError, match=rf"{database}\.t: the log does not name its columns"):
            decoded(server, table, start)
    finally:
        sql("SET GLOBAL binlog_row_metadata = FULL")


def test_the_log_and_the_catalog_describe_one_version(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    columns = ", ".join(
        f"c{n} {kind.name} NULL" for n, kind in enumerate(KINDS) if kind.only in ("", server.kind)
    )
    sql(
        "SET NAMES utf8mb4",
        f"CREATE TABLE t (k varchar(9), {columns}, n int NOT NULL, PRIMARY KEY (n, k)) CHARACTER SET utf8mb4",
        "INSERT INTO t (k, n) VALUES ('a', 1)",
    )
    table = TableId(database, "t")
    (map_,) = decoded(server, table, start).maps
    with connect(settings(server)) as session:
        facts = read_table(session, table, read_collations(session))
    logged = version_of(map_, lambda _: facts)
    bare = tuple(type(column)("", column.type, column.nullable) for column in map_.columns)
    unnamed = type(map_)(map_.table_id, map_.table, bare, None, map_.raw)
    by_catalog = version_of(unnamed, lambda _: facts)
    assert isinstance(logged, Version)
    assert logged == by_catalog
    assert logged.schema.key == ("k", "n")
    assert logged.schema.schema_id == by_catalog.schema.schema_id
