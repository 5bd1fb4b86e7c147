"""Migrations of a real source, each followed by its policy, by the command line; then both sides agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.model.schema import TableId
from tests.e2e.pipeline import Pipeline
from tests.places import local
from tests.requirements import req

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]

SETTINGS = """
changes: {incompatible: new_column, dropped_table: drop}
tables:
  shop.again: {changes: {incompatible: recopy}}
  shop.narrow: {changes: {dropped_column: keep}}
  shop.stays: {changes: {dropped_table: keep}}
"""
BEFORE = """
create schema shop;
create schema old;
create table shop.aside (id int primary key, amount int, note text);
create table shop.again (id int primary key, amount int, note text);
create table shop.narrow (id int primary key, a text, b text);
create table shop.gone (id int primary key);
create table shop.stays (id int primary key);
create table old.gone (id int primary key);
insert into shop.aside select n, n, 'x' from generate_series(1, 500) n;
insert into shop.again select n, n, 'x' from generate_series(1, 500) n;
insert into shop.narrow values (1, 'a1', 'b1'), (2, 'a2', 'b2');
insert into shop.gone values (1);
insert into shop.stays values (1);
insert into old.gone values (1);
"""
CHANGES = """
alter table shop.aside alter amount type text using 'n' || amount;
alter table shop.again alter amount type text using 'n' || amount;
alter table shop.narrow drop b;
"""
MORE = """
update shop.aside set note = 'y' where id = 7;
update shop.again set note = 'y' where id = 7;
delete from shop.aside where id = 8;
delete from shop.again where id = 8;
update shop.narrow set a = 'A1' where id = 1;
insert into shop.narrow values (3, 'a3');
drop table shop.gone;
drop table shop.stays;
drop schema old cascade;
"""


@pytest.fixture
def tables() -> Sequence[str]:
    return ("shop.*", "old.*")


def carry_out(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in filter(str.strip, text.split(";")):
            connection.execute(statement)


@req("C30", "C45", "C05")
def test_each_policy_is_followed_as_the_diff_said(
    url: str, tmp_path: Path, tables: Sequence[str]
) -> None:
    pipeline = Pipeline(tmp_path, url, tables, more=SETTINGS)

    def folder(name: str) -> Path:
        return table_path(local(pipeline.config.lake), TableId.parse(name))

    def rows(name: str) -> dict[int, dict[str, Any]]:
        held = DeltaTable(folder(name)).snapshot().to_table().to_pylist()
        assert len({row["id"] for row in held}) == len(held)
        return {row["id"]: row for row in held}

    carry_out(url, BEFORE)
    pipeline.succeed("run", "--once")
    carry_out(url, CHANGES)
    said = json.loads(pipeline.succeed("schema diff", "--json"))
    found = {
        (t["table"], c["change"], c["column"]): c["detail"] for t in said for c in t["changes"]
    }
    assert "stays as amount_was_int32" in found["shop.aside", "aside", "amount"]
    assert "incompatible: recopy" in found["shop.again", "recopy", "amount"]
    assert "dropped_column: keep" in found["shop.narrow", "keep", "b"]
    carry_out(url, MORE)
    pipeline.succeed("run", "--once")

    assert rows("shop.aside")[7] == {
        "id": 7,
        "amount_was_int32": 7,
        "note": "y",
        "amount": "n7",
    }
    assert rows("shop.again")[7] == {"id": 7, "amount": "n7", "note": "y"}
    for name in ("shop.aside", "shop.again"):
        assert len(rows(name)) == 499
        assert all(row["amount"] == f"n{key}" for key, row in rows(name).items())
    assert rows("shop.narrow") == {
        1: {"id": 1, "a": "A1", "b": "b1"},
        2: {"id": 2, "a": "a2", "b": "b2"},
        3: {"id": 3, "a": "a3", "b": None},
    }
    assert rows("shop.stays") == {1: {"id": 1}}
    assert not folder("shop.gone").exists()
    assert not folder("old.gone").exists()
    report = json.loads(pipeline.succeed("verify", "--json"))
    assert report["equal"]
    assert {t["table"]: t["state"] for t in report["tables"]} == {
        "shop.again": "equal",
        "shop.aside": "equal",
        "shop.narrow": "equal",
    }
    assert {
        t["change"] for t in json.loads(pipeline.succeed("schema diff", "--json"))[0]["changes"]
    } == set()
