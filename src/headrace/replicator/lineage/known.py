"""The lineage of a replicator's tables as they are now.

In: its configuration, and the versions that its apply job says the target has the columns of. Out: a lineage per table.
"""

from __future__ import annotations

from typing import Any

from headrace.errors import StateError
from headrace.lake.settings import settings_for
from headrace.registry.file import FileRegistry
from headrace.replicator.asked import table_settings
from headrace.replicator.config import Config
from headrace.replicator.known_tables import refuse_unknown
from headrace.replicator.lineage.columns import TableLineage, table_lineage
from headrace.replicator.lineage.datasets import Dataset, source_dataset, target_dataset
from headrace.replicator.paths import StatePaths
from headrace.replicator.picture import Picture

__all__ = ["Known", "versions"]


def versions(picture: Picture) -> dict[str, int]:
    """Return, by ``schema.table``, the version of the source's table that its target has the columns of."""
    apply = picture.roles.get("apply")
    tables = apply.detail.get("tables", {}) if apply else {}
    found = {name: str(of.get("schema_id", "")) for name, of in tables.items()}
    return {name: int(schema_id, 16) for name, schema_id in sorted(found.items()) if schema_id}


class Known:
    """Makes lineages of versions, each once.

    Args:
        config: of the replicator.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._registry = FileRegistry(StatePaths.of(config).registry)
        self._settings = table_settings(config)
        self._made: dict[int, TableLineage] = {}

    def shown(self, picture: Picture, table: str | None = None) -> list[dict[str, Any]]:
        """Return the lineages of a picture's tables as plain values.

        Args:
            picture: of the replicator.
            table: only this one, ``schema.name``; None for all.

        Raises:
            UnknownTable: the replicator has no such table.
        """
        found = [one for one in self.tables(versions(picture)) if table in (None, str(one.table))]
        if table is not None and not found:
            refuse_unknown(self._config, table)
        return [_plain(self._config, one) for one in found]

    def tables(self, found: dict[str, int]) -> list[TableLineage]:
        """Return the lineages of some versions; one that the registry lacks is left out."""
        return [made for schema_id in found.values() if (made := self._of(schema_id)) is not None]

    def _of(self, schema_id: int) -> TableLineage | None:
        if schema_id not in self._made:
            try:
                schema = self._registry.get(schema_id)
            except StateError:
                return None
            self._made[schema_id] = table_lineage(
                schema, settings_for(schema.table, self._settings)
            )
        return self._made[schema_id]


def _plain(config: Config, table: TableLineage) -> dict[str, Any]:
    return {
        "table": str(table.table),
        "source": _named(source_dataset(config, table.table)),
        "target": _named(target_dataset(config, table.table)),
        "columns": [
            {
                "column": one.column,
                "type": one.type,
                "how": one.how.value,
                "inputs": list(one.inputs),
            }
            for one in table.columns
        ],
        "filters": list(table.filters),
    }


def _named(dataset: Dataset) -> dict[str, str]:
    return {"namespace": dataset.namespace, "name": dataset.name}
