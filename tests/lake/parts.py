"""Lives of tables that are partitioned: few values, of any type, among which rows move."""

# ruff: noqa: DTZ001 - columns of local time hold times without a zone

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.delta_log import DeltaTable
from headrace.lake.mapping import in_files
from headrace.model.schema import TableSchema
from headrace.testing.lives import Transaction, random_life
from headrace.testing.notation import MISSING
from tests.places import local

SPARK_TEXTS: list[Any] = [None, "a/b=c%d e", " ", "ü#?", "null", "%2F", "..", "a'b\"c*", "{[^]}\n"]
"""Texts that Spark writes as they are, too."""
TEXTS: list[Any] = [*SPARK_TEXTS, "__HIVE_DEFAULT_PARTITION__", "long/" * 80]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.string(): TEXTS,
    pa.date32(): [None, dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    pa.decimal128(12, 4): [None, Decimal("-0.5000"), Decimal("12345678.0001"), Decimal("0.0000")],
    pa.bool_(): [None, True, False],
    pa.int16(): [None, -32768, 0, 7],
    pa.timestamp("us"): [
        None,
        dt.datetime(2024, 2, 29, 10),
        dt.datetime(1969, 12, 31, 23, 59, 59, 7),
    ],
    pa.timestamp("us", tz="UTC"): [
        None,
        dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
        dt.datetime(1, 1, 1, 0, 0, 0, 999_999, tzinfo=dt.UTC),
    ],
}


def typed(schema: TableSchema, column: str, type_: pa.DataType) -> TableSchema:
    """Return the table with a column of another type."""
    columns = (replace(c, type=type_) if c.name == column else c for c in schema.columns)
    return replace(schema, columns=tuple(columns))


def placed_life(
    schema: TableSchema, column: str, rng: random.Random, length: int, *, whole: bool = False
) -> list[Transaction]:
    """Return a random life in which one column has few values, those of `VALUES` for its type."""
    place = schema.names.index(column)
    values = VALUES[schema.column(column).type]

    def placed(cells: tuple[Any, ...]) -> tuple[Any, ...]:
        told = cells[place]
        if told != MISSING:
            told = values[int(str(told).rpartition("-")[2]) % len(values)]
        return (*cells[:place], told, *cells[place + 1 :])

    return [
        replace(
            one,
            rows=[(scn, order, op, placed(cells)) for scn, order, op, cells in one.rows],
            had={key: placed(cells) for key, cells in one.had.items()},
            state={key: placed(cells) for key, cells in one.state.items()},
        )
        for one in random_life(schema, rng, length, whole=whole)
    ]


def check_files(folder: Path, names: Sequence[str]) -> int:
    """Assert that files lie in folders of their partitions, without the columns; return the number of partitions."""
    held = DeltaTable(folder).snapshot()
    assert held.partition_columns == tuple(names)
    known = [in_files(held.schema.field(name)) for name in names]
    others = {in_files(field) for field in held.schema if field.name not in names}
    partitions = set()
    for file in held.files:
        assert [*file.partition_values] == known
        assert local(file.path).is_file()
        below = local(file.path).relative_to(folder).parts[:-1]
        assert [part.partition("=")[0] for part in below] == known
        assert set(pq.read_schema(file.path).names) <= others
        assert not {*file.statistics()["nullCount"]} & {*known}
        partitions.add(tuple(file.partition_values.values()))
    return len(partitions)
