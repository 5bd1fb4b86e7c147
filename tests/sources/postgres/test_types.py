"""The table of types: whichever way a value comes, it is the same Arrow value, and the one that verify is told.

Ways: the log as text and in binary, and the chunk read, each by every decoder that this installation has.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from headrace.errors import SourceUnavailable
from headrace.lake.digest import cell_texts
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableId, TableSchema
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.connection import connect, quote
from headrace.sources.postgres.decoder import ENGINES
from headrace.sources.postgres.digest import cell_sql
from headrace.testing.postgres import DebianPostgres
from tests.fixtures_postgres import Sql, name_of
from tests.requirements import req
from tests.sources.postgres.hostile import HOSTILE
from tests.sources.postgres.kinds import DAY, EXTENDED, EXTENSIONS, KINDS, SETUP, Kind
from tests.sources.postgres.support import Opened, opened

pytestmark = pytest.mark.postgres

CHANGES = (
    "UPDATE {t} SET n = n + 1 WHERE id % 3 = 0",
    "DELETE FROM {t} WHERE id % 5 = 0",
)

BY_ROW = [("id", "ascending"), ("_scn", "ascending"), ("_ord", "ascending")]

ALL = TableId("public", "every")
KNOWN = TableId("public", "known")


def rows_of(
    kinds: Sequence[Kind], rng: random.Random, generated: int
) -> Iterator[list[str | None]]:
    """Yield rows of literals: every extreme, then generated values, nulls among them."""
    for place in range(max(len(kind.values) for kind in kinds) + generated):
        row: list[str | None] = []
        for kind in kinds:
            if place < len(kind.values):
                row.append(kind.values[place])
            elif rng.random() < 0.15:
                row.append(None)
            elif kind.make is not None:
                row.append(kind.make(rng))
            else:
                row.append(rng.choice(list(kind.values)))
        yield row


def create(sql: Sql, table: str, kinds: Sequence[Kind]) -> None:
    columns = "".join(f", c{n} {kind.name}" for n, kind in enumerate(kinds))
    sql(
        f"CREATE TABLE {table} (id serial PRIMARY KEY, n int NOT NULL DEFAULT 0{columns})",
        f"ALTER TABLE {table} REPLICA IDENTITY FULL",
    )


def fill(url: str, kinds: Sequence[Kind], seed: int, generated: int) -> None:
    """Give both tables the same rows, and change them alike."""
    casts = ", ".join(f"%s::text::{kind.name}" for kind in kinds)
    names = ", ".join(f"c{n}" for n in range(len(kinds)))
    known = [n for n, kind in enumerate(kinds) if kind.binary]
    mine, theirs = (", ".join(f"c{n}" for n in places) for places in (range(len(known)), known))
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        # Literals are written in the plain style, whatever the database's own.
        cursor.execute("SET DateStyle = ISO; SET IntervalStyle = postgres")
        statement = f"INSERT INTO every ({names}) VALUES ({casts})".encode()
        cursor.executemany(statement, list(rows_of(kinds, random.Random(seed), generated)))
        copy = f"INSERT INTO known (id, {mine}) SELECT id, {theirs} FROM every ORDER BY id"
        cursor.execute(copy.encode())
    with psycopg.connect(url, autocommit=True) as connection:
        for table in (ALL, KNOWN):
            for change in CHANGES:
                connection.execute(change.format(t=table.name).encode())


def logged(log: Opened) -> pa.Table:
    """Return all change rows up to now."""
    batches = [body.batch for block in log.collect().blocks for body in block.bodies]
    rows = pa.Table.from_batches(batches).sort_by([("_scn", "ascending"), ("_ord", "ascending")])
    return rows.combine_chunks()


def read(source: PostgresSource, table: TableId) -> tuple[TableSchema, pa.Table]:
    """Return a table's rows by way of chunks, by key."""
    reader = source.chunks()
    try:
        until = reader.upper_bound(table).key
        assert until is not None
        chunk = reader.read(table, None, until, 100_000)
        return chunk.schema, pa.Table.from_batches([chunk.rows]).sort_by("id").combine_chunks()
    finally:
        reader.close()


def same(ours: pa.Table, theirs: pa.Table, names: Sequence[str]) -> list[str]:
    """Return the columns that are not the same, bit by bit."""
    found = []
    for name in names:
        one, other = ours.column(name), theirs.column(name)
        if one.type != other.type or not _bits(one).equals(_bits(other)):
            found.append(name)
    return found


def _bits(column: pa.ChunkedArray) -> pa.Array:
    return encode_rows([column.combine_chunks()])


def rendered(source: PostgresSource, schema: TableSchema) -> dict[str, list[bytes | None]]:
    """Return the cells as the server renders them for verify."""
    cells = ", ".join(cell_sql(column) for column in schema.columns)
    with connect(source.settings) as session:
        table = f"{quote(schema.table.schema)}.{quote(schema.table.name)}"
        found = session.cells(f"SELECT {cells} FROM {table} ORDER BY id")
    return dict(zip(schema.names, map(list, zip(*found, strict=True)), strict=True))


def as_rendered(column: pa.ChunkedArray) -> list[bytes]:
    """Return the cells as verify renders ours."""
    texts = cell_texts(column.combine_chunks()).cast(pa.binary()).to_pylist()
    return [b"N" if text is None else b"%d:%s" % (len(text), text) for text in texts]


def check_all_ways(
    url: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    kinds: Sequence[Kind],
    seed: int,
    generated: int,
) -> None:
    """Fill the tables and compare whatever comes of it."""
    known = [kind for kind in kinds if kind.binary]
    tables = {ALL: kinds, KNOWN: known}
    logs: dict[tuple[str, TableId], Opened] = {}
    with ExitStack() as stack:
        for engine in ENGINES:
            monkeypatch.setenv("HEADRACE_DECODER", engine)
            for table in tables:
                name = f"{table.name}_{engine}"
                log = stack.enter_context(
                    opened(url, folder / name, tables=(str(table),), name=name)
                )
                assert log.reader.binary is (table == KNOWN)
                logs[engine, table] = log
        fill(url, kinds, seed, generated)
        streamed = {way: logged(log) for way, log in logs.items()}
        for table, has in tables.items():
            names = ["id", "n", *(f"c{n}" for n in range(len(has)))]
            arrow = [pa.int32(), pa.int32(), *(kind.arrow for kind in has)]
            reference = streamed["python", table]
            assert [reference.column(name).type for name in names] == arrow
            everything = ["_scn", "_ord", "_op", "_missing", *names]
            for engine in ENGINES:
                assert not same(streamed[engine, table], reference, everything), engine
                monkeypatch.setenv("HEADRACE_DECODER", engine)
                schema, chunk = read(logs[engine, table].source, table)
                last = latest(reference)
                assert not same(chunk, last, names), engine
                theirs = rendered(logs[engine, table].source, schema)
                differing = [n for n in names if as_rendered(chunk.column(n)) != theirs[n]]
                assert not differing, engine
        places = [kinds.index(kind) for kind in known]
        text, binary = (streamed["python", table].sort_by(BY_ROW) for table in (ALL, KNOWN))
        names = ["id", "n", *(f"c{place}" for place in places)]
        text = text.select(names).rename_columns(["id", "n", *(f"c{n}" for n in range(len(known)))])
        assert text.num_rows == binary.num_rows
        assert not same(binary, text, text.column_names)


def latest(changes: pa.Table) -> pa.Table:
    """Return the rows that are left, by key."""
    left: dict[int, int] = {}
    columns = (changes.column(name).to_pylist() for name in ("_op", "id"))
    for place, (op, key) in enumerate(zip(*columns, strict=True)):
        if op == "-D":
            del left[key]
        elif op != "-U":
            left[key] = place
    return changes.take([left[key] for key in sorted(left)]).combine_chunks()


def prepare(sql: Sql, url: str, kinds: Sequence[Kind]) -> None:
    sql(*SETUP)
    create(sql, ALL.name, kinds)
    create(sql, KNOWN.name, [kind for kind in kinds if kind.binary])
    name = name_of(url)
    sql(*(f"ALTER DATABASE {name} SET {key} = {value}" for key, value in HOSTILE.items()))


@req("T1", "D112", "D113")
def test_every_type_is_the_same_value_whichever_way_it_comes(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(sql, database, KINDS)
    check_all_ways(database, tmp_path, monkeypatch, KINDS, seed=29, generated=200)


@pytest.mark.long
@req("T1", "D112")
@pytest.mark.parametrize("seed", range(10))
def test_every_type_is_the_same_value_for_very_many_values(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    prepare(sql, database, KINDS)
    check_all_ways(database, tmp_path, monkeypatch, KINDS, seed, generated=3_000)


@pytest.mark.debian_postgres
@req("T1", "D112")
def test_types_of_extensions_and_xml_too(
    debian_server: DebianPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = debian_server.create_database("shop")
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            for name in EXTENSIONS:
                connection.execute(f"CREATE EXTENSION {name} SCHEMA public".encode())

            def sql(*statements: str) -> None:
                for statement in statements:
                    connection.execute(statement.encode())

            kinds = [kind for kind in KINDS if kind.name not in ("pg_snapshot",)] + EXTENDED
            prepare(sql, url, kinds)
        check_all_ways(url, tmp_path, monkeypatch, kinds, seed=30, generated=50)
    finally:
        debian_server.drop_database("shop")


@req("D112")
def test_a_column_of_which_only_the_text_is_known_turns_the_log_to_text(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with opened(database, tmp_path) as log:
        before = log.reader.binary
        sql("INSERT INTO t VALUES (1, 'a')", "ALTER TABLE t ADD w int[]")
        sql("INSERT INTO t VALUES (2, 'b', '{1,NULL}')")
        with pytest.raises(SourceUnavailable, match=r"public\.t"):
            log.collect()
        log.reopen()
        assert (before, log.reader.binary) == (True, False)
        assert log.collect().changes("t") == [("+I", 1, "a"), ("+I", 2, "b", "{1,NULL}")]


@req("D113")
def test_a_column_may_be_wanted_as_text(database: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, a numeric(9,2), b timestamp, c date)")
    texts = {TableId("public", "t"): frozenset({"a", "b"})}
    with opened(database, tmp_path, text_columns=texts) as log:
        sql("INSERT INTO t VALUES (1, 'NaN', '294276-12-31 23:59:59.5', 'infinity')")
        (body,) = log.collect().bodies
        assert body.batch.schema.field("c").type == DAY
        for rows in (
            body.batch,
            log.source.chunks().read(TableId("public", "t"), None, ("1",), 9).rows,
        ):
            assert rows.column("a").to_pylist() == ["NaN"]
            assert rows.column("b").to_pylist() == ["294276-12-31 23:59:59.5"]
        schema, chunk = read(log.source, TableId("public", "t"))
        theirs = rendered(log.source, schema)
        assert all(as_rendered(chunk.column(name)) == theirs[name] for name in schema.names)
