"""Settings of columns and rows, judged without Spark; and never repeated, for they may hold a secret."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.lake.settings import TableSettings
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.replicator.assess.expressions import expected_schema, transformation_issues
from tests.requirements import req

SCHEMA = TableSchema(
    TableId("public", "t"),
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("name", pa.string(), "text"),
        Column("vip", pa.bool_(), "boolean"),
        Column("we ird", pa.string(), "text"),
        Column("price", pa.decimal128(12, 2), "numeric(12,2)"),
        Column("user", pa.string(), "text"),
    ),
    ("id",),
    KeyCheck.IMMEDIATE,
)

GOOD = [
    "upper(NAME)",
    "concat('xx', `we ird`, name)",
    "CASE WHEN vip THEN name ELSE 'nobody' END",
    "CAST(price AS STRING)",
    "price::double",
    "sha2(concat('salt', name), 256)",
    "array_join(transform(split(name, ','), x -> upper(x)), ';')",
    "regexp_replace(name, '[0-9]', '#')",
    "date_trunc('DAY', TIMESTAMP '2020-01-01 10:00:00')",
    "upper(`user`)",
    "'it says select, now() and current_date'",
    "if(price > 10, 'much', 'little')",
    "nowhere_known(name)",
]
BAD = [
    ("concat(name", "expression-unreadable", "lacking at its end"),
    ("name -- a remark", "expression-unreadable", "no Spark SQL"),
    ("name ==", "expression-unreadable", "lacking at its end"),
    ("name + * 2", "expression-unreadable", "column"),
    ("name\n + + * 2", "expression-unreadable", "line 2"),
    ("name, id", "expression-unreadable", "no single expression"),
    ("name AS other", "expression-unreadable", "no single expression"),
    ("", "expression-unreadable", ""),
    ("drop table t", "expression-unreadable", ""),
    ("name) IS NULL; SELECT (1", "expression-unfit", "select"),
    ("(SELECT 1)", "expression-unfit", "select"),
    ("upper(title)", "expression-column-unknown", "names title,"),
    ("t.name", "expression-column-unknown", "names t.name,"),
    ("max(name)", "expression-unfit", "more than one row"),
    ("sum(id) OVER (PARTITION BY vip)", "expression-unfit", "more than one row"),
    ("explode(split(name, ','))", "expression-unfit", "more than one row"),
    ("*", "expression-unfit", "more than one row"),
    ("rand()", "expression-unfit", "not the same at each replay"),
    ("uuid()", "expression-unfit", "not the same at each replay"),
    ("monotonically_increasing_id()", "expression-unfit", "not the same at each replay"),
    ("current_date", "expression-unfit", "not the same at each replay"),
    ("unix_timestamp()", "expression-unfit", "not the same at each replay"),
]


def issues(settings: TableSettings) -> list[tuple[str, str, str]]:
    found = list(transformation_issues(SCHEMA, settings, "tables.public.*"))
    assert all(p.field.startswith("tables.public.*.") and p.table == "public.t" for p in found)
    return [(p.name, p.column, p.description) for p in found]


@pytest.mark.parametrize("sql", GOOD)
def test_what_spark_takes_is_taken(sql: str) -> None:
    assert issues(TableSettings(mask=(("name", sql),), compute=(("more", sql),))) == []


@req("C97", "C22")
@pytest.mark.parametrize(("sql", "kind", "says"), BAD)
def test_what_it_does_not_take_is_named_and_not_repeated(sql: str, kind: str, says: str) -> None:
    secret = sql.replace("name", "concat('swordfish', name)", 1) if "t." not in sql else sql
    for text in (sql, secret):
        ((name, column, description),) = issues(TableSettings(mask=(("name", text),)))
        assert (name, column) == (kind, "name")
        assert says in description
        assert "swordfish" not in description


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        ("vip", True),
        ("price > 10 AND name IS NOT NULL", True),
        ("name LIKE 'a%'", True),
        ("NOT vip", True),
        ("coalesce(vip, false)", True),
        ("isnotnull(name)", True),
        ("name IN ('a', 'b')", True),
        ("price BETWEEN 1 AND 2", True),
        ("name", False),
        ("price + 1", False),
        ("'true'", False),
        ("name || 'x'", False),
    ],
)
def test_a_where_is_a_condition(where: str, fits: bool) -> None:
    found = issues(TableSettings(where=where))
    assert [name for name, _, _ in found] == ([] if fits else ["expression-unfit"])


def test_all_faults_are_told_and_not_the_first() -> None:
    settings = TableSettings(
        select=("name", "title"),
        rename=(("name", "ID"), ("vip", "v")),
        mask=(("id", "0"), ("name", "upper(")),
        compute=(("Name2", "x"),),
        where="y",
    )
    assert sorted((name, column) for name, column, _ in issues(settings)) == [
        ("expression-column-unknown", ""),
        ("expression-column-unknown", "Name2"),
        ("expression-unreadable", "name"),
        ("transform-column-unknown", "title"),
        ("transform-key-column", "id"),
        ("transform-left-out", "vip"),
        ("transform-names-collide", "ID"),
    ]


@pytest.mark.parametrize(
    ("columns", "fits"),
    [
        (("vip",), True),
        (("label",), True),
        (("part",), True),
        (("name",), False),
        (("nowhere",), False),
    ],
)
def test_partitions_are_columns_of_the_target(columns: tuple[str, ...], fits: bool) -> None:
    settings = TableSettings(
        rename=(("name", "label"),), compute=(("part", "id % 3"),), partition_by=columns
    )
    assert [n for n, _, _ in issues(settings)] == ([] if fits else ["partition-column-unfit"])


def test_the_columns_of_the_target_are_told() -> None:
    settings = TableSettings(
        drop=("vip", "we ird", "user"), rename=(("id", "number"),), compute=(("more", "1"),)
    )
    found = expected_schema(SCHEMA, settings)
    assert (found.names, found.key) == (["number", "name", "price", "more"], ("number",))
