"""The configuration file: the smallest form, every refusal, and where secrets do not appear."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from headrace.errors import ConfigError, IncompatibleSchemaChange, TargetError
from headrace.lake.evolution import create_actions
from headrace.lake.policies import Dropped, Incompatible, Policies
from headrace.lake.settings import settings_for
from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.model.schema import TableId
from headrace.replicator.asked import table_settings
from headrace.replicator.config import PostgresConfig
from headrace.replicator.config_file import load
from headrace.replicator.databases import open_database
from headrace.replicator.paths import StatePaths
from headrace.replicator.reading import read
from headrace.replicator.runner import _warehouse
from headrace.sources.mysql import MysqlSource
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.settings import ColumnChoice
from headrace.store import Bucket, ObjectPath
from headrace.testing.notation import table_of
from tests.requirements import req

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALLEST = """
name: shop
source: {type: postgres, url: "postgresql://user@host/db", tables: ["public.*"]}
target: {type: delta, path: ./lake}
"""


def write(folder: Path, text: str, name: str = "shop.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text))
    error = caught.value
    assert error.next_step, "every refusal says what to do"
    assert "shop.yaml" in error.message, "every refusal names its file"
    return error


def test_the_smallest_form_gets_defaults_and_absolute_paths(tmp_path: Path) -> None:
    config = load(write(tmp_path, SMALLEST))

    assert config.lake == tmp_path / "lake"
    assert config.state_dir == tmp_path / ".headrace" / "shop"
    assert StatePaths.of(config).changelog == tmp_path / ".headrace" / "shop" / "changelog"
    assert (config.dump.chunk_rows, config.dump.load) == (None, 0.25)
    assert isinstance(config.source, PostgresConfig)
    assert config.source.watermark == "message"


def test_json_means_the_same_as_yaml(tmp_path: Path) -> None:
    document = {
        "name": "shop",
        "source": {"type": "postgres", "url": "postgresql://user@host/db", "tables": ["public.*"]},
        "target": {"type": "delta", "path": "./lake"},
    }

    from_json = load(write(tmp_path, json.dumps(document), "shop.json"))

    assert from_json == load(write(tmp_path, SMALLEST))


def test_sizes_take_units(tmp_path: Path) -> None:
    config = load(
        write(tmp_path, SMALLEST + "changelog: {segment: 16MiB, budget: 2 GB, retain: 4096}\n")
    )

    assert config.changelog.segment == 16 * 2**20
    assert config.changelog.budget == 2 * 10**9
    assert config.changelog.retain == 4096


def test_paths_start_at_the_file_not_at_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    config = load(write(tmp_path, SMALLEST + "state: {dir: ../kept}\n"))

    assert config.state_dir == tmp_path.parent / "kept"


@req("C70")
def test_secrets_come_from_the_environment_and_are_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "swordfish")
    text = SMALLEST.replace("user@host", "user:${env:SHOP_PASSWORD}@host")

    config = load(write(tmp_path, text))

    assert isinstance(config.source, PostgresConfig)
    assert config.source.url.get_secret_value() == "postgresql://user:swordfish@host/db"
    for shown in (repr(config), str(config), config.model_dump_json()):
        assert "swordfish" not in shown


def test_a_warehouse_keeps_its_manifests_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE", "postgresql://user:swordfish@host/db")
    section = "{type: delta, path: ./lake}"
    text = SMALLEST.replace(section, '{type: postgres, url: "${env:WAREHOUSE}"}')
    postgres = load(write(tmp_path, text))
    duckdb = load(write(tmp_path, SMALLEST.replace(section, "{type: duckdb, path: shop.duckdb}")))

    assert postgres.lake == duckdb.lake == tmp_path / ".headrace" / "shop" / "target"
    assert "swordfish" not in repr(postgres)
    warehouses = [_warehouse(config) for config in (postgres, duckdb)]
    assert warehouses == [
        PostgresWarehouse("postgresql://user:swordfish@host/db"),
        DuckdbWarehouse(tmp_path / "shop.duckdb"),
    ]
    assert "swordfish" not in repr(warehouses)
    with pytest.raises(TargetError, match="no frontier but its present"):
        read(cast("SparkSession", None), postgres, "public.t")


def test_an_expression_with_a_secret_is_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SALT", "swordfish")
    mask = "tables: {public.t: {mask: {mail: \"sha2('${env:SALT}' || mail, 256)\"}}}\n"
    config = load(write(tmp_path, SMALLEST + mask))
    assert config.tables["public.t"].mask == {"mail": "sha2('swordfish' || mail, 256)"}
    given, _ = table_settings(config)
    assert "swordfish" not in f"{config!r} {config} {given!r} {given[1].shape}"


@req("C75")
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("tables:", "table:", "source.table: unknown name; did you mean tables?"),
        ("name: shop", "name: Shop 1", "name: expected lower-case letters, digits"),
        (
            "type: postgres",
            "type: oracle",
            "source.type: expected one of 'postgres', 'mysql', 'trigger', 'files', 'relay'",
        ),
        ("postgresql://", "https://", "source.url: expected a URL such as postgresql://"),
        ('["public.*"]', "[orders]", "source.tables[0]: expected a pattern schema.table"),
        ("./lake", "gs://bucket/x", "target.path: expected a folder on this machine, or s3://"),
        ("./lake", "s3://b", "target.path: expected a folder on this machine, or s3://"),
        (
            "type: delta, path: ./lake",
            "type: parquet, path: 's3://bucket/x'",
            "target.path: expected a folder on this machine; tables in an object store",
        ),
        ("./lake", "s3://bucket/x, merge: true", "target: expected merge: false with a path in"),
        ("./lake", "./lake, store: {region: x}", "target: expected store only with a path such"),
        (
            "./lake",
            "s3://bucket/x, store: {access_key_id: a}",
            "target.store: expected both access_key_id and secret_access_key",
        ),
        (
            "./lake",
            "s3://bucket/x, store: {endpoint: 'http://me:secret@host'}",
            "target.store.endpoint: expected a URL such as https://host:9000, without user",
        ),
        (
            "./lake",
            "s3://bucket/x, store: {endpoit: a}",
            "target.store.endpoit: unknown name; did you mean endpoint?",
        ),
        ("type: delta", "type: iceberg", "target.type: expected one of 'delta', 'duckdb'"),
        ("type: delta, ", "", "target.type: missing; add it"),
        ("type: delta", "type: duckdb, memoryy: 1", "target.memoryy: unknown name; did you mean"),
        ("type: delta", "type: duckdb, memory: 1", "target.memory: expected"),
        ("type: delta, path", "type: postgres, url", "target.url: expected a URL such as"),
        ("user@", "${env:NOT_THERE}@", "the environment variable NOT_THERE is not set"),
        (
            "type: postgres",
            "type: trigger, keep_hours: 9, abandon_hours: 8",
            "source: expected abandon_hours",
        ),
        (
            "target:",
            "dump: {chunk_rows: many}\ntarget:",
            "dump.chunk_rows: expected a whole number",
        ),
        (
            "target:",
            "changelog: {budget: 8GiX}\ntarget:",
            "changelog.budget: expected a size such as",
        ),
        (
            "target:",
            "tables: {public.t: {mode: scd}}\ntarget:",
            "tables.public.t.mode: expected 'mirror', 'append', 'soft_delete' or 'history'",
        ),
        (
            "target:",
            "tables: {public.t: {select: [a], drop: [b]}}\ntarget:",
            "tables.public.t: expected either select or drop",
        ),
        ("target:", "tables: {t: {}}\ntarget:", "tables.t.[key]: expected a table schema.table"),
        (
            "target:",
            "tables: {public.t: {partition_by: [day, day]}}\ntarget:",
            "tables.public.t: expected each column of partition_by once",
        ),
        (
            "target:",
            "tables: {public.t: {partition_by: day}}\ntarget:",
            "tables.public.t.partition_by: expected a list",
        ),
        (
            "target:",
            "tables: {public.t: {mod: append}}\ntarget:",
            "tables.public.t.mod: unknown name; did you mean mode?",
        ),
        ("name: shop", "name: [shop", "not valid YAML at line 3"),
        ("target:", "dump: {chunk_rows: true}\ntarget:", "chunk_rows: expected a whole number"),
        (
            "target:",
            "dump: {table_chunk_rows: {public.t: yes}}\ntarget:",
            "table_chunk_rows.public.t: expected a whole number",
        ),
        ("target:", "dump: {load: on}\ntarget:", "dump.load: expected a number"),
        ("target:", "changelog: {budget: false}\ntarget:", "budget: expected a size"),
        ("target:", "dump: {rows_per_s: .inf}\ntarget:", "rows_per_s: expected a finite number"),
        ("target:", "changelog: {retain_s: inf}\ntarget:", "retain_s: expected a finite number"),
        ("target:", "dump: {rows_per_s: 1.0e+300}\ntarget:", "rows_per_s: expected 0, or a number"),
        ("target:", "apply: {trigger_s: 1.0e-300}\ntarget:", "trigger_s: expected 0, or a number"),
        ("target:", f"apply: {{max_rows: {10**30}}}\ntarget:", "max_rows: expected 0, or a number"),
        (
            "target:",
            f"changelog: {{retain: {10**30}}}\ntarget:",
            "changelog.retain: expected 0, or a number",
        ),
        (
            "target:",
            f"changelog: {{budget: '{'9' * 400}'}}\ntarget:",
            "budget: expected a size that a disk may have",
        ),
        ("target:", "changelog: {segment: 8GiB}\ntarget:", "changelog.segment: expected less than"),
        ("target:", "metrics: {listen: 'a..b:80'}\ntarget:", "metrics.listen: expected a host"),
        ("target:", 'metrics: {listen: "a\\0b:80"}\ntarget:', "metrics.listen: expected a host"),
        (
            "target:",
            'relay: {tokens: [{name: a, token: "sixteen-letters-\\0"}]}\ntarget:',
            "relay.tokens[0].token: expected text without zero bytes",
        ),
        (
            "target:",
            'spark: {master: "local[2]\\0"}\ntarget:',
            "spark.master: expected text without",
        ),
        ("./lake", '"s3://bucket/a\\0b"', "target.path: expected a prefix without control"),
        ("./lake", '"s3://bucket/a\\nb"', "target.path: expected a prefix without control"),
        ("./lake", '"s3://bucket/a/../b"', "target.path: expected a prefix without control"),
        ("./lake", '"s3://bucket/."', "target.path: expected a prefix without control"),
        ("./lake", '"./a\\0b"', "target.path: expected a path without zero bytes"),
        ("./lake", '"./\\ud800"', "target.path: expected a path without zero bytes"),
        ("./lake", "~nobody-here/lake", "target.path: expected a path that begins with no user"),
        (
            "target:",
            'state: {dir: "a\\0b"}\ntarget:',
            "state.dir: expected a path without zero bytes",
        ),
        (
            "target:",
            "lineage: {file: ~nobody-here/told}\ntarget:",
            "lineage.file: expected a path that begins with no user",
        ),
        ("name: shop", "name: shop\nname: store", "name stands twice, again at line 3"),
        ("path:", "path: ./pond, path:", "path stands twice, again at line 4"),
        ("name: shop", "name: shop\n1: a\n'1': b", "1 stands twice, again at line 4"),
        ("name: shop", "name: 2026-02-30", "not valid YAML at line 2, column 7"),
        ("name: shop", f"name: {'9' * 5_000}", "not valid YAML at line 2, column 7"),
        ("name: shop", "name: !!bool perhaps", "not valid YAML at line 2, column 7"),
        ("name: shop", "name: &a {x: *a}", "holds itself, or more than 50 sections"),
        ("name: shop", f"name: {'[' * 60}{']' * 60}", "more than 50 sections"),
        ("name: shop", f"name: {'[' * 5_000}", "more than 50 sections"),
    ],
)
def test_each_mistake_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in SMALLEST

    message = refused(tmp_path, SMALLEST.replace(old, new)).message
    assert expected in message
    assert "?." not in message


def test_what_is_no_name_is_not_repeated(tmp_path: Path) -> None:
    """Whoever takes another file for the configuration may have taken one of secrets."""
    message = refused(tmp_path, f"{SMALLEST}user:swordfish:17: x\ntoken=sesame: y\n").message
    assert "(a name of 17 letters): unknown name" in message
    assert "swordfish" not in message
    assert "sesame" not in message


def test_aliases_that_name_each_other_are_refused_at_once(tmp_path: Path) -> None:
    names = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    text = "\n".join([SMALLEST, "a0: &a0 [x]", *names])
    assert "values once its aliases are written out" in refused(tmp_path, text).message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "shop", "tables": {"a.b": {}, "a.b": {}}}', "a.b stands twice in one section"),
        (f'{{"name": {"9" * 5_000}}}', "not valid JSON"),
        (f'{{"name": {"[" * 100_000}', "more than 50 sections"),
    ],
    ids=["twice", "digits", "deep"],
)
def test_json_is_refused_as_yaml_is(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load(write(tmp_path, text, "shop.json"))


def test_a_section_takes_in_others_and_says_some_of_their_names_itself(tmp_path: Path) -> None:
    text = """tables:
  public.a: &a {mode: append, drop: [x]}
  public.b: &b {<<: *a, mode: mirror}
  public.c: {<<: [*a, *b], drop: [y]}
"""
    tables = load(write(tmp_path, SMALLEST + text)).tables

    assert [(tables[f"public.{n}"].mode, tables[f"public.{n}"].drop) for n in "abc"] == [
        ("append", ("x",)),
        ("mirror", ("x",)),
        ("append", ("y",)),
    ]


@req("C-17")
@pytest.mark.parametrize("column", ["unit price", "a,b", "a: {b}", "tab\there"])
def test_the_remedy_for_a_refused_name_can_be_written_as_it_is_told(
    tmp_path: Path, column: str
) -> None:
    """Also of a table whose own name has a point in it, and a column whose name is YAML."""
    named = TableId("public", "my.table")
    columns = (replace(table_of(1).columns[0], name=column),)
    with pytest.raises(IncompatibleSchemaChange) as caught:
        create_actions(replace(table_of(1), table=named, columns=columns, key=()), vectors=False)
    told = caught.value.next_step.partition(": ")[2].removesuffix(".").replace("…", "price")

    config = load(write(tmp_path, SMALLEST + told + "\n"))

    assert settings_for(named, table_settings(config)).rename == ((column, "price"),)


@req("C-17")
def test_a_table_with_a_point_in_its_name_can_be_named_everywhere(tmp_path: Path) -> None:
    name = "public.my.table"
    text = SMALLEST.replace(
        'tables: ["public.*"]', f'tables: ["{name}"], columns: {{{name}: {{exclude: [x]}}}}'
    )
    assert text != SMALLEST
    source = load(write(tmp_path, text)).source
    assert isinstance(source, PostgresConfig)
    assert (source.tables, list(source.columns)) == ((name,), [name])


@req("C75")
def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    error = refused(
        tmp_path,
        """
name: shop
source: {type: postgres, url: "postgresql://${env:NOT_THERE}@host/db", tables: [], slott: s}
apply: {max_rows: 0}
""",
    )

    assert "5 problems" in error.message
    for place in ("source.url", "source.tables", "source.slott", "target", "apply.max_rows"):
        assert f"- {place}: " in error.message


@req("C70")
def test_no_refusal_repeats_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "swordfish")
    secret = "${env:SHOP_PASSWORD}"
    mistakes = [
        SMALLEST.replace("postgresql://user@host/db", secret),
        SMALLEST.replace("./lake", f"s3://{secret}?x"),
        SMALLEST.replace("./lake", f"s3://bucket/x, store: {{endpoint: '{secret}'}}"),
        SMALLEST.replace("name: shop", f"name: {secret} {secret}"),
        SMALLEST + f'changelog: {{budget: "{secret}"}}\n',
        SMALLEST + f"dump: {secret}\n",
        SMALLEST + "spark: {driver_memory: swordfish}\n",
        SMALLEST + "spark: {master: 'sc://host:15002/;token=swordfish'}\n",
        SMALLEST + 'password: "swordfish\n',
        SMALLEST + "password: swordfish\npassword: swordfish\n",
        SMALLEST + "password: !!int swordfish\n",
    ]

    for text in mistakes:
        assert "swordfish" not in str(refused(tmp_path, text))


def test_a_missing_file_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        load(tmp_path / "none.yaml")
    assert caught.value.next_step


@req("C70")
def test_a_bucket_is_a_location_that_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_SECRET", "swordfish")
    store = (
        "{endpoint: 'http://127.0.0.1:9000', region: eu-north-1, access_key_id: me, "
        "secret_access_key: '${env:STORE_SECRET}', session_token: '${env:STORE_SECRET}'}"
    )
    config = load(write(tmp_path, SMALLEST.replace("./lake", f"s3://bucket/a/b, store: {store}")))
    bucket = Bucket("bucket", "http://127.0.0.1:9000", "eu-north-1", "me", "swordfish", "swordfish")
    assert config.lake == ObjectPath(bucket, "a/b")
    assert "swordfish" not in f"{config!r} {config} {config.lake!r} {config.lake}"
    bare = load(write(tmp_path, SMALLEST.replace("./lake", "s3://bucket")))
    assert bare.lake == ObjectPath(Bucket("bucket"), "")


CHOSEN = SMALLEST.replace(
    'tables: ["public.*"]}', 'tables: ["public.*"], ddl: trigger, columns: {COLUMNS}}'
)


def test_columns_are_chosen_by_table_and_reach_the_source(tmp_path: Path) -> None:
    text = CHOSEN.replace(
        "{COLUMNS}", "{public.a: {include: [id, n]}, public.b: {exclude: [secret]}}"
    )
    source = open_database(load(write(tmp_path, text)))
    assert isinstance(source, PostgresSource)
    settings = source.settings
    assert settings.columns == (
        ColumnChoice(TableId("public", "a"), include=frozenset({"id", "n"})),
        ColumnChoice(TableId("public", "b"), exclude=frozenset({"secret"})),
    )
    assert settings.ddl == "trigger"


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("{public.a: {}}", "source.columns.public.a: expected"),
        ("{public.a: {include: [x], exclude: [y]}}", "source.columns.public.a: expected"),
        ("{'public.*': {exclude: [y]}}", "expected a table schema.table"),
        ("{public.a: {excluded: [y]}}", "did you mean exclude?"),
    ],
)
def test_a_choice_of_columns_that_cannot_be_meant_is_refused(
    tmp_path: Path, columns: str, problem: str
) -> None:
    assert problem in refused(tmp_path, CHOSEN.replace("{COLUMNS}", columns)).message


def test_what_the_target_lacks_is_refused_where_the_file_is_read(tmp_path: Path) -> None:
    duckdb = SMALLEST.replace("{type: delta, path: ./lake}", "{type: duckdb, path: ./shop.db}")
    merge = SMALLEST.replace("./lake}", "./lake, merge: true}")
    history = "tables: {public.t: {mode: history}}\n"
    for lacking, more, said in (
        (merge, history, "tables.public.t: the target merge has no mode"),
        (merge, "changes: {dropped_column: keep}\n", "changes: the target merge cannot do dropped"),
        (merge, "changes: {incompatible: recopy}\n", "changes: the target merge cannot do incom"),
        (
            duckdb,
            "tables: {public.t: {partition_by: [day]}}\n",
            "tables.public.t: the target duckdb part",
        ),
    ):
        load(write(tmp_path, SMALLEST + more))
        assert said in refused(tmp_path, lacking + more).message
    load(write(tmp_path, duckdb + history + "changes: {dropped_column: keep}\n"))


def test_what_a_table_does_not_say_of_changes_is_said_for_all(tmp_path: Path) -> None:
    text = (
        "changes: {incompatible: new_column, dropped_table: drop}\n"
        "tables: {public.a: {changes: {incompatible: stop}}, public.b: {changes: {dropped_column: keep}}}\n"
    )
    given = table_settings(load(write(tmp_path, SMALLEST + text)))
    stop, new = Incompatible.STOP, Incompatible.NEW_COLUMN
    assert [(name, settings.policies) for name, settings in given] == [
        ("public.a", Policies(stop, Dropped.DROP, Dropped.DROP)),
        ("public.b", Policies(new, Dropped.KEEP, Dropped.DROP)),
        ("*", Policies(new, Dropped.DROP, Dropped.DROP)),
    ]
    # How a table takes changes is no part of what it was made as.
    assert {settings.shape for _, settings in given} == {""}


MARIADB = SMALLEST.replace("type: postgres", "type: mysql").replace("postgresql://", "mysql://")


def test_a_mysql_section_reaches_its_source(tmp_path: Path) -> None:
    text = MARIADB.replace(
        'tables: ["public.*"]}',
        'tables: ["shop.*"], exclude: [shop.old], zero_dates: "null", heartbeat_s: 2}',
    )
    source = open_database(load(write(tmp_path, text)))
    assert isinstance(source, MysqlSource)
    settings = source.settings
    assert (settings.tables, settings.exclude) == (("shop.*",), ("shop.old",))
    assert (settings.zero_dates, settings.heartbeat_s) == ("null", 2.0)


def test_what_only_postgresql_has_is_no_key_of_a_mysql_section(tmp_path: Path) -> None:
    text = MARIADB.replace('tables: ["public.*"]}', 'tables: ["shop.*"], slot: mine}')
    with pytest.raises(ConfigError, match=r"source\.slot: unknown name"):
        load(write(tmp_path, text))
    with pytest.raises(ConfigError, match="mysql://user@host:3306"):
        load(write(tmp_path, MARIADB.replace("mysql://", "postgresql://")))
