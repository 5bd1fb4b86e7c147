"""One batch of a table without a key: rows are counted, and counts are what changes.

Source: docs/paper_map.md, tables without a key.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from headrace.fold import ALL_DEAD, NET
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableSchema
from headrace.spark.columns import quoted, same_cell
from headrace.spark.failures import NEGATIVE_COUNT
from headrace.store import Location

__all__ = ["MultisetBatch"]

_FOLDED = "headrace_folded"
_COUNTED = "headrace_counted"
_SOURCE = "headrace_source"


class MultisetBatch:
    """The folded changes of one keyless table and one commit; arguments as for a keyed batch."""

    def __init__(
        self,
        session: SparkSession,
        schema: TableSchema,
        folder: Location,
        folded: DataFrame,
        *,
        empty: bool,
        complete: bool,
    ) -> None:
        self._session = session
        self._schema = schema
        self._folder = folder
        self._path = f"delta.{quoted(str(folder))}"
        self._folded = folded
        self._empty = empty
        self._complete = complete
        self._own = [quoted(name) for name in schema.names]

    def commit(self) -> None:
        """Write the batch in one commit."""
        row = self._folded.selectExpr(
            f"COUNT_IF(_effect = '{ALL_DEAD}') AS wiped", "COUNT_IF(_count < 0) AS removed"
        ).first()
        wiped, removed = (row.wiped, row.removed) if row else (0, 0)
        self._folded.createOrReplaceTempView(_FOLDED)
        if removed and not wiped:
            self._recount()
            return
        rows = self._repeated(_FOLDED, self._floor("_count"), f"_effect = '{NET}'")
        mode = "overwrite" if wiped else "append"
        rows.write.format("delta").mode(mode).save(str(self._folder))

    def _floor(self, count: str) -> str:
        """Return a count as SQL; below zero it is an error once the table is complete, before that nothing."""
        if self._complete:
            return f"IF({count} < 0, RAISE_ERROR('{NEGATIVE_COUNT}'), {count})"
        return f"GREATEST({count}, 0)"

    def _repeated(self, view: str, count: str, condition: str = "true") -> DataFrame:
        """Return each row of a view as many times as ``count`` says."""
        own = ", ".join(self._own)
        return self._session.sql(
            f"SELECT {own} FROM (SELECT {own}, EXPLODE(ARRAY_REPEAT(1, CAST({count} AS INT))) "
            f"FROM {view} WHERE {condition})"
        )

    def _recount(self) -> None:
        """Delete every held copy of a row whose count falls, and insert as many as are left."""
        counted = self._counted().persist()
        try:
            counted.createOrReplaceTempView(_COUNTED)
            born = self._repeated(_COUNTED, self._floor("_held + _count")).unionByName(
                self._repeated(_FOLDED, "_count", "_count > 0")
            )
            killed = counted.where("_held > 0").select(*self._own)
            source = killed.selectExpr("*", "false AS _born").unionByName(
                born.selectExpr("*", "true AS _born")
            )
            source.createOrReplaceTempView(_SOURCE)
            self._session.sql(self._merge())
        finally:
            counted.unpersist()

    def _counted(self) -> DataFrame:
        """Return the rows whose count falls, with how often the target holds each."""
        cells = ", ".join(f"FIRST(s.{name}) AS {name}" for name in self._own)
        # Rows are told apart by a number: grouping by floats would join 0.0 and -0.0.
        return self._session.sql(
            f"SELECT {cells}, FIRST(s._count) AS _count, COUNT(t._one) AS _held FROM ("
            f"SELECT *, MONOTONICALLY_INCREASING_ID() AS _row FROM {_FOLDED} WHERE _count < 0) s "
            f"LEFT JOIN (SELECT *, 1 AS _one FROM {self._path}) t ON {self._same('t', 's')} "
            "GROUP BY s._row"
        )

    def _same(self, left: str, right: str) -> str:
        return " AND ".join(
            same_cell(left, right, field) for field in table_arrow_schema(self._schema)
        )

    def _merge(self) -> str:
        own = ", ".join(self._own)
        values = ", ".join(f"s.{name}" for name in self._own)
        return (
            f"MERGE INTO {self._path} t USING {_SOURCE} s ON NOT s._born AND {self._same('t', 's')} "
            f"WHEN MATCHED THEN DELETE "
            f"WHEN NOT MATCHED AND s._born THEN INSERT ({own}) VALUES ({values})"
        )
