"""Parts of tables on a real server: conditions that people write, and keys that they write."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.errors import ConfigError, SourceError
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.chunks import PostgresChunkReader
from tests.fixtures_postgres import Sql
from tests.requirements import req

pytestmark = pytest.mark.postgres

T = TableId("public", "t")


@pytest.fixture
def reader(database: str, sql: Sql) -> Iterator[PostgresChunkReader]:
    sql(
        "CREATE TABLE t (n int, k text, v text, PRIMARY KEY (k, n))",
        "INSERT INTO t SELECT n, k, 'v' || n FROM unnest('{a,b}'::text[]) k,"
        " generate_series(1, 10) n",
    )
    chunks = PostgresSource(database).chunks()
    yield chunks
    chunks.close()


def read(reader: PostgresChunkReader, predicate: str, limit: int = 3) -> list[tuple[int, str]]:
    until = reader.upper_bound(T, predicate).key
    after: tuple[str, ...] | None = None
    rows: list[tuple[int, str]] = []
    while until is not None:
        chunk = reader.read(T, after, until, limit, predicate)
        rows += [(row["n"], row["k"]) for row in chunk.rows.to_pylist()]
        after = chunk.last_key
        if chunk.rows.num_rows < limit:
            break
    return rows


@req("P05")
@pytest.mark.parametrize(
    ("predicate", "numbers"),
    [
        ("n % 2 = 0", [2, 4, 6, 8, 10]),
        ("n = 1 OR n = 9 -- the first and one of the last", [1, 9]),
        ("v IN (SELECT 'v' || g FROM generate_series(3, 4) g)", [3, 4]),
    ],
)
def test_a_condition_chooses_rows_in_key_order(
    reader: PostgresChunkReader, predicate: str, numbers: list[int]
) -> None:
    assert read(reader, predicate) == [(n, k) for k in ("a", "b") for n in numbers]


def test_a_condition_bounds_the_read_by_its_own_last_row(reader: PostgresChunkReader) -> None:
    # In the order of the table's columns, as keys travel.
    assert reader.upper_bound(T).key == ("10", "b")
    assert reader.upper_bound(T, "n < 4 AND k = 'a'").key == ("3", "a")
    assert reader.upper_bound(T, "n > 100").key is None


@req("C60")
@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        ("nope = 1", 'column "nope" does not exist'),
        ("n = ", "syntax error"),
        ("n", "must be type boolean"),
        ("v::int > 0", "22P02"),
        ("nextval('missing') > 0", 'relation "missing" does not exist'),
        ("true; DROP TABLE t", "syntax error"),
        ("true) ; COMMIT ; DROP TABLE t ; SELECT (1", "multiple commands"),
    ],
)
def test_a_condition_that_the_server_refuses_has_its_reason(
    reader: PostgresChunkReader, sql: Sql, predicate: str, reason: str
) -> None:
    with pytest.raises(SourceError, match=r"public\.t cannot be read under the given") as caught:
        reader.upper_bound(T, predicate)
    assert reason in caught.value.message
    assert "correct the condition" in caught.value.next_step
    # What a row holds is nobody's business.
    assert "v1" not in caught.value.message
    assert reader.upper_bound(T).key == ("10", "b")


def test_a_condition_never_writes(reader: PostgresChunkReader, sql: Sql) -> None:
    sql(
        "CREATE FUNCTION take() RETURNS boolean LANGUAGE sql AS $$ DELETE FROM public.t; SELECT true $$"
    )
    with pytest.raises(SourceError, match="read-only transaction"):
        reader.upper_bound(T, "public.take()")
    assert reader.upper_bound(T).key == ("10", "b")


@req("H09", "A-14")
def test_keys_are_rendered_as_the_server_does(reader: PostgresChunkReader) -> None:
    written = [(" 7", "a"), ("007", "a"), ("1", "x,\"y'"), ("7", "a")]
    found = reader.canonical_keys(T, written)
    assert found.keys == (("7", "a"), ("1", "x,\"y'"))
    assert found.key_order == reader.upper_bound(T).key_order
    for wrong, why in (([("7",)], "a key has 2 columns"), ([("seven", "a")], "not a value")):
        with pytest.raises(ConfigError, match=why):
            reader.canonical_keys(T, wrong)


@req("H09", "A-14")
@pytest.mark.parametrize(
    ("type_", "held", "written"),
    [
        ("numeric", "1.50", "1.5"),
        ("interval", "1 day", "24:00:00"),
        ("float8", "-0", "0"),
        ("jsonb", '{"a": 1.0}', '{"a": 1}'),
    ],
)
def test_a_key_is_written_as_its_row_has_it(
    sql: Sql, reader: PostgresChunkReader, type_: str, held: str, written: str
) -> None:
    """What is looked for by its value must be found by its text, or a row that is there is told to be missing."""
    sql(
        f"CREATE TABLE spelt (n int, k {type_}, PRIMARY KEY (n, k))",
        f"INSERT INTO spelt VALUES (1, '{held}'), (2, '{held}')",
    )
    table = TableId("public", "spelt")
    keys = reader.canonical_keys(table, [("1", written), ("1", held), ("3", written)]).keys
    assert keys[0] == ("1", held)
    assert [n for n, _ in keys] == ["1", "3"]
    chunk = reader.read_keys(table, keys)
    assert reader.render_keys(chunk.schema, chunk.rows) == [keys[0]]


@req("P06")
def test_a_key_becomes_a_row_without_its_other_columns(reader: PostgresChunkReader) -> None:
    schema = reader.describe(T)
    rows = reader.key_rows(schema, [("7", "a"), ("8", "b")])
    assert rows.to_pylist() == [{"n": 7, "k": "a", "v": None}, {"n": 8, "k": "b", "v": None}]
    assert reader.render_keys(schema, rows) == [("7", "a"), ("8", "b")]
    assert rows.schema.types == [pa.int32(), pa.string(), pa.string()]
