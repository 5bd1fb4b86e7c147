"""Which adapter reads the database that a configuration names: the one place that looks at ``source.type``.

Adapters are imported when they are made, so that no process loads what it does not need.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import ConfigError
from headrace.replicator.config import (
    Config,
    DatabaseConfig,
    FilesConfig,
    MysqlConfig,
    PostgresConfig,
    TriggerConfig,
)
from headrace.replicator.paths import StatePaths

if TYPE_CHECKING:
    from headrace.sources.database import Database
    from headrace.sources.files import FilesSource
    from headrace.sources.mysql import MysqlSource
    from headrace.sources.postgres import PostgresSource
    from headrace.sources.trigger.ports import TriggerDatabase

__all__ = ["database_of", "open_database", "open_triggers"]


def database_of(config: Config) -> DatabaseConfig:
    """Return the section of the database.

    Raises:
        ConfigError: the changes come from a relay.
    """
    if isinstance(config.source, DatabaseConfig):
        return config.source
    raise ConfigError(
        f"{config.name} reads its changes from a relay, and this takes the source itself.",
        next_step="do it where the source's capture runs, with the file that names the database.",
    )


def open_database(config: Config) -> Database:
    """Return the database of a configuration; nothing is asked of it yet.

    Raises:
        ConfigError: the changes come from a relay, or the section cannot be used.
    """
    given = database_of(config)
    if isinstance(given, MysqlConfig):
        return _mysql(config, given)
    if isinstance(given, TriggerConfig):
        return _trigger(config, given)
    if isinstance(given, FilesConfig):
        return _files(config, given)
    return _postgres(config, given)


def open_triggers(config: Config) -> TriggerDatabase:
    """Return the database of a configuration whose changes are kept by triggers.

    Raises:
        ConfigError: its changes come another way.
    """
    given = database_of(config)
    if isinstance(given, TriggerConfig):
        return _trigger(config, given)
    raise ConfigError(
        f"{config.name} has no triggers: its source.type is {given.type}.",
        next_step="use it for a source of type trigger.",
    )


def _files(config: Config, given: FilesConfig) -> FilesSource:
    from headrace.sources.files import FilesSource

    root = StatePaths.of(config).root
    return FilesSource(given.path, root, given.tables, given.exclude, config.name, given.poll_s)


def _trigger(config: Config, given: TriggerConfig) -> TriggerDatabase:
    url = given.url.get_secret_value()
    keep_s, abandon_s = given.keep_hours * 3600, given.abandon_hours * 3600
    if given.on_mysql:
        from headrace.sources.trigger.mysql import MysqlTriggerSource

        return MysqlTriggerSource(
            url,
            given.tables,
            given.exclude,
            config.name,
            given.zero_dates,
            given.start,
            given.poll_s,
            keep_s,
            abandon_s,
            given.slow_query_s,
            given.queues,
            given.queue_rows,
        )
    from headrace.model.schema import TableId
    from headrace.sources.trigger.postgres import PostgresTriggerSource

    return PostgresTriggerSource(
        url,
        given.tables,
        given.exclude,
        config.name,
        {TableId.parse(name): frozenset(texts) for name, texts in given.text_columns.items()},
        given.start,
        given.poll_s,
        keep_s,
        abandon_s,
        given.slow_query_s,
        given.queues,
        given.queue_rows,
    )


def _mysql(config: Config, given: MysqlConfig) -> MysqlSource:
    from headrace.sources.mysql import MysqlSource

    return MysqlSource(
        given.url.get_secret_value(),
        StatePaths.of(config).root,
        given.tables,
        given.exclude,
        config.name,
        given.zero_dates,
        heartbeat_s=given.heartbeat_s,
    )


def _postgres(config: Config, given: PostgresConfig) -> PostgresSource:
    from headrace.model.schema import TableId
    from headrace.sources.postgres import PostgresSource
    from headrace.sources.postgres.settings import ColumnChoice

    source = PostgresSource(
        given.url.get_secret_value(),
        given.tables,
        given.exclude,
        given.slot,
        given.publication,
        given.watermark,
        config.name,
        [
            ColumnChoice(TableId.parse(name), frozenset(one.include), frozenset(one.exclude))
            for name, one in given.columns.items()
        ],
        given.ddl,
        {TableId.parse(name): frozenset(texts) for name, texts in given.text_columns.items()},
        given.log_format,
    )
    source.settings = replace(
        source.settings,
        heartbeat_s=given.heartbeat_s,
        failover=given.failover,
        spool_folder=StatePaths.of(config).root / "spool",
    )
    return source
