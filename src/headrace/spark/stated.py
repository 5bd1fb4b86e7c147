"""What a target says of its tables, in versions of the change log that is read now.

A table that was filled from another log, before a resync began this one, has the columns of a version that this log
never told of. It is taken for the newest that there is: what comes first empties the table, and brings its columns
there by what the target itself knows of them.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import HeadraceError
from headrace.model.schema import TableId
from headrace.registry.file import FileRegistry
from headrace.spark.failures import translate
from headrace.spark.targets.base import Target, TargetState

__all__ = ["Stated"]


class Stated:
    """Asks one target.

    Args:
        target: where the tables are.
        reader: of the change log.
        registry: versions of tables that the log knows.
    """

    def __init__(self, target: Target, reader: ChangeLogReader, registry: FileRegistry) -> None:
        self._target = target
        self._reader = reader
        self._registry = registry

    def of(self, table: TableId) -> TargetState | HeadraceError | None:
        """Return what the target says of a table, None when there is none, or why it cannot say: that table's alone."""
        try:
            state = self._target.state(table)
            if state is None or not self._is_of_another_log(state):
                return state
        except Exception as error:  # noqa: BLE001 - the table's, no other's
            return translate(error, table, None)
        versions = [schema for schema in self._registry.all() if schema.table == table]
        return replace(state, schema_id=versions[-1].schema_id) if versions else state

    def _is_of_another_log(self, state: TargetState) -> bool:
        """Return whether a table has a version that the log lacks, and nothing that the log has."""
        if not state.schema_id or self._registry.has(state.schema_id):
            return False
        first = next(self._reader.refs(self._reader.tail().oldest_scn), None)
        return first is not None and state.applied_scn < first.first_scn
