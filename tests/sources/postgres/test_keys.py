"""Keys of every type on real servers: chunks of 1, 2 and 7 rows give each row once, in the database's own order.

Rows and keys are compared with a plain select of the same server under the same settings, cell by cell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headrace.model.change import table_arrow_schema
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableId
from headrace.sources.base import Finding
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.catalog import read_tables
from headrace.sources.postgres.chunks import PostgresChunkReader
from headrace.sources.postgres.connection import Session, connect
from headrace.sources.postgres.keyset import read_keyset
from headrace.sources.postgres.values import build_batch
from headrace.testing.postgres import DebianPostgres, EmbeddedPostgres
from headrace.testing.postgres_server import PostgresServer
from tests.fixtures_postgres import Sql
from tests.requirements import req

pytestmark = pytest.mark.postgres

T = TableId("public", "t")

COLLATIONS = (
    "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    "CREATE COLLATION base_letters (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
    "CREATE COLLATION numbers (provider = icu, locale = 'en-u-kn-true')",
    'CREATE COLLATION "Odd ""name""" (provider = icu, locale = \'de-u-co-phonebk\')',
)
CITEXT = ('CREATE SCHEMA "far away"', 'CREATE EXTENSION citext SCHEMA "far away"')

WORDS = "('a'), ('B'), ('c'), ('D'), ('e'), ('é'), ('F'), ('ä'), ('z'), ('Z1'), ('10'), ('9'), ('-'), (' ')"


@dataclass(frozen=True)
class Case:
    """A table ``t`` whose key has one type.

    Attributes:
        columns: of the key, with their types.
        values: rows of the key, as SQL.
        before: statements that come first.
        key: how the key is declared, as SQL behind ``ALTER TABLE t``; the primary key when empty.
        odd: whether the server's order must differ from the order of the keys' bytes.
        analysed: whether the planner has statistics.
    """

    columns: str
    values: str
    before: tuple[str, ...] = ()
    key: str = ""
    odd: bool = True
    analysed: bool = True

    @property
    def names(self) -> list[str]:
        return [part.split()[0] for part in self.columns.split("; ")]

    def create(self, connection: psycopg.Connection[Any]) -> None:
        names = ", ".join(self.names)
        key = self.key or f"ADD PRIMARY KEY ({names})"
        statements = (
            *self.before,
            f"CREATE TABLE t (v serial, {self.columns.replace('; ', ', ')}, w text DEFAULT 'w')",
            f"INSERT INTO t ({names}) VALUES {self.values}",
            *(f"{statement.strip()}" for statement in key.replace("ADD ", "ALTER TABLE t ADD ", 1).split(";")),
            *(["ANALYZE t"] if self.analysed else []),
        )  # fmt: skip
        for statement in statements:
            connection.execute(statement.encode())


EVERYWHERE = {
    "integer": Case("k int", "(10), (9), (-1), (-10), (0), (100), (2147483647), (-2147483648)"),
    "smallint": Case("k smallint", "(10), (9), (-1), (32767), (-32768)"),
    "bigint": Case("k bigint", "(10), (9), (-1), (9223372036854775807), (-9223372036854775808)"),
    "numeric": Case(
        "k numeric",
        "(-10), (9), (10), (0.10), (1e30), ('NaN'), ('Infinity'), ('-Infinity'), (1e-20), (-0.5)",
    ),
    "numeric(10,2)": Case("k numeric(10,2)", "(-10), (9), (10.5), (10.45), (-0.01), (0)"),
    "numeric(40,3)": Case("k numeric(40,3)", "(9), (10.125), (-1e36), (1e36)"),
    "double precision": Case(
        "k float8", "(10), (9), (-0.0), (1e300), ('NaN'), ('-Infinity'), (0.1), (1e15), (1e-7)"
    ),
    "real": Case("k real", "(10), (9), (0.1), (1e-45), (3.4e38), (1e6), (16777216)"),
    "boolean": Case("k bool", "(true), (false)", odd=False),
    "bytea": Case(
        "k bytea", "('\\x00'), ('\\xff00'), (''), ('\\x5c'), ('\\x27'), ('\\x0a')", odd=False
    ),
    "uuid": Case(
        "k uuid",
        "('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'), ('00000000-0000-0000-0000-000000000000'), "
        "('ffffffff-ffff-ffff-ffff-ffffffffffff'), ('0fffffff-0000-0000-0000-000000000001')",
        odd=False,
    ),
    "date": Case("k date", "('0044-03-15 BC'), ('0001-01-01'), ('2024-02-29'), ('12024-01-01')"),
    "timestamp": Case(
        "k timestamp", "('0044-03-15 01:02:03 BC'), ('2024-02-29 12:00:00.5'), ('12024-01-01')"
    ),
    "timestamptz": Case(
        "k timestamptz",
        "('2024-01-01 00:00:00.000001+09'), ('2024-01-01 00:00+10'), ('0044-01-01 BC'), ('12024-01-01')",
    ),
    "timestamptz(0)": Case("k timestamptz(0)", "('2024-01-01'), ('0044-01-01 BC'), ('12024-01-01')"),
    "time": Case("k time", "('24:00'), ('00:00'), ('12:34:56.789')", odd=False),
    "timetz": Case("k timetz", "('12:00+09'), ('11:00+00'), ('12:00-09'), ('03:00+00')"),
    "interval": Case("k interval", "('1 mon'), ('29 days'), ('31 days'), ('-1 sec'), ('1 year')"),
    "inet": Case("k inet", "('10.0.0.1/8'), ('9.0.0.1'), ('::1'), ('10.0.0.1'), ('fe80::/10')"),
    "cidr": Case("k cidr", "('10.0.0.0/8'), ('9.0.0.0/8'), ('::/0'), ('10.0.0.0/16')"),
    "macaddr": Case("k macaddr", "('08:00:2b:01:02:03'), ('ff:00:2b:01:02:03')", odd=False),
    "bit": Case("k bit varying(9)", "(B'101'), (B'1'), (B''), (B'01')", odd=False),
    "money": Case("k money", "(10), (9), (-1), (1000)"),
    "oid": Case("k oid", "(10), (9), (4294967295)"),
    "pg_lsn": Case("k pg_lsn", "('16/B374D848'), ('2/0'), ('0/0')"),
    "enum": Case(
        "k mood",
        "('sad'), ('it''s ok'), ('Happy')",
        ("CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'Happy')",),
    ),
    "enum, named oddly": Case(
        'k "My ""Mood"""',
        "('z'), ('a')",
        ("CREATE TYPE \"My \"\"Mood\"\"\" AS ENUM ('z', 'a')",),
    ),
    "char(4)": Case("k char(4)", "('a'), ('ab'), (''), ('B'), ('a b')", odd=False),
    "bpchar": Case("k bpchar", "('a'), ('ab'), ('B ')", odd=False),
    # PostgreSQL 18.4 cannot plan a range of an analysed column of this type (cache lookup failed for collation 0).
    '"char"': Case('k "char"', "('b'), ('A'), ('''')", odd=False, analysed=False),
    "name": Case("k name", "('b'), ('A'), ('some name')", odd=False),
    "varchar(8)": Case("k varchar(8)", "('b'), ('A'), ('a '), ('a')", odd=False),
    "text": Case(
        "k text",
        "(''), (' '), ('a\"b'), ('a\\b'), ('\\'), ('a,b'), ('{}'), ('NULL'), ('ä€😀'), (E'a\\nb'), ('''')",
        odd=False,
    ),
    "array": Case("k int[]", "('{1,2}'), ('{}'), ('{10}'), ('{9}'), ('{NULL}'), ('{{1},{2}}')"),
    "array of text": Case("k text[]", "('{a,\"b c\"}'), ('{\"\"}'), ('{\"\\\\\",b}')", odd=False),
    "composite type": Case(
        "k pair", "(ROW(10, 'a')), (ROW(9, 'b,c')), (ROW(9, NULL))",
        ("CREATE TYPE pair AS (x int, y text)",),
    ),
    "range": Case("k int4range", "('[1,5)'), ('[10,)'), ('empty'), ('[9,10)')"),
    "jsonb": Case("k jsonb", "('{\"b\": 1}'), ('[]'), ('10'), ('9'), ('\"x\"')"),
    "domain": Case(
        "k price",
        "(10), (9), (100.5)",
        ("CREATE DOMAIN cents AS numeric(12,2)", "CREATE DOMAIN price AS cents CHECK (VALUE > 1)"),
    ),
    "domain whose check is broken": Case(
        "k shape",
        "('b'), ('A'), ('long')",
        ("CREATE DOMAIN shape AS varchar(20)",),
        "ADD PRIMARY KEY (k); ALTER DOMAIN shape ADD CHECK (length(VALUE) < 2) NOT VALID",
        odd=False,
    ),
    "two columns": Case("a int; b text", "(10, 'a'), (10, 'B'), (9, 'z'), (9, ''), (-1, 'q')"),
    "two columns, index order": Case(
        "a int; b int", "(1, 10), (1, 9), (2, 10), (2, 9), (3, 10)", key="ADD PRIMARY KEY (b, a)"
    ),
    "three columns": Case(
        "a date; b int; c text",
        "('2024-01-01', 10, 'x'), ('2024-01-01', 9, 'x'), ('2024-01-01', 9, 'y'), ('0044-01-01 BC', 1, '')",
    ),
    "column carried along": Case(
        "k int; x text", "(10, 'a'), (9, 'b')", key="ADD PRIMARY KEY (k) INCLUDE (x)"
    ),
    "descending index": Case(
        "k int; l int",
        "(10, 1), (9, 1), (9, 2), (-1, 1)",
        key="ADD CHECK (true); CREATE UNIQUE INDEX i ON t (k DESC, l DESC);"
        "ALTER TABLE t ALTER k SET NOT NULL, ALTER l SET NOT NULL;"
        "ALTER TABLE t REPLICA IDENTITY USING INDEX i",
    ),
    "index of both directions": Case(
        "k int; l int; m int",
        "(10, 1, 1), (10, 2, 1), (10, 2, 2), (9, 1, 1), (9, 2, 5), (9, 2, 4), (100, 1, 1), (-1, 1, 1)",
        key="ADD CHECK (true); CREATE UNIQUE INDEX i ON t (k, l DESC, m);"
        "ALTER TABLE t ALTER k SET NOT NULL, ALTER l SET NOT NULL, ALTER m SET NOT NULL;"
        "ALTER TABLE t REPLICA IDENTITY USING INDEX i",
    ),
    "index with nulls first": Case(
        "k int",
        "(10), (9), (-1)",
        key="ADD CHECK (true); CREATE UNIQUE INDEX i ON t (k NULLS FIRST);"
        "ALTER TABLE t ALTER k SET NOT NULL; ALTER TABLE t REPLICA IDENTITY USING INDEX i",
    ),
    "index of patterns": Case(
        "k text",
        "('b'), ('A'), ('a')",
        key="ADD CHECK (true); CREATE UNIQUE INDEX i ON t (k text_pattern_ops);"
        "ALTER TABLE t ALTER k SET NOT NULL; ALTER TABLE t REPLICA IDENTITY USING INDEX i",
        odd=False,
    ),
    "deferrable key": Case(
        "k int",
        "(10), (9), (-1)",
        key="ADD PRIMARY KEY (k) DEFERRABLE INITIALLY DEFERRED; ALTER TABLE t REPLICA IDENTITY FULL",
    ),
}  # fmt: skip

ON_DEBIAN = {
    "ICU": Case('k text COLLATE "en-x-icu"', WORDS, COLLATIONS),
    "ICU, numbers in text": Case("k text COLLATE numbers", "('a10'), ('a9'), ('A9')", COLLATIONS),
    "ICU, named oddly": Case('k text COLLATE "Odd ""name"""', WORDS, COLLATIONS),
    "ICU, case ignored": Case("k text COLLATE ci", WORDS, COLLATIONS),
    "ICU, case and accents ignored": Case(
        "k text COLLATE base_letters", "('a'), ('B'), ('É'), ('f'), ('Z')", COLLATIONS
    ),
    "ICU, char(n)": Case('k char(6) COLLATE "en-x-icu"', WORDS, COLLATIONS),
    "ICU in a domain": Case(
        "k label",
        WORDS,
        (*COLLATIONS, 'CREATE DOMAIN label AS varchar(9) COLLATE "en-x-icu"'),
    ),
    "index finer than its column": Case(
        "k text COLLATE ci",
        "('a'), ('A'), ('B'), ('b'), ('ä'), ('Ä'), ('c')",
        COLLATIONS,
        'ADD CHECK (true); CREATE UNIQUE INDEX i ON t (k COLLATE "C");'
        "ALTER TABLE t ALTER k SET NOT NULL; ALTER TABLE t REPLICA IDENTITY USING INDEX i",
        odd=False,
    ),
    "index coarser than its column": Case(
        'k text COLLATE "C"',
        WORDS,
        COLLATIONS,
        "ADD CHECK (true); CREATE UNIQUE INDEX i ON t (k COLLATE ci);"
        "ALTER TABLE t ALTER k SET NOT NULL; ALTER TABLE t REPLICA IDENTITY USING INDEX i",
    ),
    "citext": Case('k "far away".citext', WORDS, CITEXT),
    "citext behind a number": Case(
        'a int; b "far away".citext',
        "(10, 'a'), (10, 'B'), (10, 'c'), (9, 'a'), (9, 'B'), (-1, 'x'), (10, 'D'), (9, '')",
        CITEXT,
    ),
    "citext before two numbers": Case(
        'a "far away".citext; b int; c int',
        "('a', 10, 1), ('B', 10, 1), ('a', 9, 2), ('a', 9, 10), ('c', 1, 1), ('B', 9, 1), ('D', 1, 1)",
        CITEXT,
    ),
    "domain over citext": Case(
        "k email", WORDS, (*CITEXT, 'CREATE DOMAIN email AS "far away".citext CHECK (VALUE <> \'x\')')
    ),
    "ltree": Case("k ltree", "('b'), ('a.b'), ('a'), ('a.B'), ('a_b')", ("CREATE EXTENSION ltree",), odd=False),
    "isbn": Case(
        "k isbn", "('0-393-04002-X'), ('0-306-40615-2')", ("CREATE EXTENSION isn",), odd=False
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Server:
    """A database for many cases, one after the other."""

    admin: psycopg.Connection[Any]
    reader: PostgresChunkReader
    session: Session


@contextmanager
def serving(running: PostgresServer) -> Iterator[Server]:
    url = running.create_database("keys")
    source = PostgresSource(url)
    reader = source.chunks()
    with psycopg.connect(url, autocommit=True) as admin, connect(source.settings) as session:
        yield Server(admin, reader, session)
    reader.close()
    running.drop_database("keys")


@pytest.fixture(scope="module")
def newest(postgres_server: PostgresServer) -> Iterator[Server]:
    with serving(postgres_server) as server:
        yield server


@pytest.fixture(scope="module")
def older(older_server: EmbeddedPostgres) -> Iterator[Server]:
    with serving(older_server) as server:
        yield server


@pytest.fixture(scope="module")
def debian(debian_server: DebianPostgres) -> Iterator[Server]:
    with serving(debian_server) as server:
        yield server


def walk(reader: PostgresChunkReader, limit: int) -> list[pa.RecordBatch]:
    """Read the whole table as a dump does; each chunk starts behind the last key of the one before."""
    until = reader.upper_bound(T).key
    after: tuple[str, ...] | None = None
    chunks = []
    assert until is not None
    while True:
        chunk = reader.read(T, after, until, limit)
        chunks.append(chunk.rows)
        assert chunk.rows.num_rows <= limit
        if chunk.rows.num_rows < limit:
            return chunks
        after = chunk.last_key


def check(server: Server, case: Case) -> None:
    for statement in (
        'DROP SCHEMA IF EXISTS public, "far away" CASCADE',
        "CREATE SCHEMA public",
    ):
        server.admin.execute(statement.encode())
    case.create(server.admin)
    reader, session = server.reader, server.session
    (facts,) = read_tables(session, only=T)
    keyset = read_keyset(session, facts.identity.index)
    order = ", ".join(column.order() for column in keyset.columns)
    schema = reader.describe(T)
    assert set(schema.key) == set(case.names) - ({"x"} if "INCLUDE" in case.key else set())

    # What a plain select says, as text: the log's form.
    cells = session.cells(f"SELECT v, {', '.join(case.names)}, w FROM t ORDER BY {order}".replace(
        " FROM t ", " FROM public.t "
    ))  # fmt: skip
    plain = pa.RecordBatch.from_arrays(
        build_batch(schema, cells), schema=table_arrow_schema(schema)
    )
    keys = [tuple((row[i] or b"").decode() for i in schema.key_indexes) for row in cells]
    if case.odd:
        assert keys != sorted(keys), "the test's own rows do not tell the orders apart"

    for limit in (1, 2, 7):
        rows = pa.Table.from_batches(walk(reader, limit)).combine_chunks()
        assert encode_rows(rows.columns).equals(encode_rows(plain.columns)), limit
    until = reader.upper_bound(T).key
    assert until == keys[-1]
    whole = reader.read(T, None, until, 1000)
    rendered = reader.render_keys(schema, whole.rows)
    assert rendered == keys
    assert whole.last_key == keys[-1]

    # Each key finds its own row and nothing else, alone and together.
    found = reader.read_keys(T, keys).rows
    assert sorted(found.column("v").to_pylist()) == sorted(plain.column("v").to_pylist())
    for key, number in zip(keys, plain.column("v").to_pylist(), strict=True):
        assert reader.read_keys(T, [key]).rows.column("v").to_pylist() == [number]

    _ranges_of_the_index(session, keyset, keys)


def _ranges_of_the_index(session: Session, keyset: Any, keys: list[tuple[str, ...]]) -> None:
    """Every scan of a chunk's plan is a range of the key's index, wherever an index may be used at all."""
    names = [column.name.strip('"') for column in keyset.columns]
    # The tables' columns stand in alphabetical order, and so do the cells of a key.
    first, last = (
        [key[sorted(names).index(name)] for name in names] for key in (keys[0], keys[-1])
    )
    selected = [(column.name, column.name) for column in keyset.columns]
    page = keyset.page("ONLY public.t", [*selected, ("w", "w")], first, last, 5)
    session.run("SET enable_seqscan = off")
    session.run("SET enable_bitmapscan = off")
    (top,) = json.loads(session.value(f"EXPLAIN (FORMAT JSON) {page}"))
    nodes = list(_nodes(top["Plan"]))
    scans = [node for node in nodes if "Scan" in node["Node Type"] and "Relation Name" in node]
    assert scans
    for scan in scans:
        assert scan["Node Type"] == "Index Scan", page
        assert "Index Cond" in scan, page
    # What is sorted, if anything, is what the ranges gave, at most a chunk from each.
    sorts = [node for node in nodes if "Sort" in node["Node Type"]]
    assert not sorts or len(scans) > 1, page
    for node in sorts:
        below = next(n for n in list(_nodes(node))[1:] if n["Node Type"] != "Subquery Scan")
        assert below["Node Type"] in ("Append", "Limit"), page


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


@pytest.mark.parametrize("name", EVERYWHERE)
@req("T1", "T3")
def test_a_key_of_this_type_walks_once_in_the_servers_order(newest: Server, name: str) -> None:
    check(newest, EVERYWHERE[name])


@pytest.mark.long
@pytest.mark.parametrize("name", EVERYWHERE)
@req("T1", "T3")
def test_a_key_of_this_type_walks_once_on_16(older: Server, name: str) -> None:
    check(older, EVERYWHERE[name])


@pytest.mark.debian_postgres
@pytest.mark.parametrize("name", [*EVERYWHERE, *ON_DEBIAN])
@req("T1", "T3")
def test_a_key_of_this_type_or_collation_walks_once_on_15(debian: Server, name: str) -> None:
    check(debian, (EVERYWHERE | ON_DEBIAN)[name])


def findings(database: str) -> dict[str, Finding]:
    return {finding.table: finding for finding in PostgresSource(database).preflight()}


def test_a_unique_index_that_lets_null_in_is_no_key_until_it_does_not(
    database: str, sql: Sql
) -> None:
    sql(
        "CREATE TABLE nullable (id int, v text)",
        "CREATE UNIQUE INDEX by_id ON nullable (id)",
        "CREATE TABLE usable (id int NOT NULL, v text)",
        "CREATE UNIQUE INDEX by_number ON usable (id)",
        "CREATE TABLE partial (id int NOT NULL)",
        "CREATE UNIQUE INDEX by_part ON partial (id) WHERE id > 0",
        "CREATE TABLE multiset (id int UNIQUE)",
        "ALTER TABLE multiset REPLICA IDENTITY FULL",
        "INSERT INTO multiset VALUES (NULL), (NULL), (1)",
    )
    found = findings(database)
    assert {table: finding.name for table, finding in found.items()} == {
        "public.nullable": "nullable-key",
        "public.usable": "no-key",
        "public.partial": "no-key",
    }
    assert "index by_id lets id be null" in found["public.nullable"].description
    assert "PRIMARY KEY" in found["public.partial"].suggestion
    for table in ("nullable", "usable"):
        sql(*found[f"public.{table}"].suggestion.partition("; or ")[0].split(";"))
    sql("DROP TABLE partial")
    assert findings(database) == {}
    # Without a key a table is a multiset: rows with null are there as often as at the source.
    reader = PostgresSource(database).chunks()
    dump = reader.read_table(TableId("public", "multiset"))
    rows = [row["id"] for batch in dump.batches for row in batch.to_pylist()]
    assert sorted(rows, key=str) == [1, None, None]
    reader.close()


@pytest.mark.since(18)
def test_a_key_that_was_never_validated_not_to_be_null_is_refused(database: str, sql: Sql) -> None:
    """From 18 on NOT NULL may be NOT VALID, and the index still serves as replica identity."""
    sql(
        "CREATE TABLE t (id int, v int)",
        "INSERT INTO t VALUES (NULL, 1), (2, 2)",
        "ALTER TABLE t ADD CONSTRAINT filled NOT NULL id NOT VALID",
        "CREATE UNIQUE INDEX by_id ON t (id)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX by_id",
    )
    assert findings(database)["public.t"].name == "nullable-key"
    sql("UPDATE t SET id = 1 WHERE id IS NULL", "ALTER TABLE t VALIDATE CONSTRAINT filled")
    assert findings(database) == {}


@pytest.mark.parametrize("name", ["text", "array of text", "composite type"])
def test_literals_do_not_depend_on_how_the_server_reads_backslashes(
    newest: Server, name: str
) -> None:
    newest.admin.execute("ALTER DATABASE keys SET standard_conforming_strings = off")
    try:
        newest.reader.close()  # It connects again, under the new setting.
        check(newest, EVERYWHERE[name])
    finally:
        newest.admin.execute("ALTER DATABASE keys RESET standard_conforming_strings")
        newest.reader.close()


def test_keys_and_rows_of_a_database_that_is_not_utf8(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
        admin.execute(
            "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    with psycopg.connect(postgres_server.url("latin"), autocommit=True) as admin:
        admin.execute("CREATE TABLE t (k text PRIMARY KEY, j jsonb, a text[])")
        admin.execute(
            "INSERT INTO t SELECT k, to_jsonb(k), ARRAY[k] FROM unnest('{é,a,ÿ,z}'::text[]) k"
        )
    reader = PostgresSource(postgres_server.url("latin")).chunks()
    rows = pa.Table.from_batches(walk(reader, 1)).to_pylist()
    assert rows == [{"k": k, "j": f'"{k}"', "a": f"{{{k}}}"} for k in "azéÿ"]
    assert reader.read_keys(T, [("ÿ",), ("x",)]).rows.column("k").to_pylist() == ["ÿ"]
    reader.close()
    postgres_server.drop_database("latin")
