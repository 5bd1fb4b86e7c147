"""What tables are called outside of headrace, so that the lineage of other tools meets ours.

Source: OpenLineage, "Naming Conventions".
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.model.schema import TableId
from headrace.replicator.config import (
    Config,
    DuckdbTargetConfig,
    FilesConfig,
    MysqlConfig,
    MysqlTargetConfig,
    ParquetTargetConfig,
    PostgresConfig,
    PostgresTargetConfig,
    TargetConfig,
    TriggerConfig,
)

__all__ = ["Dataset", "source_dataset", "target_dataset"]

_POSTGRES_PORT = "5432"
_MYSQL_PORT = 3306


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table's name among those of all tools: unique inside a namespace, which stands for a server or a store."""

    namespace: str
    name: str


def source_dataset(config: Config, table: TableId) -> Dataset:
    """Return the name of a table of the source."""
    source = config.source
    if isinstance(source, MysqlConfig) or (isinstance(source, TriggerConfig) and source.on_mysql):
        return _in_mysql(source.url.get_secret_value(), table)
    if isinstance(source, PostgresConfig | TriggerConfig):
        return _in_postgres(source.url.get_secret_value(), table)
    if isinstance(source, FilesConfig):
        return Dataset("file", str(source.path / str(table)))
    # Relays do not say which database stands behind them.
    host = urlsplit(source.urls[0]).netloc.rpartition("@")[2]
    return Dataset(f"headrace://{host}", str(table))


def target_dataset(config: Config, table: TableId) -> Dataset:
    """Return the name of a table of the target."""
    target = config.target
    if isinstance(target, PostgresTargetConfig):
        place = TableId(f"{target.schema_prefix}{table.schema}", table.name)
        return _in_postgres(target.url.get_secret_value(), place)
    if isinstance(target, MysqlTargetConfig):
        place = TableId(f"{target.schema_prefix}{table.schema}", table.name)
        return _in_mysql(target.url.get_secret_value(), place)
    if isinstance(target, DuckdbTargetConfig):
        return Dataset(f"duckdb://{target.path}", str(table))
    assert isinstance(target, TargetConfig | ParquetTargetConfig)
    if isinstance(target.path, str):
        bucket = urlsplit(target.path)
        prefix = bucket.path.strip("/")
        below = f"{table.schema}/{table.name}"
        return Dataset(f"s3://{bucket.netloc}", f"{prefix}/{below}" if prefix else below)
    return Dataset("file", str(target.path / table.schema / table.name))


def _in_mysql(url: str, table: TableId) -> Dataset:
    parts = urlsplit(url)
    return Dataset(f"mysql://{parts.hostname}:{parts.port or _MYSQL_PORT}", str(table))


def _in_postgres(url: str, table: TableId) -> Dataset:
    parts = urlsplit(url)
    # Of several hosts the first stands for all; user and password are nobody's business.
    first = parts.netloc.rpartition("@")[2].split(",")[0]
    given = parse_qs(parts.query)
    host, _, port = first.rpartition(":") if first[-1:] != "]" and ":" in first else (first, "", "")
    host = host or given.get("host", [""])[0]
    if not host or host.startswith(("/", "%2F", "%2f")):
        host = "localhost"
    port = port or given.get("port", [""])[0] or _POSTGRES_PORT
    database = unquote(parts.path.lstrip("/")) or given.get("dbname", [""])[0] or "postgres"
    return Dataset(f"postgres://{host}:{port}", f"{database}.{table}")
