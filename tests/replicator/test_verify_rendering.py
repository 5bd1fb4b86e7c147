from __future__ import annotations

import pytest

from headrace.lake.digest import digest_rows
from headrace.model.schema import TableId
from headrace.sources.postgres.digest import SourceView
from headrace.sources.postgres.settings import PostgresSettings
from headrace.testing.postgres import EmbeddedPostgres, embedded_versions
from tests.replicator.verify_bench import Bench
from tests.requirements import req

pytestmark = pytest.mark.postgres

# Column type, and values as SQL literals of that type.
GAUNTLET: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "0", "32767"],
    "integer": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "real": ["-0", "0", "NaN", "Infinity", "-Infinity", "1e-40", "3.4028235e38", "0.1"],
    "double precision": [
        "-0",
        "NaN",
        "-Infinity",
        "1e-300",
        "0.1",
        "4.9e-324",
        "1.7976931348623157e308",
    ],
    "numeric(12,2)": ["0", "-0.01", "1.5", "9999999999.99", "-9999999999.99"],
    "numeric(38,10)": ["1e-10", "-9999999999999999999999999999.9999999999"],
    "numeric(38,0)": ["-99999999999999999999999999999999999999", "0"],
    "numeric(5,5)": ["0.00001", "-0.99999"],
    "numeric": ["1e-50", "1.500", "NaN", "123456789012345678901234567890123456789012.5", "0.00"],
    "numeric(50,3)": ["1.5", "-12345678901234567890123456789012345678901234567.125"],
    "text": ["", " ", "größe 漢字 🦀", "N", "3:abc", "\\x00", "line\nbreak\ttab"],
    "varchar(10)": ["", "abc  "],
    "char(5)": ["", "ab", "é"],
    '"char"': ["x"],
    "name": ["a name"],
    "bytea": ["", "\\x00", "\\x00ff7f80", "\\xdeadbeef"],
    "date": [
        "0001-01-01",
        "1970-01-01",
        "1969-12-31",
        "9999-12-31",
        "0044-03-15 BC",
        "12024-01-01",
        "4713-01-01 BC",
        "5874897-12-31",
        "infinity",
        "-infinity",
    ],
    "time": ["00:00:00", "23:59:59.999999", "24:00:00"],
    "timetz": ["12:00:00.5+05:30"],
    "timestamp": [
        "1969-12-31 23:59:59.999999",
        "2024-02-29 12:00:00.000001",
        "0001-01-01 00:00:00",
        "0044-03-15 01:02:03.4 BC",
        "12024-01-01 00:00:00.5",
        "294247-01-10 04:00:54.775806",
        "infinity",
        "-infinity",
    ],
    "timestamptz": [
        "1969-12-31 23:59:59.999999+00",
        "2024-10-27 02:30:00+02",
        "1582-10-10 00:00:00+00",
        "4713-01-01 00:00:00+00 BC",
        "infinity",
        "-infinity",
    ],
    "interval": ["1 year 2 mons -3 days 04:05:06.7", "-00:00:00.000001"],
    "uuid": ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"],
    "json": ['{"b": 1,  "a": [null, 1.50]}', "null"],
    "jsonb": ['{"b": 1,  "a": [null, 1.50]}', '"\\u00e9"'],
    "inet": ["192.168.0.1", "10.0.0.0/8", "::1"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "integer[]": ["{}", "{1,NULL,-3}", "{{1,2},{3,4}}"],
    "text[]": ['{"",NULL,"NULL","a b","q\\"uote"}'],
    "char(3)[]": ["{a,bb}"],
    "timestamptz[]": ['{"2024-01-01 00:00:00+03"}'],
    "float8[]": ["{0.1,NaN,-0}"],
    "mood": ["fine", "très bien"],
    "mood[]": ["{fine}"],
    "price": ["12.5"],
    "pair": ["(1,)", "(,)", '(2,"a b")'],
    "int4range": ["[1,5)", "empty"],
    "tsvector": ["fat cat"],
    "money": ["12.34"],
    "bit(3)": ["101"],
    "varbit": ["", "1"],
    "point": ["(1.5,-2)"],
    "oid": ["4294967295"],
    "xid8": ["18446744073709551615"],
    "pg_lsn": ["16/B374D848"],
}
TYPES = (
    "CREATE TYPE mood AS ENUM ('fine', 'très bien')",
    "CREATE DOMAIN price AS numeric(6,2)",
    "CREATE TYPE pair AS (a int, b text)",
)


def literal(value: str, type_: str) -> str:
    return "'" + value.replace("'", "''") + f"'::{type_}"


def create_gauntlet(bench: Bench) -> list[str]:
    """Create a table per type with each value, null included; return their names."""
    bench.execute(*TYPES)
    names = []
    for number, (type_, values) in enumerate(GAUNTLET.items()):
        name = f"t{number}"
        bench.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v {type_})")
        rows = [f"({i}, {literal(v, type_)})" for i, v in enumerate(values)]
        bench.execute(f"INSERT INTO {name} VALUES {', '.join(rows)}, (99, NULL)")
        names.append(name)
    return names


@pytest.fixture(scope="module", params=sorted(embedded_versions()))
def server(request):
    with EmbeddedPostgres(version=request.param) as server:
        yield server


@pytest.fixture
def bench(server, tmp_path):
    name = "verify"
    bench = Bench(server.create_database(name), tmp_path)
    yield bench
    bench.close()
    server.drop_database(name)


def test_server_and_we_render_every_type_alike(bench):
    names = create_gauntlet(bench)
    differing = []
    tables = [TableId("public", name) for name in names]
    with SourceView(PostgresSettings(url=bench.url), tables) as view:
        for table, type_ in zip(tables, GAUNTLET, strict=True):
            theirs: dict[bytes, bytes] = {}
            for keys, rows in view.row_digests(table, range(256)):
                theirs |= {k.tobytes(): r.tobytes() for k, r in zip(keys, rows, strict=True)}
            batch = bench.rows(table.name).combine_chunks().to_batches()[0]
            ours = digest_rows(view.schemas[table], batch)
            assert len(theirs) == len(GAUNTLET[type_]) + 1
            if theirs != {
                k.tobytes(): r.tobytes() for k, r in zip(ours.keys, ours.rows, strict=True)
            }:
                differing.append(type_)
    assert differing == []


@req("C-18")
def test_a_table_of_every_type_verifies_equal(bench):
    names = create_gauntlet(bench)
    bench.settle(*names)
    bench.cover()
    report = bench.verify()
    assert [table.table for table in report.tables if not table.equal] == []
    assert report.equal
    assert all(table.source_rows == table.target_rows > 1 for table in report.tables)


def test_a_server_that_stores_text_otherwise_renders_alike(server, tmp_path):
    server.execute(
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    bench = Bench(server.url("latin"), tmp_path)
    try:
        bench.execute(
            "CREATE TABLE t (id text PRIMARY KEY, v char(6), w text[])",
            "INSERT INTO t VALUES ('größe', 'é', '{ü,ß}'), ('', NULL, '{}')",
        )
        bench.settle("t")
        bench.cover()
        assert bench.verify().equal
    finally:
        bench.close()
        server.drop_database("latin")


def test_every_type_can_be_a_key(bench):
    bench.execute(*TYPES)
    keyless = {"json", "point"}
    names = []
    for number, (type_, values) in enumerate(GAUNTLET.items()):
        if type_ in keyless:
            continue
        names.append(f"k{number}")
        bench.execute(f"CREATE TABLE k{number} (v {type_} PRIMARY KEY, n int)")
        rows = [f"({literal(v, type_)}, 1)" for v in values]
        bench.execute(f"INSERT INTO k{number} VALUES {', '.join(rows)} ON CONFLICT DO NOTHING")
    bench.settle(*names)
    bench.cover()
    assert bench.verify().equal
