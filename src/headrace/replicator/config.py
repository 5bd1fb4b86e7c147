"""The configuration of one replicator, as values.

`headrace.replicator.config_file.load` reads it from YAML or JSON. Only ``name``, ``source`` and
``target`` are needed; every other field has the default written here. The models are frozen and
hold secrets as `SecretStr`, so that no ``repr``, log line or error shows one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from headrace.replicator.observe_config import (
    ActivityConfig,
    LineageConfig,
    MetricsConfig,
    ObjectiveConfig,
)
from headrace.replicator.relay_config import RelayConfig, RelaySourceConfig
from headrace.replicator.retries import RetryConfig
from headrace.replicator.section import Section
from headrace.replicator.source_config import (
    NAME,
    ColumnsConfig,
    DatabaseConfig,
    FilesConfig,
    Identifier,
    MysqlConfig,
    Pattern,
    PostgresConfig,
    TriggerConfig,
    mysql_url,
    postgres_url,
)
from headrace.replicator.units import Bytes
from headrace.store.location import Bucket, Location, located

__all__ = [
    "ActivityConfig",
    "ApplyConfig",
    "ChangeLogConfig",
    "ChangesConfig",
    "ColumnsConfig",
    "Config",
    "DatabaseConfig",
    "DuckdbTargetConfig",
    "DumpConfig",
    "FilesConfig",
    "LineageConfig",
    "MaintenanceConfig",
    "MetricsConfig",
    "MysqlConfig",
    "MysqlTargetConfig",
    "ObjectiveConfig",
    "ParquetTargetConfig",
    "PostgresConfig",
    "PostgresTargetConfig",
    "RelayConfig",
    "RelaySourceConfig",
    "RetryConfig",
    "SparkConfig",
    "StateConfig",
    "StoreConfig",
    "TableConfig",
    "TapConfig",
    "TargetConfig",
    "TriggerConfig",
]

_Expression = Annotated[str, Field(min_length=1)]
_BUCKET_URL = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^?#]*)?")
_NO_KEY = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|/\.\.?(/|$)")
"""What no part of an object's key may hold; servers and clients take some of it out without a word."""
_BucketUrl = Annotated[str, Field(pattern=r"^s3://")]


def _local(value: object) -> object:
    if isinstance(value, str) and "://" in value:
        raise ValueError(
            "a folder on this machine; tables in an object store are of the type delta"
        )
    return value


class MaintenanceConfig(Section):
    """How the files of Delta tables are kept in order between batches.

    Attributes:
        enabled: whether they are.
        target_file: size of a full file.
        small_file: files below it are merged; at most half of a full one.
        deleted: share of a file's rows that may be deleted before it is written anew.
        load: share of all time that it may take.
    """

    enabled: bool = True
    target_file: Annotated[Bytes, Field(ge=64 * 1024, le=2**30)] = 64 * 2**20
    small_file: Annotated[Bytes, Field(ge=1024)] = 16 * 2**20
    deleted: Annotated[float, Field(ge=0.01, le=1)] = 0.2
    load: Annotated[float, Field(gt=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _small_is_small(self) -> Self:
        if self.small_file > self.target_file / 2:
            raise ValueError("small_file at most half of target_file")
        return self


class StoreConfig(Section):
    """How to get at the bucket that ``path`` names.

    Attributes:
        endpoint: URL of the server; of Amazon S3 in the region when absent.
        region: of the bucket.
        access_key_id: what is absent is taken from the environment, as by Amazon's own tools.
        secret_access_key: put it into the environment and write ``${env:NAME}``.
        session_token: of credentials that end.
        timeout_s: longest time that one request may take.
    """

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/@]+/?$")] | None = None
    region: Annotated[str, Field(min_length=1)] | None = None
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0

    @model_validator(mode="after")
    def _both_keys(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("both access_key_id and secret_access_key, or neither")
        return self


class TargetConfig(Section):
    """Where the tables go: ``<path>/<schema>/<table>``.

    Attributes:
        path: folder of all tables; or ``s3://bucket/prefix``, in an object store that honours ``If-None-Match: *``.
        store: how to get at the bucket.
        vectors: whether new tables may use deletion vectors, which not every reader knows.
        merge: whether rows are written by Spark's MERGE instead of commits of our own.
        maintenance: how files are kept in order; not of tables that Spark's MERGE writes.
    """

    type: Literal["delta"]
    path: Path | _BucketUrl
    store: StoreConfig = StoreConfig()
    vectors: bool = True
    merge: bool = False
    maintenance: MaintenanceConfig = MaintenanceConfig()

    @field_validator("path", mode="before")
    @classmethod
    def _is_known(cls, value: object) -> object:
        if isinstance(value, str) and "://" not in value:
            return Path(value)
        if isinstance(value, str) and _BUCKET_URL.fullmatch(value):
            if _NO_KEY.search(value):
                raise ValueError("a prefix without control or half characters, . and ..")
            return value
        if isinstance(value, Path):
            return value
        raise ValueError("a folder on this machine, or s3://bucket/prefix")

    @model_validator(mode="after")
    def _fits_its_place(self) -> Self:
        if isinstance(self.path, Path) and self.store != StoreConfig():
            raise ValueError("store only with a path such as s3://bucket/prefix")
        if isinstance(self.path, str) and self.merge:
            raise ValueError(
                "merge: false with a path in an object store: Spark's own statements reach one only with the jars of "
                "hadoop-aws, which headrace does not bring"
            )
        return self

    @property
    def location(self) -> Location:
        """Where the tables go, as a value that knows how to get there."""
        if isinstance(self.path, Path):
            return self.path
        secrets = {
            name: secret.get_secret_value()
            for name in ("access_key_id", "secret_access_key", "session_token")
            if (secret := getattr(self.store, name)) is not None
        }
        given = self.store
        bucket = Bucket("", given.endpoint, given.region, timeout_s=given.timeout_s, **secrets)
        return located(self.path, bucket)


class ParquetTargetConfig(Section):
    """Plain files of changes: ``<path>/<schema>/<table>/*.parquet``, whose tables have the mode ``append``.

    Attributes:
        path: folder of all tables.
    """

    type: Literal["parquet"]
    path: Path

    @field_validator("path", mode="before")
    @classmethod
    def _is_local(cls, value: object) -> object:
        return _local(value)


class DuckdbTargetConfig(Section):
    """A DuckDB file, whose tables have the names they have at the source.

    Attributes:
        path: of the file.
        memory: most memory of one batch inside DuckDB, which spills beside the file beyond it.
    """

    type: Literal["duckdb"]
    path: Path
    memory: Annotated[Bytes, Field(ge=64 * 2**20)] = 2**30

    @field_validator("path", mode="before")
    @classmethod
    def _is_local(cls, value: object) -> object:
        return _local(value)


class PostgresTargetConfig(Section):
    """A PostgreSQL database (15 or newer), which is another one than the source or gets a prefix.

    Attributes:
        type: the kind of target.
        url: libpq URL, as of a source.
        schema_prefix: put before the names of the source's schemas.
    """

    type: Literal["postgres"]
    url: SecretStr
    schema_prefix: Annotated[str, Field(max_length=40)] = ""

    @field_validator("url")
    @classmethod
    def _is_a_postgres_url(cls, value: SecretStr) -> SecretStr:
        return postgres_url(value)


class MysqlTargetConfig(Section):
    """A MySQL (8.0.23 or newer) or MariaDB (10.6 or newer) server, another one than the source or with a prefix.

    Attributes:
        type: the kind of target.
        url: ``mysql://user:password@host:port/?tls=…&ca=…``, as of a source.
        schema_prefix: put before the names of the source's schemas, which are databases there.
        extremes: what becomes of values that the server's floats, dates and times do not hold: they stop their table,
            or all of these lie as text. Not to be changed while there are tables.
    """

    type: Literal["mysql"]
    url: SecretStr
    schema_prefix: Annotated[str, Field(max_length=40)] = ""
    extremes: Literal["refuse", "text"] = "refuse"

    @field_validator("url")
    @classmethod
    def _is_a_mysql_url(cls, value: SecretStr) -> SecretStr:
        return mysql_url(value)


class ChangesConfig(Section):
    """What target tables do when their sources change in a way that has more than one answer.

    Attributes:
        incompatible: to a column of another type: wait, keep the old column aside, or copy the table again.
        dropped_column: to a column that was dropped.
        dropped_table: to a table that was dropped.
    """

    incompatible: Literal["stop", "new_column", "recopy"] = "stop"
    dropped_column: Literal["drop", "keep"] = "drop"
    dropped_table: Literal["keep", "drop"] = "keep"


class TableConfig(Section):
    """How the target keeps some tables.

    Attributes:
        mode: the rows that there are, every change, deleted rows too, or every version of every row.
        select: the only columns to have, beside those of the key.
        drop: columns to leave out.
        rename: columns with other names.
        mask: columns with the Spark SQL expressions that stand in their places.
        compute: further columns with their expressions.
        where: condition on the source's rows.
        partition_by: columns of the target whose values tell its files apart.
        changes: what it does when its source changes; what is not said here is said for all tables.
        first_copy: ``dumped`` by headrace, or ``adopted``: made elsewhere, and taken in by ``headrace adopt``.
        ignore: operations of the source that never reach it; inserts and updates only where it keeps changes.
        undeliverable: whether it stops at changes that it will never take, or goes on without them.
    """

    mode: Literal["mirror", "append", "soft_delete", "history"] = "mirror"
    select: tuple[Identifier, ...] = ()
    drop: tuple[Identifier, ...] = ()
    rename: dict[Identifier, Identifier] = Field(default={})
    mask: dict[Identifier, _Expression] = Field({}, repr=False)
    compute: dict[Identifier, _Expression] = Field({}, repr=False)
    where: _Expression | None = Field(None, repr=False)
    partition_by: tuple[Identifier, ...] = ()
    changes: ChangesConfig = ChangesConfig()
    first_copy: Literal["dumped", "adopted"] = "dumped"
    ignore: tuple[Literal["insert", "update", "delete", "truncate"], ...] = ()
    undeliverable: Literal["stop", "set_aside"] = "stop"

    @model_validator(mode="after")
    def _one_choice(self) -> Self:
        if self.select and self.drop:
            raise ValueError("either select or drop")
        if len(set(self.partition_by)) < len(self.partition_by):
            raise ValueError("each column of partition_by once")
        if self.mode != "append" and {"insert", "update"} & set(self.ignore):
            raise ValueError(
                "ignore with insert or update only in the mode append: other tables need every row"
            )
        return self


class DumpConfig(Section):
    """How tables are read in chunks.

    Attributes:
        chunk_rows: rows of one bounded select; the size follows the time that a chunk takes when absent.
        chunk_s: seconds that such a chunk aims at.
        load: share of one connection's time that selects may take.
        delay_s: pause between chunks, for the source's sake.
        rows_per_s: most rows read per second, 0 for no limit.
        table_chunk_rows: ``chunk_rows`` of the tables that match a pattern, the first one that does.
    """

    chunk_rows: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    chunk_s: Annotated[float, Field(gt=0, le=60)] = 0.25
    load: Annotated[float, Field(gt=0, le=1)] = 0.25
    delay_s: Annotated[float, Field(ge=0, le=3600)] = 0.0
    rows_per_s: Annotated[float, Field(ge=0)] = 0.0
    table_chunk_rows: dict[Pattern, Annotated[int, Field(ge=1, le=1_000_000)]] = Field(default={})


class ChangeLogConfig(Section):
    """The change log on disk.

    Attributes:
        segment: size at which a new segment file begins.
        budget: capture stops reading when the log is this large and nothing may go.
        retain: kept even when everybody has read it, for late readers.
        retain_s: and for at least this long.
    """

    segment: Annotated[Bytes, Field(ge=64 * 1024, le=2**32)] = 64 * 2**20
    budget: Annotated[Bytes, Field(ge=2**20)] = 8 * 2**30
    retain: Annotated[Bytes, Field(ge=0)] = 2**30
    retain_s: Annotated[float, Field(ge=0)] = 0.0


class ApplyConfig(Section):
    """How changes are folded into the target.

    Attributes:
        max_rows: change rows of one batch; a batch ends at a transaction's end.
        trigger_s: shortest time between the starts of two batches.
    """

    max_rows: Annotated[int, Field(ge=1)] = 2_000_000
    trigger_s: Annotated[float, Field(ge=0, le=3600)] = 1.0


class SparkConfig(Section):
    """The Spark session.

    Attributes:
        master: any Spark master, ``local[2]`` being two threads on this machine; or a server of Spark Connect, without
            a token, which is a secret: ``SPARK_CONNECT_AUTHENTICATE_TOKEN`` in the environment has it.
        driver_memory: heap of the driver.
        conf: further Spark settings, handed on as they are.
    """

    master: Annotated[str, Field(pattern=r"^(local|spark://|yarn|k8s://|sc://)")] = "local[2]"
    driver_memory: Annotated[str, Field(pattern=r"^\d+[kmg]$")] = "2g"
    conf: dict[str, str] = Field(default={})

    @field_validator("master")
    @classmethod
    def _has_no_token(cls, value: str) -> str:
        if "token=" in value.lower():
            raise ValueError("a URL without token; put that into SPARK_CONNECT_AUTHENTICATE_TOKEN")
        return value


class TapConfig(Section):
    """The algorithm's steps as lines of JSON in ``tap/`` of the state folder.

    Attributes:
        enabled: whether they are told.
        rows: single rows too, and not only the steps.
        keys: as they are, or as hashes; keys are row values.
        size: what the file may take; the oldest lines go.
        queue: events that may wait to be written; what does not fit is dropped and counted.
        teach: stand still after each event until a reader has taken it. Never in production.
    """

    enabled: bool = False
    rows: bool = True
    keys: Literal["plain", "hashed"] = "plain"
    size: Annotated[Bytes, Field(ge=2**20)] = 64 * 2**20
    queue: Annotated[int, Field(ge=1_024, le=10_000_000)] = 131_072
    teach: bool = False


class StateConfig(Section):
    """Where progress, change log and logs live.

    Attributes:
        dir: ``.headrace/<name>`` beside the file by default.
        wait_s: how long capture tries to get at its progress while another process holds it; it stands still
            meanwhile, and fails then.
    """

    dir: Path | None = None
    wait_s: Annotated[float, Field(ge=0, le=3600)] = 30.0


class Config(Section):
    """One replicator."""

    name: Annotated[str, Field(pattern=NAME)]
    source: Annotated[
        PostgresConfig | MysqlConfig | TriggerConfig | FilesConfig | RelaySourceConfig,
        Field(discriminator="type"),
    ]
    target: Annotated[
        TargetConfig
        | DuckdbTargetConfig
        | PostgresTargetConfig
        | MysqlTargetConfig
        | ParquetTargetConfig,
        Field(discriminator="type"),
    ]
    tables: dict[Pattern, TableConfig] = Field(default={})
    changes: ChangesConfig = ChangesConfig()
    dump: DumpConfig = DumpConfig()
    changelog: ChangeLogConfig = ChangeLogConfig()
    apply: ApplyConfig = ApplyConfig()
    retry: RetryConfig = RetryConfig()
    spark: SparkConfig = SparkConfig()
    tap: TapConfig = TapConfig()
    relay: RelayConfig | None = None
    metrics: MetricsConfig | None = None
    objective: ObjectiveConfig | None = None
    activity: ActivityConfig = ActivityConfig()
    lineage: LineageConfig | None = None
    state: StateConfig = StateConfig()

    @property
    def lake(self) -> Location:
        """Absolute folder of the frontier manifests, and of the tables where these are files."""
        if isinstance(self.target, TargetConfig):
            return self.target.location
        if isinstance(self.target, ParquetTargetConfig):
            return self.target.path
        return self.state_dir / "target"

    @property
    def source_name(self) -> str:
        """What relays call the source."""
        if isinstance(self.source, RelaySourceConfig) and self.source.source:
            return self.source.source
        return self.name

    @property
    def state_dir(self) -> Path:
        """Absolute folder of everything this replicator keeps for itself."""
        if self.state.dir is None:
            raise ValueError("state.dir is set when the file is loaded")
        return self.state.dir
