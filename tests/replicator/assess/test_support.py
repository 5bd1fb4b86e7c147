"""What the source can and what the target can make one verdict per column, whatever the two are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.lake.capabilities import DELTA, DUCKDB, MERGE, PARQUET, POSTGRES, Capabilities
from headrace.lake.modes import Mode
from headrace.lake.settings import TableSettings
from headrace.model.schema import TableId
from headrace.replicator.assess.columns import table_verdict
from headrace.replicator.assess.support import Support, column_support, composed, target_types
from headrace.sources.description import ColumnDescription, Given, TableDescription
from headrace.sources.postgres.types import arrow_type
from tests.requirements import req

TARGETS = [DELTA, MERGE, DUCKDB, POSTGRES, PARQUET]
T = TableId("public", "t")
NEUTRAL = [
    *(pa.bool_(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()),
    *(pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
]
UNHELD = [pa.list_(pa.int64()), pa.uint64(), pa.time64("us")]
PLAIN = TableSettings()


def decimals() -> st.SearchStrategy[pa.DataType]:
    def made(precision: int, scale: int) -> pa.DataType:
        return pa.decimal128(precision, min(scale, precision))

    return st.builds(made, st.integers(1, 38), st.integers(0, 38))


types = st.sampled_from(NEUTRAL) | decimals()
targets = st.sampled_from(TARGETS)


def column(name: str, arrow: pa.DataType, given_: Given = Given.EXACT) -> ColumnDescription:
    return ColumnDescription(name, "their_type", True, arrow, given_)


@req("C97", "C96")
@given(types, st.sampled_from(Given), targets)
def test_support_is_composed_of_both_sides(
    arrow: pa.DataType, given_: Given, target: Capabilities
) -> None:
    types = target_types(target)
    found = column_support(T, column("c", arrow, given_), False, PLAIN, types)
    assert found is not None
    held = types.type_of(arrow)
    assert held, "every neutral type has a place in every target"
    assert found.support is composed(given_, held)
    assert (found.support is Support.YES) == (given_ is Given.EXACT)
    # Whatever is not as it was says why, and what is says nothing.
    assert bool(found.message) == (found.support is not Support.YES)
    assert found.target_type == ("" if given_ is Given.ABSENT else held)
    assert found.target_name == ("" if given_ is Given.ABSENT else "c")


@given(st.sampled_from(UNHELD), st.sampled_from(Given), targets)
def test_what_the_target_does_not_hold_does_not_come_over(
    arrow: pa.DataType, given_: Given, target: Capabilities
) -> None:
    assert target_types(target).type_of(arrow) is None
    assert composed(given_, None) is Support.NO


@req("C97")
@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (DELTA, "short decimal(12,2) string timestamp_ntz timestamp binary double date"),
        (MERGE, "short decimal(12,2) string timestamp_ntz timestamp binary double date"),
        (
            POSTGRES,
            "smallint decimal(12, 2) text timestamp timestamptz bytea double precision date",
        ),
        (DUCKDB, "smallint decimal(12, 2) text timestamp timestamptz blob double date"),
        (PARQUET, "int16 decimal(12,2) string timestamp timestamptz binary float64 date"),
    ],
    ids=lambda value: value.name if isinstance(value, Capabilities) else "",
)
def test_each_target_names_its_own_types(target: Capabilities, shown: str) -> None:
    name = target_types(target).type_of
    arrows = [
        *(pa.int16(), pa.decimal128(12, 2), pa.string(), pa.timestamp("us")),
        *(pa.timestamp("us", tz="UTC"), pa.binary(), pa.float64(), pa.date32()),
    ]
    assert " ".join(name(arrow) or "?" for arrow in arrows) == shown


@given(types, targets, st.sampled_from(Mode))
def test_no_mode_makes_more_or_less_of_a_type(
    arrow: pa.DataType, target: Capabilities, mode: Mode
) -> None:
    table = TableDescription(
        T, (column("id", pa.int64()), column("c", arrow)), ("id",), ("id",), 1, 1
    )
    verdict = table_verdict(table, TableSettings(mode), target)
    assert [one.support for one in verdict.columns] == [Support.YES, Support.YES]
    assert verdict.problems == ()
    assert (verdict.not_supported, verdict.partially_supported) == (0, 0)


def test_a_numeric_that_no_decimal_holds_is_text_with_two_ways_out() -> None:
    arrow = arrow_type(1700, -1)
    wide = ColumnDescription("n", "numeric", True, arrow, Given.AS_TEXT)
    found = column_support(T, wide, False, PLAIN, target_types(DELTA))
    assert found is not None
    assert 'ALTER TABLE "public"."t" ALTER COLUMN "n" TYPE numeric(38, 10);' in found.message
    assert found.remedies == ("mask n CAST(`n` AS DECIMAL(38, 10))",)
    # A column of the key cannot be masked.
    key = column_support(T, wide, True, PLAIN, target_types(DELTA))
    assert key is not None
    assert key.remedies == ("compute n_number CAST(`n` AS DECIMAL(38, 10))",)


def test_what_is_not_wanted_is_not_judged_and_what_an_expression_makes_is_the_expressions() -> None:
    columns = (
        column("id", pa.int64()),
        column("a", pa.string(), Given.AS_TEXT),
        column("b", pa.string(), Given.AS_TEXT),
        ColumnDescription("c", "text", True, pa.string(), Given.EXACT, captured=False),
    )
    table = TableDescription(T, columns, ("id",), ("id",), 1, 1)
    settings = TableSettings(
        drop=("b",),
        rename=(("a", "z"),),
        mask=(("a", "upper(a)"),),
        compute=(("made", "id + 1"),),
    )
    verdict = table_verdict(table, settings, DELTA)
    shown = [(c.source_name, c.target_name, c.support.value, c.transforms) for c in verdict.columns]
    assert shown == [
        ("id", "id", "YES", ()),
        ("a", "z", "YES", ("rename a z", "mask a")),
        ("", "made", "YES", ("compute made",)),
    ]


def test_warnings_that_are_not_wanted_are_not_counted() -> None:
    columns = (column("id", pa.int64()), column("a", pa.string(), Given.AS_TEXT))
    table = TableDescription(T, columns, ("id",), ("id",), 1, 1)
    assert table_verdict(table, PLAIN, DELTA).partially_supported == 1
    assert table_verdict(table, PLAIN, DELTA, quiet={"a"}).partially_supported == 0
