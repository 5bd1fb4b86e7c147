"""In which form the changes of a table reach its target, by what was asked for the table.

In: a step, and the settings of its table. Out: its folded form, or its changes as they came, behind the column settings
if there are any; nothing is read yet.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import MadeOtherwise
from headrace.lake.modes import Mode, shaped
from headrace.lake.settings import (
    SettingsByTable,
    TableSettings,
    refuse_other_shape,
    settings_for,
)
from headrace.model.schema import TableId, TableSchema
from headrace.registry.file import FileRegistry
from headrace.spark.folded import FoldedStep
from headrace.spark.logged import LoggedStep
from headrace.spark.plan import Step
from headrace.spark.rows import Versions
from headrace.spark.shaped import ShapedStep
from headrace.spark.shaping import Shaping, shaping_of
from headrace.spark.targets.base import Folded, Target, TargetState

__all__ = ["Formed", "Forms"]


@dataclass(frozen=True, slots=True)
class Formed:
    """A step's changes on their way to the target.

    Attributes:
        schema: their version, behind the column settings.
        folded: the changes.
        mode: of the table.
    """

    schema: TableSchema
    folded: Folded
    mode: Mode

    @property
    def columns(self) -> TableSchema:
        """What the target table has.

        Raises:
            IncompatibleSchemaChange: the table has no key, or a column that the mode needs for itself.
        """
        return shaped(self.schema, self.mode)


class Forms:
    """The forms of all tables of one job.

    Args:
        target: where they are.
        changelog: folder of the change log.
        registry: versions of tables.
        given: what was asked for single tables.
    """

    def __init__(
        self, target: Target, changelog: Path, registry: FileRegistry, given: SettingsByTable
    ) -> None:
        self._target = target
        self._changelog = changelog
        self._registry = registry
        self._given = given
        self._shapings: dict[int, Shaping] = {}
        # Two threads that ask Spark's analyser at once were seen to fail inside PySpark.
        self._asking = threading.Lock()

    def check(self, table: TableId, state: TargetState | None) -> None:
        """Look at what was asked for a table before there is any batch.

        Args:
            table: the table.
            state: what the target says of it, None when there is no table.

        Raises:
            MadeOtherwise: it was made in another way.
            UnfitSettings: a column setting does not fit it.
        """
        if state is None:
            return
        settings = settings_for(table, self._given)
        refuse_other_shape(table, settings, state.shape)
        state.partitioning.refuse_other(table, settings.partition_by)
        self._refuse_what_it_lacks(table, state)
        if state.schema_id:
            self.check_version(self._registry.get(state.schema_id))

    def check_version(self, schema: TableSchema) -> None:
        """Look at the column settings for one version of a table.

        Raises:
            UnfitSettings: one does not fit it.
        """
        settings = settings_for(schema.table, self._given)
        if settings.of_columns:
            self._shaping(schema, settings)

    def _refuse_what_it_lacks(self, table: TableId, state: TargetState) -> None:
        """Refuse a table that another target of the same folder left in a way that this one cannot go on with."""
        can = self._target.capabilities
        lacks = "columns that the source no longer has" if state.kept else ""
        if state.copy is not None and not can.recopies:
            lacks = "a new copy that is not whole"
        elif can.keeps_columns:
            return
        if lacks:
            raise MadeOtherwise(
                f"The target table of {table} has {lacks}, which the target {can.name} cannot go on with.",
                next_step=f"set the target back, or move the target table away and copy it again: "
                f"headrace dump start FILE --table {table}.",
            )

    def of(self, schema: TableSchema, step: Step, versions: Versions, slices: int) -> Formed:
        """Return a step's changes in the form that its table wants.

        Args:
            schema: version to bring the changes to.
            step: the stretch of the log.
            versions: of the changes.
            slices: most tasks that fold it.

        Raises:
            UnfitSettings: a column setting does not fit the version.
        """
        settings = settings_for(schema.table, self._given)
        session, mode = self._target.session(schema.table), settings.mode
        folded: Folded
        if mode is Mode.MIRROR:
            folded = FoldedStep(
                session, self._changelog, schema, step, versions, slices, settings.ignored
            )
        else:
            folded = LoggedStep(session, self._changelog, schema, step, versions, settings.ignored)
        if not settings.of_columns:
            return Formed(schema, folded, mode)
        shaping = self._shaping(schema, settings)
        return Formed(shaping.shape(schema), ShapedStep(folded, schema, shaping, mode), mode)

    def _shaping(self, schema: TableSchema, settings: TableSettings) -> Shaping:
        """Return a table's column settings, looked at once per version."""
        with self._asking:
            if schema.schema_id not in self._shapings:
                session = self._target.session(schema.table)
                self._shapings[schema.schema_id] = shaping_of(session, schema, settings)
            return self._shapings[schema.schema_id]
