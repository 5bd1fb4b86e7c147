"""Two frames that should hold the same rows, compared by Spark: a report of counts, and the keys that differ.

Made for a table that moves to a new structure: the rows that the old structure makes of a source commit, and those
that the new one has. Rows are counted, so copies matter and order does not; nothing is gathered in the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.errors import TargetError
from headrace.plural import counted
from headrace.spark.columns import quoted

__all__ = ["Comparison", "compare"]

_EXPECTED, _FOUND = "rows expected", "rows found"
_MISSING, _EXTRA = "only expected", "only found"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two frames have in common and what not, in numbers; ``str`` of it is one line without any row's value.

    Attributes:
        expected_rows: rows that were expected.
        found_rows: rows that were found.
        missing: rows that were expected and whose keys were not found.
        extra: rows that were found and whose keys were not expected.
        different: rows whose keys both sides have, with other cells.
        keys: the keys of those rows, as a frame: their columns, and how many rows of a key only one side has,
            ``only expected`` and ``only found``. Worked out when somebody asks.
    """

    expected_rows: int
    found_rows: int
    missing: int
    extra: int
    different: int
    keys: DataFrame

    @property
    def equal(self) -> bool:
        """Whether both hold the same rows, each as often."""
        return not (self.missing or self.extra or self.different)

    def __str__(self) -> str:
        verdict = "equal" if self.equal else "DIFFERENT"
        return (
            f"{verdict}: {counted(self.expected_rows, 'row')} expected, {self.found_rows} found; "
            f"{self.missing} missing, {self.extra} extra, {self.different} different"
        )


def compare(expected: DataFrame, found: DataFrame, key: Sequence[str] = ()) -> Comparison:
    """Compare two frames row by row, in one job.

    Values are the same when Spark groups them together: null is null, NaN is NaN, 0.0 is -0.0.

    Args:
        expected: what ``found`` should hold.
        found: of the same columns, in any order.
        key: columns that tell rows apart; without any, a changed row is one that is missing and one that is extra.

    Raises:
        TargetError: columns or types are not the same, or the key is not among them.
    """
    _refuse_other_columns(expected, found, key)
    columns = [quoted(name) for name in expected.columns]
    names = [quoted(name) for name in key] or columns
    sides = expected.selectExpr(*columns, f"1L AS `{_EXPECTED}`", f"0L AS `{_FOUND}`").unionAll(
        found.selectExpr(*columns, f"0L AS `{_EXPECTED}`", f"1L AS `{_FOUND}`")
    )
    rows = sides.groupBy(*columns).agg(_sum(_EXPECTED), _sum(_FOUND))
    keys = (
        rows.withColumn(_MISSING, F.expr(f"greatest(`{_EXPECTED}` - `{_FOUND}`, 0L)"))
        .withColumn(_EXTRA, F.expr(f"greatest(`{_FOUND}` - `{_EXPECTED}`, 0L)"))
        .groupBy(*names)
        .agg(_sum(_EXPECTED), _sum(_FOUND), _sum(_MISSING), _sum(_EXTRA))
    )
    both = F.expr(f"coalesce(sum(least(`{_MISSING}`, `{_EXTRA}`)), 0L)")
    ((all_expected, all_found, missing, extra, different),) = keys.agg(
        *(_sum(name) for name in (_EXPECTED, _FOUND, _MISSING, _EXTRA)), both
    ).collect()
    differing = keys.where(f"`{_MISSING}` + `{_EXTRA}` > 0").select(
        *names, f"`{_MISSING}`", f"`{_EXTRA}`"
    )
    return Comparison(
        all_expected, all_found, missing - different, extra - different, different, differing
    )


def _sum(name: str) -> Column:
    """Return the sum of a count, 0 of no row."""
    return F.expr(f"coalesce(sum(`{name}`), 0L) AS `{name}`")


def _refuse_other_columns(expected: DataFrame, found: DataFrame, key: Sequence[str]) -> None:
    ours, theirs = (
        {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        for frame in (expected, found)
    )
    unlike = [
        f"{name} ({ours.get(name, 'not expected')}, {theirs.get(name, 'not found')})"
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
    ]
    if unlike:
        raise TargetError(
            f"The frames have other columns: {', '.join(unlike)}.",
            next_step="select the same columns on both sides, and cast those of another type.",
        )
    if lacking := [name for name in key if name not in ours]:
        raise TargetError(
            f"The frames have no column {', '.join(lacking)} to tell rows apart by.",
            next_step="name the columns of the key as they are called in the frames.",
        )
