"""A table that awaits a dump made elsewhere: left alone until it was adopted, then followed from its position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.changelog.jobs import jobs
from headrace.lake.adopted import put_adopted, write_adopted
from headrace.lake.delta_log import DeltaTable
from headrace.lake.dump_files import DumpFiles
from headrace.lake.frontier import FrontierStore, TableEntry
from headrace.lake.ledger import app_id, table_path
from headrace.lake.settings import TableSettings
from headrace.model.block import SystemKind
from headrace.model.change import table_arrow_schema
from headrace.model.schema import KeyCheck, TableSchema
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.targets.delta import DeltaTarget
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import Log, lent, model

pytestmark = pytest.mark.spark

T, BAG = table_of(3, name="t"), table_of(2, check=KeyCheck.NONE, name="bag")
OTHER = table_of(2, name="other")
HISTORY = "+I(1,a,x) +I(2,b,y) | =U(1,c,?) | -U(2,?,?) +U(3,b,?) | -D(1) | =U(3,d,?)"
BAGS = "+I(1,a) +I(1,a) | +I(2,b) | -D(1,a) | +I(1,a) | -D(2,b)"
ADOPTED = TableSettings(adopted=True)


class Bench:
    """A log of three tables, of which two are filled elsewhere."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.log = Log(folder / "changelog")
        self.folder, self.lake = folder, folder / "lake"
        settings = (("public.t", ADOPTED), ("public.bag", ADOPTED))
        self.options = ApplyOptions("test", self.log.folder, self.lake, settings=settings)
        self.target = DeltaTarget(spark, self.lake, "test")
        self.applier: Applier | None = None
        self.at = 0

    def restart(self) -> None:
        self.end()
        self.applier = Applier(self.options, self.target)
        start = self.applier.begin()
        self.at = start.from_scn
        if start.first_end > self.at:
            self.apply(start.first_end)

    def apply(self, scn: int = 0) -> None:
        assert self.applier is not None
        end = scn or self.log.scn
        self.applier.process(self.at, end)
        assert self.applier.failing == []
        self.at = end

    def end(self) -> None:
        if self.applier is not None:
            self.applier.close()
            self.applier = None

    def adopt(self, schema: TableSchema, history: str, upto: int, scn: int) -> None:
        """Adopt the table that the first transactions of a history leave, at a position."""
        rows = list(model(schema, *history.split("|")[:upto]).elements())
        cells = [[row[at] for row in rows] for at in range(len(schema.names))]
        arrays = [
            pa.array(c, f.type) for c, f in zip(cells, table_arrow_schema(schema), strict=True)
        ]
        dump = self.folder / f"{schema.table.name}.parquet"
        pq.write_table(pa.table(arrays, names=schema.names), dump)
        folder = table_path(self.lake, schema.table)
        name, files = app_id("test", schema.table), DumpFiles.open(dump, schema)
        put_adopted(folder, write_adopted(folder, files, name, scn, self.folder, vectors=True))

    def entry(self, schema: TableSchema) -> TableEntry:
        manifest = FrontierStore(self.lake, "test").latest()
        assert manifest is not None
        return manifest.tables[str(schema.table)]

    def rows(self, schema: TableSchema) -> Counter[tuple[object, ...]]:
        snapshot = DeltaTable(table_path(self.lake, schema.table)).snapshot(
            self.entry(schema).version
        )
        return Counter(tuple(row.values()) for row in snapshot.to_table().to_pylist())

    def held(self) -> int:
        return jobs(self.log.folder)["test"]


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(spark, tmp_path)
    yield from lent(made)
    made.end()


@req("D34")
@pytest.mark.parametrize("when", ["beside", "before the completion", "with the completion"])
@pytest.mark.parametrize("early", [False, True])
def test_tables_wait_and_go_on_exactly_behind_their_dump(
    bench: Bench, when: str, early: bool
) -> None:
    """Whether apply was at work while they were adopted, or began before or behind the end mark."""
    bench.log.write(OTHER, "+I(1,a)")
    bench.log.complete(OTHER)
    bench.restart()
    bench.apply()
    assert bench.entry(OTHER).state == "live"
    begin = bench.log.scn
    bench.log.write(T, HISTORY)
    bench.log.write(BAG, BAGS)
    bench.log.write(OTHER, "+I(2,b)")
    bench.apply(begin + 30)
    bench.apply()
    # The others go on, the log is kept, and nothing was made of the two.
    assert bench.rows(OTHER) == Counter({(1, "a"): 1, (2, "b"): 1})
    assert (bench.entry(T).state, bench.entry(T).version) == ("copying", -1)
    assert not table_path(bench.lake, T.table).exists()
    assert bench.held() == bench.entry(T).applied_scn == begin
    assert bench.applier is not None
    said = bench.applier.status.tables["public.t"].error
    assert said is not None
    assert (said["name"], "headrace adopt" in said["next_step"]) == ("AwaitsAdoption", True)
    # Before the log spoke of the table, or after two and three of its transactions.
    upto = 0 if early else 2
    if when != "beside":
        bench.end()
    bench.adopt(T, HISTORY, upto, begin - 5 if early else begin + 20)
    bench.adopt(BAG, BAGS, upto + (not early), begin - 5 if early else begin + 85)
    if when == "before the completion":
        bench.restart()
    bench.log.complete(T)
    bench.log.complete(BAG)
    if when == "with the completion":
        bench.restart()
    bench.apply()
    for schema, history in ((T, HISTORY), (BAG, BAGS)):
        assert bench.entry(schema).state == "live"
        assert bench.rows(schema) == model(schema, history)
    assert bench.held() == bench.log.scn
    bench.log.write(T, "+I(9,z,z)")
    bench.restart()
    bench.apply()
    assert bench.rows(T) == model(T, HISTORY, "+I(9,z,z)")


@req("D34")
@pytest.mark.parametrize("off_by", [-10, 10])
def test_a_position_one_transaction_off_gives_another_table(bench: Bench, off_by: int) -> None:
    bench.log.write(BAG, BAGS)
    bench.adopt(BAG, BAGS, 2, 20 + off_by)
    bench.log.complete(BAG)
    bench.restart()
    bench.apply()
    assert bench.rows(BAG) != model(BAG, BAGS)


@req("D34")
@pytest.mark.parametrize("reason", ["dumped", "gap", "dropped"])
def test_a_table_that_no_dump_will_come_for_holds_the_log_no_longer(
    bench: Bench, reason: str
) -> None:
    bench.log.write(T, HISTORY)
    bench.restart()
    bench.apply(30)
    assert bench.held() == 0
    if reason == "dumped":
        bench.log.write(T, "+R(7,p,q)")
        bench.log.complete(T)
    elif reason == "gap":
        bench.log.gap(T)
    else:
        bench.log.tell(SystemKind.DROP_TABLE, T.table, identity="1")
    bench.apply()
    assert bench.held() == bench.log.scn
    wanted = {"dumped": "live", "gap": "copying", "dropped": "left"}
    assert bench.entry(T).state == wanted[reason]
    if reason == "dumped":
        assert bench.rows(T) == model(T, HISTORY, "+R(7,p,q)")


@req("D34")
def test_a_table_of_which_the_log_says_nothing_is_live_at_its_completion(bench: Bench) -> None:
    bench.log.write(OTHER, "+I(1,a) | +I(2,a) | +I(3,a)")
    bench.restart()
    bench.apply()
    bench.adopt(T, HISTORY, 2, 15)
    bench.log.complete(T)
    bench.apply()
    assert (bench.entry(T).state, bench.entry(T).applied_scn) == ("live", bench.log.scn)
    assert bench.rows(T) == model(T, *HISTORY.split("|")[:2])


def test_a_mark_that_comes_late_changes_nothing_for_a_table_that_is_there(bench: Bench) -> None:
    plain = replace(bench.options, settings=())
    marked, bench.options = bench.options, plain
    bench.log.write(T, HISTORY)
    bench.restart()
    bench.apply(20)
    bench.options = marked
    bench.restart()
    bench.apply()
    assert bench.held() == bench.log.scn
