"""From PostgreSQL into an object store, by the command line: copied, followed, compared, kept in order, and refused."""

from __future__ import annotations

import json

import psycopg
import pytest

from headrace.demo import schema
from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.model.schema import TableId
from headrace.store import ObjectPath, store_of
from headrace.testing.fault_proxy import Fault, FaultProxy
from tests.e2e.pipeline import Pipeline
from tests.e2e.test_run_once import ON_POSTGRES
from tests.fixtures_store import object_server, prefix, proxy
from tests.requirements import req

__all__ = ["object_server", "prefix", "proxy"]

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.object_store,
    pytest.mark.timeout(1200),
]


@pytest.fixture
def target(
    request: pytest.FixtureRequest,
    prefix: ObjectPath,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    # A store that answers in the end has all the time that users give it.
    patience = "timeout_s: 5, " if "fault" in request.fixturenames else ""
    bucket = prefix.bucket
    monkeypatch.setenv("STORE_KEY", str(bucket.access_key_id))
    monkeypatch.setenv("STORE_SECRET", str(bucket.secret_access_key))
    store = (
        f"{{endpoint: '{proxy.endpoint}', region: us-east-1, {patience}"
        "access_key_id: '${env:STORE_KEY}', secret_access_key: '${env:STORE_SECRET}'}"
    )
    maintenance = "{target_file: 64KiB, small_file: 32KiB}"
    return f"{{type: delta, path: '{prefix}', store: {store}, maintenance: {maintenance}}}"


@req("C24", "C45", "P31")
def test_once_copies_then_follows_and_verify_agrees(
    url: str, pipeline: Pipeline, prefix: ObjectPath
) -> None:
    with psycopg.connect(url) as connection:
        schema.create(connection)
        rows = dict(schema.load(connection, 2_000))
    pipeline.succeed("preflight")
    pipeline.succeed("run", "--once")
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in ON_POSTGRES.split(";"):
            connection.execute(statement)
    pipeline.succeed("run", "--once")
    found = json.loads(pipeline.succeed("verify", "--json"))
    assert found["equal"], found
    assert {table["table"] for table in found["tables"]} == {f"shop.{table}" for table in rows}
    json.loads(pipeline.succeed("maintain", "--json"))
    orders = DeltaTable(table_path(prefix, TableId("shop", "orders"))).snapshot()
    assert "via" in orders.schema.names
    assert json.loads(pipeline.succeed("verify", "--json"))["equal"]
    # Nothing of the target lies on this machine, and no secret anywhere in what processes left.
    assert not list(pipeline.file.parent.rglob("*.parquet"))
    secret = str(prefix.bucket.secret_access_key).encode()
    kept = [path for path in pipeline.file.parent.rglob("*") if path.is_file()]
    assert len(kept) > 5
    assert not [path for path in kept if secret in path.read_bytes()]


@req("C75", "C84")
@pytest.mark.parametrize(
    ("fault", "name", "text"),
    [
        (Fault.NO_CONDITION, "store-unfit", "If-None-Match: *"),
        (Fault.LOST_REQUEST, "store-unavailable", "no connection"),
    ],
)
def test_a_store_that_cannot_hold_tables_is_named_before_spark_starts(
    url: str,
    pipeline: Pipeline,
    proxy: FaultProxy,
    prefix: ObjectPath,
    fault: Fault,
    name: str,
    text: str,
) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create schema shop; create table shop.t (id int primary key)")
    proxy.rule = lambda _: fault
    done = pipeline.command("preflight")
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 1
    assert name in said
    assert text in said
    done = pipeline.command("run", "--once")
    assert done.returncode == 1
    assert not pipeline.paths.spark.exists()
    assert not list(store_of(prefix).walk(prefix, lambda _: True, lambda _: True))
