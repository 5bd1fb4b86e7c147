"""Column settings of a table: which columns its target has, and the Spark expressions they come from.

In: what a person asked for, and a version of the source's table. Out: one output per column of the target, with the
source's columns that it is made of; or an error that names table and setting. Spark itself decides what an expression
is: it is asked without running anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import UnfitSettings
from headrace.lake.expressions import changing_word
from headrace.lake.settings import TableSettings
from headrace.model.change import table_arrow_schema
from headrace.model.schema import Column, Shape, TableSchema
from headrace.spark.columns import neutral_type, quoted, spark_ddl

__all__ = ["Expression", "Output", "Shaping", "shaping_of"]


@dataclass(frozen=True, slots=True)
class Expression:
    """A Spark SQL expression over the source's columns.

    Attributes:
        setting: which setting it belongs to, for people.
        sql: its text.
        inputs: places of the source's columns that it reads.
    """

    setting: str
    sql: str
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the target: what it is, the source's column that it stands for if any, and what it is made of."""

    column: Column
    source: str | None
    made: Expression


@dataclass(frozen=True, slots=True)
class Shaping:
    """Settings that fit one version of a table.

    Attributes:
        outputs: columns of the target, in order.
        where: the condition on rows, None for all.
        text: mode and settings, as the target table remembers them.
    """

    outputs: tuple[Output, ...]
    where: Expression | None
    text: str

    def shape(self, schema: TableSchema) -> TableSchema:
        """Return the columns that the settings make of a version of the table."""
        names = {output.source: output.column.name for output in self.outputs if output.source}
        return replace(
            schema,
            columns=tuple(output.column for output in self.outputs),
            key=tuple(names[name] for name in schema.key),
            numbers={names[name]: n for name, n in schema.numbers.items() if name in names},
            shape=Shape(self.text, schema.schema_id),
        )


def shaping_of(session: SparkSession, schema: TableSchema, settings: TableSettings) -> Shaping:
    """Return settings made fit for a version of a table.

    Args:
        session: analyses expressions; runs nothing.
        schema: of the source.
        settings: with column settings.

    Raises:
        UnfitSettings: naming table, setting and column; never a value.
    """
    return _Maker(session, schema, settings).made()


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep Spark from writing expressions into a log: what masks a column may be a secret."""
    log = logging.getLogger("SQLQueryContextLogger")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


class _Maker:
    def __init__(self, session: SparkSession, schema: TableSchema, settings: TableSettings) -> None:
        self._session = session
        self._schema = schema
        self._settings = settings
        self._fields = list(table_arrow_schema(schema))
        self._rows = self._frame(range(len(self._fields)))

    def made(self) -> Shaping:
        self._check_names()
        outputs = [*self._kept(), *self._computed()]
        seen: set[str] = set()
        for output in outputs:
            if output.column.name.lower() in seen:
                raise self._refused("rename or compute", f"give {output.column.name} twice")
            seen.add(output.column.name.lower())
        where = None
        if self._settings.where is not None:
            where, type_ = self._expression("where", self._settings.where)
            if type_ != pa.bool_():
                raise self._refused("where", "is no condition")
        return Shaping(tuple(outputs), where, self._settings.shape)

    def _check_names(self) -> None:
        """Refuse columns that are not there, or that nobody may touch."""
        for fault in self._settings.faults(self._schema):
            raise self._refused(fault.setting, f"names {fault.column}, {fault.why}")

    def _kept(self) -> Iterator[Output]:
        renamed, masks = dict(self._settings.rename), dict(self._settings.mask)
        for name in self._settings.kept(self._schema):
            place = self._schema.names.index(name)
            column = replace(self._schema.columns[place], name=renamed.get(name, name))
            made = Expression(name, quoted(name), (place,))
            if name in masks:
                made, type_ = self._expression(f"mask of {name}", masks[name])
                column = replace(column, type=type_, source_type="mask")
            yield Output(column, name, made)

    def _computed(self) -> Iterator[Output]:
        for name, sql in self._settings.compute:
            made, type_ = self._expression(f"compute of {name}", sql)
            yield Output(Column(name, type_, "compute"), None, made)

    def _expression(self, setting: str, sql: str) -> tuple[Expression, pa.DataType]:
        """Return an expression and the type of its values."""
        if found := changing_word(sql):
            raise self._refused(setting, f"says {found}, which is not the same at each replay")
        condition = self._analysed(self._rows, sql)
        if condition is not None:
            raise self._refused(setting, f"is nothing that Spark takes here ({condition})")
        name = self._rows.select(F.expr(sql).alias("made")).schema[0].dataType.simpleString()
        type_ = neutral_type(name)
        if type_ is None:
            raise self._refused(setting, f"gives the type {name}, which no column has; cast it")
        return Expression(setting, sql, tuple(self._inputs(sql))), type_

    def _inputs(self, sql: str) -> Iterator[int]:
        """Yield the columns without which the expression cannot be."""
        for place, field in enumerate(self._fields):
            if field.name.lower() not in sql.lower():
                continue
            others = (other for other in range(len(self._fields)) if other != place)
            if self._analysed(self._frame(others), sql) is not None:
                yield place

    def _analysed(self, rows: DataFrame, sql: str) -> str | None:
        """Return why an expression is none that can be used, None when it can.

        Conditions of joins take no aggregates, no windows and nothing that is not deterministic.
        """
        nothing = self._session.range(0).toDF("headrace nothing")
        try:
            with _unheard():
                _ = rows.join(nothing, F.expr(f"({sql}) IS NULL")).schema
                # Between parentheses several are a struct.
                _ = rows.select(F.expr(sql)).schema
        except PySparkException as error:
            return error.getCondition() or type(error).__name__
        return None

    def _frame(self, places: Iterator[int] | range) -> DataFrame:
        """Return no rows with some of the source's columns."""
        fields = [self._fields[place] for place in places]
        # At least one column, which nobody names.
        fields.append(pa.field("headrace rest", pa.int32()))
        return self._session.createDataFrame([], spark_ddl(fields))

    def _refused(self, setting: str, what: str) -> UnfitSettings:
        return UnfitSettings(
            f"tables: {setting} of {self._schema.table} {what}.",
            next_step=f"correct {setting} in the section tables of the file.",
        )
