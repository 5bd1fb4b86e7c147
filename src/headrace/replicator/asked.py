"""What a configuration asks for single tables, and whether its target can do that."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.lake.capabilities import (
    DELTA,
    DUCKDB,
    MERGE,
    MYSQL,
    PARQUET,
    POSTGRES,
    Capabilities,
    refuse_unkept,
)
from headrace.lake.modes import Mode
from headrace.lake.policies import Dropped, Incompatible, Policies
from headrace.lake.settings import SettingsByTable, TableSettings
from headrace.model.change import (
    DELETE,
    INSERT,
    PATCH,
    TRUNCATE,
    UPDATE_NEW,
    UPDATE_OLD,
)
from headrace.replicator.config import (
    ChangesConfig,
    Config,
    DuckdbTargetConfig,
    MysqlTargetConfig,
    ParquetTargetConfig,
    PostgresTargetConfig,
    TableConfig,
)

__all__ = ["capabilities", "refuse_what_the_target_lacks", "schema_prefix", "table_settings"]


_OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "insert": (INSERT,),
    "update": (UPDATE_OLD, UPDATE_NEW, PATCH),
    "delete": (DELETE,),
    "truncate": (TRUNCATE,),
}
"""What the file calls an operation, as rows of the change model say it."""


def table_settings(config: Config) -> SettingsByTable:
    """Return what was asked for, by pattern; the last one stands for all tables that no other names."""
    named = tuple((pattern, _settings(config, given)) for pattern, given in config.tables.items())
    return (*named, ("*", TableSettings(_usual(config), policies=_policies(config.changes))))


def refuse_what_the_target_lacks(config: Config) -> None:
    """Refuse what the target cannot keep.

    Raises:
        ConfigError: naming table, setting and target.
    """
    refuse_unkept(table_settings(config), capabilities(config))


def capabilities(config: Config) -> Capabilities:
    """Return what the target can do."""
    target = config.target
    if isinstance(target, DuckdbTargetConfig):
        return DUCKDB
    if isinstance(target, PostgresTargetConfig):
        return POSTGRES
    if isinstance(target, MysqlTargetConfig):
        return MYSQL
    if isinstance(target, ParquetTargetConfig):
        return PARQUET
    return MERGE if target.merge else DELTA


def schema_prefix(config: Config) -> str:
    """Return what the target puts before the names of schemas."""
    target = config.target
    if isinstance(target, PostgresTargetConfig | MysqlTargetConfig):
        return target.schema_prefix
    return ""


def _settings(config: Config, given: TableConfig) -> TableSettings:
    said = given.changes.model_dump(include=given.changes.model_fields_set)
    return TableSettings(
        Mode(given.mode) if "mode" in given.model_fields_set else _usual(config),
        given.select,
        given.drop,
        tuple(given.rename.items()),
        tuple(given.mask.items()),
        tuple(given.compute.items()),
        given.where,
        _policies(config.changes.model_copy(update=said)),
        given.partition_by,
        given.first_copy == "adopted",
        given.undeliverable == "set_aside",
        frozenset(op for name in given.ignore for op in _OPERATIONS[name]),
    )


def _usual(config: Config) -> Mode:
    """Return the mode of tables of which nothing else is said."""
    return Mode.APPEND if isinstance(config.target, ParquetTargetConfig) else Mode.MIRROR


def _policies(changes: ChangesConfig) -> Policies:
    return Policies(
        Incompatible(changes.incompatible),
        Dropped(changes.dropped_column),
        Dropped(changes.dropped_table),
    )
