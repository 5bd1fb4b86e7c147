"""``headrace source triggers``: what it prints is what it makes, and what it makes it removes."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from tests.fixtures_postgres import Sql, database, postgres_server, sql
from tests.requirements import req

__all__ = ["database", "postgres_server", "sql"]

pytestmark = pytest.mark.postgres


def file_of(folder: Path, name: str, url: str, kind: str = "trigger") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(
        f"name: {name}\nsource: {{type: {kind}, url: {json.dumps(url)}, tables: ['public.*']}}\n"
        f"target: {{type: delta, path: {folder}/lake}}\n"
    )
    return path


def run(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["source", "triggers", *map(str, words)])
    return done.exit_code, done.output


def made(url: str) -> list[tuple[str, ...]]:
    """Return everything of ours in the database: triggers, relations and functions."""
    query = """
        SELECT 'trigger', tgrelid::regclass::text, tgname::text FROM pg_trigger WHERE tgname LIKE '0_headrace%'
        UNION SELECT 'relation', c.relname::text, '' FROM pg_class c
                JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'headrace'
        UNION SELECT 'function', p.proname::text, pg_get_functiondef(p.oid) FROM pg_proc p
                JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'headrace'
        ORDER BY 1, 2, 3
    """
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


@req("D117")
def test_what_is_shown_is_what_is_installed(database: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    file = file_of(tmp_path, "shop", database)
    code, script = run("show", file)
    assert code == 0
    assert made(database) == []
    assert run("install", file) == (0, "triggers made on: public.t, public.u\n")
    installed = made(database)
    assert [row[1] for row in installed if row[0] == "trigger"] == ["t"] * 3 + ["u"] * 3
    assert run("install", file, "--json") == (0, '{"tables": []}\n')
    assert run("remove", file, "--json") == (0, '{"tables": ["public.t", "public.u"]}\n')
    assert made(database) == []
    sql(script)
    assert made(database) == installed
    assert json.loads(run("show", file, "--json")[1])["sql"] == script.rstrip("\n")


@req("D117")
def test_one_replicators_triggers_are_not_removed_by_another(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    from headrace.replicator.config_file import load
    from headrace.replicator.databases import open_triggers

    sql("CREATE TABLE t (id int PRIMARY KEY)")
    one, two = (file_of(tmp_path, name, database) for name in ("one", "two"))
    for file in (one, two):
        open_triggers(load(file)).prepare()
    before = made(database)
    assert run("remove", one) == (0, "triggers removed from: no table\n")
    assert made(database) == before
    assert run("remove", two) == (0, "triggers removed from: public.t\n")
    assert made(database) == []


@req("C21")
def test_a_source_of_another_type_is_refused_by_name(database: str, tmp_path: Path) -> None:
    code, said = run("show", file_of(tmp_path, "shop", database, "postgres"))
    assert code == 2
    assert "source.type is postgres" in said
