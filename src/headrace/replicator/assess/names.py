"""Names that a target does not take, found by asking the very code that would refuse them.

In: the columns that a target table is to have. Out: a problem for each name, where a first batch would stop at the
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.lake.capabilities import Capabilities
from headrace.lake.modes import Mode, shaped
from headrace.model.schema import Column, TableId, TableSchema
from headrace.replicator.assess.problems import Problem

__all__ = ["name_problems"]

Check = Callable[[TableSchema], object]

_PLAIN = Column("headrace_any", pa.int64(), "bigint")
"""A column that every target takes."""


def name_problems(
    schema: TableSchema, mode: Mode, target: Capabilities, prefix: str = ""
) -> Iterator[Problem]:
    """Yield what is wrong with the names of one target table.

    Args:
        schema: its columns, without those that its mode adds.
        mode: of the table.
        target: what kind it is.
        prefix: put before the names of schemas.
    """
    check = _check_of(target, prefix)
    bare = replace(schema, columns=(_PLAIN,), key=())
    if refused := _refusal(check, bare):
        yield _problem("table-name-refused", refused, schema)
        return
    if _refusal(check, schema):
        yield from _of_columns(check, schema)
    if _refusal(lambda table: shaped(table, mode), schema):
        yield from _of_mode(schema, mode)


def _of_columns(check: Check, schema: TableSchema) -> Iterator[Problem]:
    """Yield columns that are refused by themselves, and then those that are refused beside others."""
    singly = {column.name: _refusal(check, _only(schema, column)) for column in schema.columns}
    for name, refused in singly.items():
        if refused:
            yield _problem("column-name-refused", refused, schema, name)
    left = [column for column in schema.columns if not singly[column.name]]
    for name, refused in _collisions(check, schema, left):
        yield _problem("column-names-collide", refused, schema, name)


def _check_of(target: Capabilities, prefix: str) -> Check:
    """Return what refuses names when a table of the target is made."""
    if target.format == "delta":
        from headrace.lake.evolution import create_actions

        return lambda schema: create_actions(schema, vectors=False)
    if target.format == "parquet":
        from headrace.lake.ledger import check_folder

        return lambda schema: check_folder(schema.table)
    from headrace.replicator.assess.dialects import dialect_of

    dialect = dialect_of(target)

    def check(schema: TableSchema) -> None:
        table = schema.table
        dialect.check_names(schema, TableId(prefix + table.schema, table.name))

    return check


def _refusal(check: Check, schema: TableSchema) -> HeadraceError | None:
    try:
        check(schema)
    except HeadraceError as error:
        return error
    return None


def _only(schema: TableSchema, *columns: Column) -> TableSchema:
    return replace(schema, columns=columns, key=())


def _collisions(
    check: Check, schema: TableSchema, columns: list[Column]
) -> Iterator[tuple[str, HeadraceError]]:
    """Yield columns that are refused beside those ahead of them, though not alone."""
    while refused := _refusal(check, _only(schema, *columns)):
        low, high = 1, len(columns)
        # The shortest beginning that is refused ends with the column that is one too many.
        while low < high:
            middle = (low + high) // 2
            if _refusal(check, _only(schema, *columns[:middle])):
                high = middle
            else:
                low = middle + 1
        yield columns[low - 1].name, _refusal(check, _only(schema, *columns[:low])) or refused
        del columns[low - 1]


def _of_mode(schema: TableSchema, mode: Mode) -> Iterator[Problem]:
    """Yield what stands between a table and its mode."""
    if refused := _refusal(lambda table: shaped(table, mode), replace(schema, columns=(_PLAIN,))):
        yield _problem("mode-without-key", refused, schema)
    keyed = replace(_PLAIN, name="headrace_key")
    for column in schema.columns:
        alone = replace(_only(schema, keyed, column), key=(keyed.name,))
        if refused := _refusal(lambda table: shaped(table, mode), alone):
            yield _problem("mode-column-taken", refused, schema, column.name)


def _problem(kind: str, refused: HeadraceError, schema: TableSchema, column: str = "") -> Problem:
    step = refused.next_step
    return Problem(
        kind,
        refused.message,
        f"{step[:1].upper()}{step[1:]}",
        table=str(schema.table),
        column=column,
    )
