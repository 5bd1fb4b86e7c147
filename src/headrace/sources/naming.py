"""Tables whose name is another one's too: everything behind a source keeps them by ``schema.name``.

What stands before the first point is the schema. A schema with a point in it would give a table the name of another
schema's table: their state, their dumps and their place in the frontier would be each other's.
"""

from __future__ import annotations

from headrace.errors import IncompatibleSchemaChange
from headrace.model.schema import TableId
from headrace.sources.base import Finding

__all__ = ["refuse_unnameable", "unnameable"]


def unnameable(table: TableId) -> list[Finding]:
    """Return the finding of a table whose name is read as another one's, none of any other table."""
    if TableId.parse(str(table)) == table:
        return []
    what, remedy = _said(table)
    return [Finding("schema-name-dotted", what, remedy, table=str(table))]


def refuse_unnameable(table: TableId) -> None:
    """Stop at such a table that comes while others are captured.

    Raises:
        IncompatibleSchemaChange: its name is read as another one's.
    """
    if TableId.parse(str(table)) != table:
        what, remedy = _said(table)
        raise IncompatibleSchemaChange(what, next_step=remedy)


def _said(table: TableId) -> tuple[str, str]:
    schema, name = TableId.parse(str(table))
    pattern = f"{table.schema.replace('.', '?')}.*"
    what = (
        f"The name of schema {table.schema} holds a point, so its table {table.name} has the name of a table {name} "
        f"of a schema {schema}."
    )
    return what, f"Rename the schema, or leave its tables out: source.exclude: ['{pattern}']."
