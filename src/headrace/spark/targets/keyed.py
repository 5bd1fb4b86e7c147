"""One batch of a table with a key: which statement, and its text.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.fold import ALL_DEAD, DEAD, ROW, origin_name
from headrace.model.schema import TableSchema
from headrace.spark.columns import is_sent, null_safe, quoted
from headrace.spark.failures import MISSING_BASE
from headrace.store import Location

__all__ = ["KeyedBatch"]

_SOURCE = "headrace_folded"
_MOVED = "headrace_moved"
_HELD = "_headrace_held"


@dataclass(frozen=True, slots=True)
class _Shape:
    """Counts of what a batch holds; all that the driver ever sees of its rows."""

    dead: int
    wiped: int
    holes: int
    moved: int
    patched: int
    low: int | None
    high: int | None


class KeyedBatch:
    """The folded changes of one keyed table and one commit.

    Args:
        session: the table's own; carries the identifier that the commit must have.
        schema: table version of the changes.
        folder: of the target table.
        folded: the folded form, kept in memory.
        empty: whether the target holds no row.
        complete: whether every row of the source is in the target.
    """

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

    def commit(self) -> None:
        """Write the batch in one commit."""
        shape = self._measure()
        rows = self._folded
        if shape.moved or shape.holes:
            rows = self._resolve().persist()
        try:
            if shape.wiped or (self._empty and not shape.patched):
                self._write(rows, "overwrite" if shape.wiped else "append")
            else:
                rows.createOrReplaceTempView(_SOURCE)
                self._session.sql(self._merge(shape))
        finally:
            if rows is not self._folded:
                rows.unpersist()

    def _measure(self) -> _Shape:
        """Count what the batch holds, in one pass that also brings it into memory."""
        asks = "_missing IS NOT NULL AND NOT _hole"
        ranged = self._range_key()
        low, high = (f"MIN({ranged})", f"MAX({ranged})") if ranged else ("NULL", "NULL")
        row = self._folded.selectExpr(
            f"COUNT_IF(_effect = '{DEAD}') AS dead",
            f"COUNT_IF(_effect = '{ALL_DEAD}') AS wiped",
            "COUNT_IF(_hole) AS holes",
            f"COUNT_IF({asks} AND NOT ({self._at_home()})) AS moved",
            f"COUNT_IF({asks} AND {self._at_home()}) AS patched",
            f"{low} AS low",
            f"{high} AS high",
        ).first()
        values: dict[str, Any] = row.asDict() if row else {}
        return _Shape(**values)

    def _at_home(self) -> str:
        """Return the condition that the missing cells are those of the row's own key."""
        return " AND ".join(
            f"{quoted(name)} <=> {quoted(origin_name(name))}" for name in self._schema.key
        )

    def _range_key(self) -> str | None:
        """Return the key as SQL when bounds on it let Delta leave files out, else None."""
        column = self._schema.column(self._schema.key[0])
        plain = not column.nullable and pa.types.is_integer(column.type)
        return quoted(column.name) if plain else None

    def _resolve(self) -> DataFrame:
        """Return the batch with the cells of moved rows taken from the rows held at their origin.

        The origin's row is read before anything is written, so it may be deleted or replaced by the same batch.
        """
        lost = f"'{DEAD}'"
        if self._complete:
            lost = f"CAST(RAISE_ERROR(CONCAT('{MISSING_BASE}', HEX(m._missing))) AS STRING)"
        moved = f"_hole OR (_missing IS NOT NULL AND NOT ({self._at_home()}))"
        self._folded.where(moved).createOrReplaceTempView(_MOVED)
        keys = self._schema.key
        origins = " AND ".join(
            f"{{row}}.{quoted(origin_name(name))} <=> {{held}}.{quoted(name)}" for name in keys
        )
        cells = ", ".join(
            f"CASE WHEN {is_sent('m._missing', index)} THEN m.{quoted(name)} "
            f"ELSE b.{quoted(name)} END AS {quoted(name)}"
            for index, name in enumerate(self._schema.names)
        )
        filled = self._session.sql(
            f"SELECT CASE WHEN b.{_HELD} AND NOT m._hole THEN '{ROW}' ELSE {lost} END AS _effect, "
            f"CAST(NULL AS BINARY) AS _missing, {cells} FROM {_MOVED} m LEFT JOIN ("
            f"SELECT t.*, true AS {_HELD} FROM {self._path} t "
            f"LEFT SEMI JOIN {_MOVED} o ON {origins.format(row='o', held='t')}"
            f") b ON {origins.format(row='m', held='b')}"
        )
        settled = self._folded.where(f"NOT ({moved})")
        return settled.select(*filled.columns).unionByName(filled)

    def _write(self, rows: DataFrame, mode: str) -> None:
        """Write whole rows without looking at what the table holds."""
        own = [quoted(name) for name in self._schema.names]
        whole = rows.where(f"_effect = '{ROW}'").select(*own)
        whole.write.format("delta").mode(mode).save(str(self._folder))

    def _merge(self, shape: _Shape) -> str:
        """Return the MERGE statement."""
        schema = self._schema
        own = [quoted(name) for name in schema.names]
        values = [f"s.{name}" for name in own]
        born = f"s._effect = '{ROW}'"
        if shape.patched:
            updates = [
                f"{name} = CASE WHEN {is_sent('s._missing', index)} THEN s.{name} ELSE t.{name} END"
                for index, name in enumerate(own)
            ]
            if self._complete:
                place = schema.key_indexes[0]
                values[place] = self._or_raise(values[place])
            else:
                born += " AND s._missing IS NULL"
        else:
            updates = [f"{name} = s.{name}" for name in own]
        delete = ""
        if shape.dead or shape.moved or shape.holes:
            delete = f"WHEN MATCHED AND s._effect = '{DEAD}' THEN DELETE "
        return (
            f"MERGE INTO {self._path} t USING {_SOURCE} s ON {self._matches(shape)} {delete}"
            f"WHEN MATCHED THEN UPDATE SET {', '.join(updates)} "
            f"WHEN NOT MATCHED AND {born} THEN INSERT ({', '.join(own)}) VALUES ({', '.join(values)})"
        )

    def _or_raise(self, value: str) -> str:
        """Return ``value``, or an error that ends the statement when the row has missing cells."""
        return (
            f"IF(s._missing IS NULL, {value}, "
            f"RAISE_ERROR(CONCAT('{MISSING_BASE}', HEX(s._missing))))"
        )

    def _matches(self, shape: _Shape) -> str:
        """Return the condition that a held row has the key of a changed one."""
        parts = []
        for name in self._schema.key:
            if self._schema.column(name).nullable:
                parts.append(null_safe("t", "s", [name]))
            else:
                parts.append(f"t.{quoted(name)} = s.{quoted(name)}")
        ranged = self._range_key()
        if ranged and shape.low is not None:
            parts.append(f"t.{ranged} BETWEEN {shape.low} AND {shape.high}")
        return " AND ".join(parts)
