"""Spark's tasks and an object store: answers that are lost, other writers, and reading without Hadoop's own client."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.errors import Retry, StoreUnavailable, TargetError
from headrace.lake.commit import commit_info, put_commit
from headrace.lake.data_writer import write_rows
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import create_actions
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.keyed import commit_keyed
from headrace.lake.ledger import table_path
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.observe.failpoints import arm
from headrace.spark.apply import ApplyOptions
from headrace.spark.read import read
from headrace.spark.targets.delta import DeltaTarget
from headrace.store import ObjectPath, store_of
from headrace.testing.fault_proxy import Fault, FaultProxy, Request, pass_all
from headrace.testing.notation import table_of
from headrace.testing.object_store import ObjectServer
from tests.lake.test_commits import folded_of
from tests.requirements import req
from tests.spark.folded import run_to
from tests.spark.log import Log, lent, model
from tests.spark.test_apply import KEYED, KEYLESS

pytestmark = [pytest.mark.spark, pytest.mark.object_store]

WITH_KEY, WITHOUT = table_of(2, name="keyed"), table_of(2, check=KeyCheck.NONE, name="keyless")


class Bench:
    """A change log, and a bucket behind a proxy that may fail."""

    def __init__(
        self, spark: SparkSession, folder: Path, lake: ObjectPath, seen: ObjectPath
    ) -> None:
        self.spark = spark
        self.log = Log(folder / "changelog")
        self.lake = lake
        self.seen = seen

    def run(self, *ends: int) -> None:
        """Apply up to each end in turn, as after a restart, until the network lets it happen."""
        options = ApplyOptions("test", self.log.folder, self.lake)
        applier = run_to(options, DeltaTarget(self.spark, self.lake, "test"), *ends)
        for error in applier.failing:
            raise error

    def in_spark(self, schema: TableSchema, server: ObjectServer) -> Counter[tuple[object, ...]]:
        """Return the rows as Spark's own reader finds them, in the folder that the server serves."""
        folder = server.folder_of(self.seen) / schema.table.schema / schema.table.name
        rows = self.spark.read.format("delta").load(str(folder)).collect()
        return Counter(tuple(row) for row in rows)

    def rows(self, schema: TableSchema) -> Counter[tuple[object, ...]]:
        held = DeltaTable(table_path(self.seen, schema.table)).snapshot()
        return Counter(tuple(row.values()) for row in held.to_table().to_pylist())


@pytest.fixture
def bench(
    spark: SparkSession,
    tmp_path: Path,
    object_server: ObjectServer,
    prefix: ObjectPath,
    proxy: FaultProxy,
) -> Iterator[Bench]:
    bucket = object_server.bucket(proxy.endpoint, timeout_s=10, retries=0)
    yield from lent(Bench(spark, tmp_path, ObjectPath(bucket, prefix.key), prefix))


@req("C43", "C44", "C50", "C62", "C-13")
@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
def test_a_network_that_loses_requests_or_answers_neither_doubles_nor_loses_a_batch(
    bench: Bench, proxy: FaultProxy, object_server: ObjectServer, fault: Fault
) -> None:
    random = Random(5)
    broken: list[TargetError] = []
    for schema, history in ((WITH_KEY, KEYED), (WITHOUT, KEYLESS)):
        bench.log.write(schema, history)
        bench.log.complete(schema)

    def rule(request: Request) -> Fault:
        return fault if request.method == "PUT" and random.random() < 0.4 else Fault.NONE

    proxy.rule = rule
    while True:
        try:
            bench.run(bench.log.scn)
            break
        except TargetError as error:
            broken.append(error)
    proxy.rule = pass_all
    bench.run(bench.log.scn)
    for schema, history in ((WITH_KEY, KEYED), (WITHOUT, KEYLESS)):
        assert bench.rows(schema) == model(schema, history)
        assert bench.in_spark(schema, object_server) == model(schema, history)
    assert {error.retry for error in broken} == {Retry.TIMED}
    newest = FrontierStore(bench.seen, "test").latest()
    assert newest is not None
    assert {entry.state for entry in newest.tables.values()} == {"live"}


def test_another_writer_between_probe_and_commit_is_given_way(bench: Bench) -> None:
    bench.log.write(WITH_KEY, "+I(1,a) +I(2,b)")
    end = bench.log.complete(WITH_KEY)
    bench.run(end)
    folder = table_path(bench.seen, WITH_KEY.table)
    done: list[int] = []

    def meddle() -> None:
        if done:
            return
        held = DeltaTable(folder).snapshot()
        rows = commit_keyed(held, WITH_KEY, folded_of(WITH_KEY, "-D(1) +I(9,z)"), complete=True)
        put_commit(folder, held.version + 1, [commit_info("TEST"), *rows])
        done.append(held.version + 1)

    arm("apply.files_written", meddle)
    bench.run(bench.log.write(WITH_KEY, "=U(2,c) | -D(9)"))
    assert done
    assert bench.rows(WITH_KEY) == Counter({(2, "c"): 1})
    # What the first try wrote is gone, all else is named by the log.
    state = DeltaTable(folder).state(DeltaTable(folder).snapshot().version)
    known = {path for path, _ in (*state.files, *state.removed)}
    files = store_of(folder).walk(folder, lambda _: False, lambda name: name.startswith("part-"))
    assert {file.path.name for file in files} <= known


@req("C62")
def test_a_store_that_goes_away_is_named_and_tried_again(bench: Bench, proxy: FaultProxy) -> None:
    bench.log.write(WITH_KEY, "+I(1,a)")
    end = bench.log.complete(WITH_KEY)
    proxy.rule = lambda _: Fault.LOST_REQUEST
    with pytest.raises(StoreUnavailable, match="lake at http"):
        bench.run(end)
    proxy.rule = pass_all
    bench.run(end)
    assert bench.rows(WITH_KEY) == Counter({(1, "a"): 1})


def test_a_table_whose_removal_was_cut_short_may_come_back(bench: Bench, proxy: FaultProxy) -> None:
    bench.log.write(WITH_KEY, "+I(1,a) +I(2,b)")
    bench.run(bench.log.complete(WITH_KEY))
    for done in range(20):
        target = DeltaTarget(bench.spark, bench.lake, "test")
        target.evolve(WITH_KEY)
        assert not bench.rows(WITH_KEY) or not done
        held = target.state(WITH_KEY.table)
        assert held is not None
        begun, cut = len(proxy.requests), 0

        def rule(request: Request) -> Fault:
            return Fault.LOST_REQUEST if request.number > begun + done else Fault.NONE  # noqa: B023

        proxy.rule = rule
        try:
            target.drop(WITH_KEY.table)
        except StoreUnavailable:
            cut += 1
        proxy.rule = pass_all
        fresh = DeltaTarget(bench.spark, bench.lake, "test")
        if not cut:
            assert fresh.state(WITH_KEY.table) is None
            return
        # Whole, or gone.
        left = fresh.state(WITH_KEY.table)
        assert left is None or left == held
        fresh.drop(WITH_KEY.table)
        if left is None:
            assert done > 3
    raise AssertionError("it is never removed")


def test_a_frontier_is_read_by_tasks(
    spark: SparkSession, prefix: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = spark.sparkContext

    def asked(_session: SparkSession) -> SparkContext:
        # A session of Spark Connect has none; Spark's own code asks a classic one for it.
        assert not sys._getframe(1).f_globals["__name__"].startswith("headrace.")
        return context

    monkeypatch.setattr(type(spark), "sparkContext", property(asked))
    columns = {
        "k": (pa.int64(), "int8", 1),
        "d": (pa.decimal128(12, 3), "numeric(12,3)", Decimal("1.500")),
        "t": (pa.timestamp("us", tz="UTC"), "timestamptz", dt.datetime(2024, 5, 1, tzinfo=dt.UTC)),
        "l": (pa.timestamp("us"), "timestamp", dt.datetime(2024, 5, 1)),  # noqa: DTZ001
        "b": (pa.binary(), "bytea", b"x"),
        "n": (pa.string(), "text", None),
    }
    schema = TableSchema(
        TableId("public", "wide"),
        tuple(Column(name, type_, own) for name, (type_, own, _) in columns.items()),
        ("k",),
        KeyCheck.IMMEDIATE,
    )
    folder = table_path(prefix, schema.table)
    put_commit(folder, 0, create_actions(schema, vectors=True))
    held = DeltaTable(folder).snapshot()
    for version in (1, 2, 3):
        row = {name: value for name, (_, _, value) in columns.items()} | {"k": version}
        rows = pa.Table.from_pylist([row], schema=held.schema)
        adds = write_rows(folder, rows, ["k"])
        put_commit(folder, version, [commit_info("TEST"), *({"add": add} for add in adds)])
    entry = TableEntry(version=2, applied_scn=7, complete_scn=7, state="live")
    FrontierStore(prefix, "test").write(Manifest(7, 7, {"public.wide": entry}, 7))
    found = read(spark, prefix, "test", "public.wide")
    wanted = DeltaTable(folder).snapshot(2).to_table().to_pylist()
    assert found.toArrow().sort_by("k").to_pylist() == wanted
    assert len(wanted) == 2
    assert found.where("k = 2").select("d").first() is not None
    store_of(folder).delete([DeltaTable(folder).snapshot(2).files[0].path])
    with pytest.raises(TargetError, match="lost 1 of its files"):
        read(spark, prefix, "test", "public.wide")
