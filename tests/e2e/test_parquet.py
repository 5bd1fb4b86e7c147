"""From PostgreSQL into files of changes, by the command line; read by programs that know nothing of headrace."""

from __future__ import annotations

import json

import duckdb
import psycopg
import pytest

from headrace.errors import TargetError
from headrace.replicator.reading import read
from tests.e2e.pipeline import Pipeline
from tests.requirements import req

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(1200),
]


@pytest.fixture
def target() -> str:
    return "{type: parquet, path: ./files}"


@req("C24", "C30", "C45")
def test_once_writes_every_change_of_rows_and_columns_once(url: str, pipeline: Pipeline) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create schema shop")
        connection.execute("create table shop.moves (id int primary key, place text)")
        connection.execute("insert into shop.moves values (1, 'Oslo'), (2, 'Rome')")
        pipeline.succeed("run", "--once")
        connection.execute("update shop.moves set place = 'Bergen' where id = 1")
        connection.execute("alter table shop.moves add column weight numeric(6,2)")
        diff = json.loads(pipeline.succeed("schema diff", "--json"))
        assert [(c["change"], c["column"]) for c in diff[0]["changes"]] == [("add", "weight")]
        connection.execute("insert into shop.moves values (3, 'Bari', 1.5)")
        connection.execute("delete from shop.moves where id = 2")
    pipeline.succeed("run", "--once")
    files = f"{pipeline.config.lake}/shop/moves/*.parquet"
    found = (
        duckdb.connect()
        .execute(
            "select _op, id, place, weight::text, _missing from "
            f"read_parquet('{files}', union_by_name = true) order by _scn, _ord"
        )
        .fetchall()
    )
    read_rows, changes = sorted(found[:2]), found[2:]
    assert read_rows == [("+R", 1, "Oslo", None, None), ("+R", 2, "Rome", None, None)]
    assert changes == [
        ("=U", 1, "Bergen", None, None),
        ("+I", 3, "Bari", "1.50", None),
        ("-D", 2, None, None, "place,weight"),
    ]
    report = json.loads(pipeline.succeed("verify", "--json"))
    assert [(t["table"], t["state"]) for t in report["tables"]] == [("shop.moves", "append")]
    with pytest.raises(TargetError, match="files of changes, which hold no state"):
        read(None, pipeline.config, "shop.moves")  # type: ignore[arg-type]
