"""A step's changes with the columns and rows that a table's settings make of them.

In: the folded form, or the changes as they came, of the source's columns. Out: the same form of the target's. Values
are made by Spark's own expressions; what was not sent is worked out here: a column made of columns that were all left
out is left out itself, one of which some were sent and some were not cannot be made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.errors import UnsentColumn
from headrace.fold import DEAD, NET, ROW, origin_name
from headrace.fold.effects import codes_of
from headrace.fold.form import FORM_COLUMNS
from headrace.lake.batch import form_of
from headrace.lake.modes import COMMITTED_AT, Mode
from headrace.model.change import (
    DELETE,
    INSERT,
    META,
    PATCH,
    READ,
    TRUNCATE,
    UPDATE_NEW,
    missing_matrix,
    pack_missing,
)
from headrace.model.schema import KeyCheck, TableSchema
from headrace.spark.columns import quoted, spark_ddl
from headrace.spark.shaping import Expression, Shaping
from headrace.spark.targets.base import Folded, Kernel

__all__ = ["ShapedStep"]

Flags = npt.NDArray[np.bool_]


class ShapedStep:
    """Changes behind the settings of their table.

    Args:
        given: the changes of the source's columns.
        schema: the source's version.
        shaping: the settings.
        mode: of the table; decides the form.
    """

    def __init__(self, given: Folded, schema: TableSchema, shaping: Shaping, mode: Mode) -> None:
        self._given = given
        self._form = form_of(shaping.shape(schema), mode)
        self._rules = _Rules(schema, shaping.shape(schema), shaping, mode)
        self.rows = given.rows

    def frame(self) -> DataFrame:
        """Return them as rows for Spark's own statements."""
        return self.through(lambda rows: rows, spark_ddl(self._form))

    def through(self, kernel: Kernel, ddl: str) -> DataFrame:
        """Return what ``kernel`` makes of the whole of it, in one task."""
        rules = self._rules
        # One partition in, one out: what makes the frame leaves it whole.
        made = self._given.frame().selectExpr(*rules.expressions())
        return made.mapInArrow(lambda batches: kernel(rules.rows(batches)), ddl)

    def inside(self) -> Callable[[], Iterator[pa.RecordBatch]] | None:
        """Return None: expressions are Spark's."""
        return None


@dataclass(frozen=True, slots=True)
class _Rules:
    """What becomes of each row; runs in a task."""

    schema: TableSchema
    target: TableSchema
    shaping: Shaping
    mode: Mode

    @property
    def _ahead(self) -> list[str]:
        """Columns of the form that stand ahead of the table's own."""
        if self.mode is Mode.MIRROR:
            return [*FORM_COLUMNS, *(origin_name(name) for name in self.schema.key)]
        return [*META, COMMITTED_AT]

    def expressions(self) -> list[str]:
        """Return what Spark selects: the form's columns, each output, and whether the row is wanted."""
        where = self.shaping.where
        return [
            *(quoted(name) for name in self._ahead),
            *(f"{o.made.sql} AS `out {n}`" for n, o in enumerate(self.shaping.outputs)),
            f"COALESCE({where.sql if where else 'true'}, false) AS `wanted`",
        ]

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the target's form."""
        held = list(batches)
        if not held:
            return
        table = self._without_mended(pa.Table.from_batches(held))
        missing = self._missing(table)
        counts = self._counts(table)
        form = form_of(self.target, self.mode)
        absent = np.column_stack(
            [self._absent(o.made, missing, counts) for o in self.shaping.outputs]
        )
        width = len(self._ahead)
        cells = [
            table.column(place).cast(field.type)
            for place, field in zip(range(table.num_columns - 1), form, strict=True)
        ]
        for number in range(absent.shape[1]):
            if absent[:, number].any():
                blank = pa.array(absent[:, number])
                cells[width + number] = pc.if_else(blank, None, cells[width + number])
        masks = [pack_missing(np.flatnonzero(row), absent.shape[1]) for row in absent]
        cells[self._ahead.index("_missing")] = pa.chunked_array([pa.array(masks, pa.binary())])
        made = pa.Table.from_arrays(cells, schema=form)
        yield from (
            self._wanted(made, table["wanted"], missing, counts).combine_chunks().to_batches()
        )

    def _missing(self, table: pa.Table) -> Flags:
        return missing_matrix(table["_missing"].combine_chunks(), len(self.schema.columns))

    def _without_mended(self, table: pa.Table) -> pa.Table:
        """Return the rows without patches that cannot be made and whose keys were read again behind them.

        A mirror's have become one with what was read. Of other tables they would stand in the way for ever.
        """
        if self.mode in (Mode.MIRROR, Mode.APPEND):
            return table
        missing = self._missing(table)
        unmade = np.zeros(table.num_rows, bool)
        for made in (output.made for output in self.shaping.outputs):
            inputs = missing[:, list(made.inputs)]
            unmade |= inputs.any(axis=1) & ~inputs.all(axis=1)
        if self.shaping.where is not None:
            unmade |= missing[:, list(self.shaping.where.inputs)].any(axis=1)
        unmade &= _one_of(table["_op"], (PATCH,))
        if not unmade.any():
            return table
        sources = [output.source for output in self.shaping.outputs]
        places = [len(self._ahead) + sources.index(name) for name in self.schema.key]
        codes = codes_of([table.column(place).combine_chunks() for place in places])
        ops = table["_op"].to_pylist()
        keep = np.ones(table.num_rows, bool)
        for place in np.flatnonzero(unmade).tolist():
            same = (np.flatnonzero(codes[place:] == codes[place]) + place).tolist()
            patches = list(takewhile(lambda other: ops[other] == PATCH, same))
            if len(patches) < len(same) and ops[same[len(patches)]] == READ:
                keep[patches] = False
        return table.filter(pa.array(keep))

    def _counts(self, table: pa.Table) -> Flags:
        """Return the rows whose cells come to stand in the target by themselves."""
        if self.mode is Mode.APPEND:
            return np.zeros(table.num_rows, bool)
        if self.mode is Mode.MIRROR:
            return _one_of(table["_effect"], (ROW, NET))
        return _one_of(table["_op"], (INSERT, READ, UPDATE_NEW, PATCH))

    def _absent(self, made: Expression, missing: Flags, counts: Flags) -> Flags:
        """Return where a column was left out; an image that is only told lacks it as soon as one input lacks."""
        inputs = missing[:, list(made.inputs)]
        if not inputs.any():
            return np.zeros(len(missing), bool)
        some, all_ = inputs.any(axis=1), inputs.all(axis=1)
        if (some & ~all_ & counts).any():
            raise self._unsent(made, inputs[some & ~all_ & counts])
        absent: Flags = np.where(counts, all_, some)
        return absent

    def _unsent(self, made: Expression, inputs: Flags) -> UnsentColumn:
        lacking = np.asarray(made.inputs)[inputs.any(axis=0)]
        names = [self.schema.names[place] for place in lacking]
        return UnsentColumn(str(self.schema.table), made.setting, names)

    def _wanted(
        self, rows: pa.Table, wanted: pa.ChunkedArray, missing: Flags, counts: Flags
    ) -> pa.Table:
        """Return the rows without those that the condition leaves out, whose keys die."""
        where = self.shaping.where
        if where is None:
            return rows
        asked = counts
        both_sides = (
            self.schema.key_check is not KeyCheck.IMMEDIATE and self.mode is not Mode.MIRROR
        )
        if self.mode is Mode.APPEND or both_sides:
            asked = ~_one_of(rows["_op"], (TRUNCATE,))
        inputs = missing[:, list(where.inputs)]
        if (inputs.any(axis=1) & asked).any():
            raise self._unsent(where, inputs[asked])
        out = asked & ~np.asarray(wanted.to_numpy(zero_copy_only=False), bool)
        if not out.any():
            return rows
        if self.mode is Mode.MIRROR:
            return self._dead(rows, out)
        if self.mode is Mode.APPEND:
            return rows.filter(pa.array(~out))
        return self._left(rows, out)

    def _dead(self, rows: pa.Table, out: Flags) -> pa.Table:
        """Return folded rows of which some are dead; without a key they were never there."""
        if not self.schema.key:
            return rows.filter(pa.array(~out))
        blank = pa.array(out)
        changed: dict[str, pa.Scalar] = {"_effect": pa.scalar(DEAD), "_hole": pa.scalar(False)}
        names = ["_missing", *(origin_name(name) for name in self.target.key)]
        changed |= {name: pa.scalar(None, rows.schema.field(name).type) for name in names}
        return _replaced(rows, blank, changed)

    def _left(self, rows: pa.Table, out: Flags) -> pa.Table:
        """Return changes of which some take their rows away.

        A key that is checked at the end of its transaction has whole images on both sides: those outside were never
        there, and a row that was read outside is gone.
        """
        died = out.copy()
        if self.schema.key_check is not KeyCheck.IMMEDIATE:
            died &= _one_of(rows["_op"], (READ,))
        else:
            # The halves of an update stand beside each other.
            second = np.flatnonzero(out & _one_of(rows["_op"], (UPDATE_NEW,)))
            died[second - 1] = True
        deleted = _replaced(rows, pa.array(died), {"_op": pa.scalar(DELETE)})
        return deleted.filter(pa.array(died | ~out))


def _one_of(column: pa.ChunkedArray, values: Sequence[str]) -> Flags:
    return np.asarray(pc.is_in(column, pa.array(values)).to_numpy(zero_copy_only=False), bool)


def _replaced(rows: pa.Table, where: pa.Array, cells: dict[str, pa.Scalar]) -> pa.Table:
    """Return rows with other cells in some places."""
    for name, value in cells.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(name), pc.if_else(where, value, rows[name]))
    return rows
