"""Which changes of a key's type may give rows other keys; nothing here needs a server."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.sources.mysql.rekeyed import is_rekeyed


@pytest.mark.parametrize(
    ("before", "after", "rekeyed"),
    [
        ("int", "bigint unsigned", False),
        ("bigint", "int", True),
        ("decimal(5,1)", "decimal(6,2)", False),
        ("decimal(5,2)", "decimal(6,1)", True),
        ("datetime", "datetime(6)", False),
        ("datetime", "timestamp", True),
        ("varchar(5)", "varchar(9)", False),
        ("char(5)", "varchar(9)", False),
        ("char(9)", "varchar(5)", True),
        ("varchar(5)", "text", False),
        ("text", "varchar(5)", True),
        ("varbinary(5)", "varbinary(4)", True),
        ("varbinary(5)", "blob", False),
        ("binary(2)", "binary(2)", False),
        ("enum('a')", "enum('a','b')", True),
        ("int", "varchar(9)", True),
    ],
)
def test_which_types_hold_every_key_of_another_one(before: str, after: str, rekeyed: bool) -> None:
    one, other = (
        TableSchema(
            TableId("d", "t"),
            (Column("k", pa.int64(), source_type, nullable=False),),
            ("k",),
            KeyCheck.IMMEDIATE,
        )
        for source_type in (before, after)
    )
    assert is_rekeyed(one, other, ()) == rekeyed
