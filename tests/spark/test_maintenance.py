"""Maintenance between the batches of a job: whatever happens, tables say what they would without it."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.lake.commit import put_commit
from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore
from headrace.lake.ledger import table_path
from headrace.lake.modes import Mode
from headrace.lake.pieces import Sizes
from headrace.lake.settings import TableSettings
from headrace.lake.settle import removal
from headrace.lake.tidy import tidy
from headrace.model.block import Body
from headrace.model.schema import KeyCheck, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.spark import maintenance
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.job import ApplySettings, run_apply
from headrace.spark.maintenance import MaintenanceSettings
from headrace.spark.targets.delta import DeltaTarget
from headrace.testing.notation import Row, change_batch, table_of
from tests.requirements import req
from tests.spark.log import Log, lent
from tests.waiting import until

pytestmark = pytest.mark.spark

KEYED, BAG = table_of(2, name="keyed"), table_of(2, check=KeyCheck.NONE, name="bag")
KEPT = {mode: table_of(2, name=mode.value) for mode in Mode if mode is not Mode.MIRROR}
SCHEMAS = (KEYED, BAG, *KEPT.values())
SETTINGS = tuple((f"public.{mode.value}", TableSettings(mode)) for mode in KEPT)
BUSY = MaintenanceSettings(Sizes(400_000, 100_000, 0.1), load=1.0)
"""By which there is always something to do."""
LARGER = MaintenanceSettings(Sizes(400_000, 200_000, 0.1), load=1.0)
"""By which files with the numbers and times of an append are small as well."""
CELLS = ("one", "another", None)


class Crash(BaseException):
    """The process ends here."""


class Life:
    """One table at the source: rows come in numbers that keep files apart, and change."""

    def __init__(self, schema: TableSchema, rng: random.Random) -> None:
        self.schema = schema
        self.rng = rng
        self.rows: dict[int, str | None] = {}
        self.fresh = 0

    def step(self, scn: int, number: int) -> list[Row]:
        """Change the table and return the rows of the transaction."""
        made: list[tuple[str, tuple[Any, ...]]] = []
        if number < 4:
            # Each time fewer than in any file that is there: it stays a file of its own.
            for _ in range(14_000 - 1_000 * number):
                self.rows[self.fresh] = self.rng.choice(CELLS)
                made.append(("+I", (self.fresh, self.rows[self.fresh])))
                self.fresh += 1
        else:
            for key in self.rng.sample(sorted(self.rows), len(self.rows) // 8):
                old = self.rows.pop(key)
                if self.rng.random() < 0.5:
                    made.append(("-D", (key, old)))
                    continue
                self.rows[key] = self.rng.choice(CELLS)
                made += [("-U", (key, old)), ("+U", (key, self.rows[key]))]
        return [(scn, order, op, cells) for order, (op, cells) in enumerate(made)]

    def truth(self) -> Counter[tuple[Any, ...]]:
        return Counter(self.rows.items())


class Bench:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.log = Log(folder / "changelog")
        self.lake = folder / "lake"
        self.options = ApplyOptions(
            "test", self.log.folder, self.lake, settings=SETTINGS, maintenance=BUSY
        )

    def applier(self, **changed: Any) -> Applier:
        options = replace(self.options, **changed)
        return Applier(options, DeltaTarget(self.spark, options.lake, "test"))

    def write(self, *lives: Life, number: int) -> int:
        """Append one transaction of all tables."""
        scn = self.log.following
        bodies = []
        for life in lives:
            rows = change_batch(life.schema, life.step(scn, number))
            bodies.append(Body(self.log.registry.put(life.schema), life.schema.table, rows))
        return self.log.batch(*bodies)

    def table(self, schema: TableSchema, lake: Path | None = None) -> DeltaTable:
        return DeltaTable(table_path((lake or self.lake).absolute(), schema.table))

    def rows(self, schema: TableSchema, version: int | None = None) -> Counter[tuple[Any, ...]]:
        return counted(self.table(schema).snapshot(version).to_table())


def counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(maintenance, "_IDLE_REST_S", 0.0)
    yield from lent(Bench(spark, tmp_path))


def maintained(table: DeltaTable) -> list[str]:
    """Return why files of a table were written anew, commit by commit."""
    newest = table.latest_version()
    commits = table.commits(-1, -1 if newest is None else newest)
    infos = [action["commitInfo"] for action in commits if "commitInfo" in action]
    return [
        info["operationParameters"]["reason"]
        for info in infos
        if info["operation"] == "HEADRACE MAINTENANCE"
    ]


@req("C12", "C44", "C50")
@pytest.mark.parametrize(
    "schemas",
    [
        pytest.param((KEYED, BAG, KEPT[Mode.HISTORY]), id="three"),
        pytest.param(SCHEMAS, id="every-mode", marks=pytest.mark.long),
    ],
)
def test_tables_through_crashes_at_every_step_of_maintenance(
    bench: Bench, schemas: tuple[TableSchema, ...]
) -> None:
    rng = random.Random(4)
    bench.options = replace(bench.options, maintenance=LARGER)
    lives = [Life(schema, rng) for schema in schemas]
    truths: dict[int, list[Counter[tuple[Any, ...]]]] = {}
    crashes = {3: "maintenance.after_commit", 5: "maintenance.files_written"}
    applier, begin = bench.applier(), 0
    applier.begin()

    def crash() -> None:
        raise Crash

    for number in range(7):
        end = bench.write(*lives, number=number)
        truths[end] = [life.truth() for life in lives[:2]]
        if number in crashes:
            arm(crashes[number], crash)
            with pytest.raises(Crash):
                applier.process(begin, end)
            disarm()
            applier.close()
            applier = bench.applier()
            assert applier.begin().from_scn == end
        else:
            applier.process(begin, end)
            bring_into_order(applier)
        begin = end
    tables = [bench.table(schema) for schema in schemas]
    assert all(map(maintained, tables))
    # Once more, so that a frontier names what maintenance came to.
    end = bench.write(*lives, number=5)
    truths[end] = [life.truth() for life in lives[:2]]
    applier.process(begin, end)
    applier.close()
    # As without maintenance, in every mode.
    plain = bench.applier(lake=bench.lake.with_name("plain"), maintenance=None)
    plain.process(plain.begin().from_scn, end)
    plain.close()
    for schema in schemas:
        other = bench.table(schema, bench.lake.with_name("plain"))
        assert not maintained(other)
        assert bench.rows(schema) == counted(other.snapshot().to_table()), schema.table
    assert {reason for table in tables for reason in maintained(table)} == {"small", "deleted"}
    in_spark = bench.spark.read.format("delta").load(str(tables[0].path)).toArrow()
    assert counted(in_spark.select(KEYED.names)) == lives[0].truth()
    # What a frontier names reads as it was, whatever was let go of.
    manifests = FrontierStore(bench.lake, "test").list()
    assert len(manifests) == 8
    for schema in (KEYED, BAG):
        tidy(bench.table(schema).path, manifests[0].tables[str(schema.table)].version)
    for manifest in manifests:
        for schema, rows in zip((KEYED, BAG), truths[manifest.scn], strict=True):
            assert bench.rows(schema, manifest.tables[str(schema.table)].version) == rows


def bring_into_order(applier: Applier) -> None:
    """Let maintenance have its turns until there is no more to do."""
    before, done = -1, 0
    while done > before:
        applier.maintain()
        tables = applier.status.tables.values()
        before, done = done, sum(table.maintenance.pieces for table in tables)


def prepared(bench: Bench) -> tuple[Applier, int, Life]:
    """Return a job with a table of one file, which is in order."""
    life = Life(KEYED, random.Random(1))
    applier = bench.applier()
    applier.begin()
    first = bench.write(life, number=0)
    applier.process(0, first)
    assert maintained(bench.table(KEYED)) == []
    return applier, first, life


def test_a_foreign_commit_to_other_files_in_between_costs_nothing(bench: Bench) -> None:
    applier, first, life = prepared(bench)

    def append() -> None:
        held = bench.table(KEYED).snapshot()
        put_commit(held.folder, held.version + 1, [{"commitInfo": {"operation": "NOTHING"}}])
        disarm()

    arm("maintenance.files_written", append)
    for number in range(4, 7):
        end = bench.write(life, number=number)
        applier.process(first, end)
        first = end
    applier.close()
    assert bench.rows(KEYED) == life.truth()


def test_a_foreign_commit_to_the_same_files_in_between_is_given_way(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    applier, first, life = prepared(bench)

    def touch() -> None:
        """Give every file another name for the same vector, as who writes it anew would."""
        held = bench.table(KEYED).snapshot()
        gone = [{"remove": removal(file)} for file in held.files]
        adds = [{"add": {**file.action, "path": f"./{file.action['path']}"}} for file in held.files]
        put_commit(held.folder, held.version + 1, json.loads(json.dumps([*gone, *adds])))
        disarm()

    arm("maintenance.files_written", touch)
    end = first
    for number in range(4, 7):
        begin, end = end, bench.write(life, number=number)
        applier.process(begin, end)
    assert "Another writer" in caplog.text
    assert maintained(bench.table(KEYED)) == []
    # The batches go on.
    assert applier.failing == []
    assert bench.rows(KEYED) == life.truth()
    applier.close()


def test_what_batches_and_maintenance_cost_is_told(bench: Bench) -> None:
    applier, first, life = prepared(bench)
    status = applier.status.tables[str(KEYED.table)]
    assert status.last_batch == status.all_batches
    assert status.last_batch is not None
    assert (status.last_batch.batches, status.last_batch.files) == (1, 1)
    assert status.last_batch.rows == 14_000
    held = bench.table(KEYED).snapshot()
    assert status.last_batch.bytes == sum(file.size for file in held.files)
    assert status.last_batch.write_s > 0
    end = first
    for number in range(4, 7):
        begin, end = end, bench.write(life, number=number)
        applier.process(begin, end)
    applier.close()
    status = applier.status.tables[str(KEYED.table)]
    assert status.all_batches.batches == 4
    assert status.all_batches.probe_s > 0
    assert status.all_batches.commit_s > 0
    assert status.maintenance.pieces == len(maintained(bench.table(KEYED))) > 0
    assert 0 < status.maintenance.bytes_written < status.maintenance.bytes_read
    assert json.dumps(applier.status.to_json())


def test_without_maintenance_nothing_is_written_anew(bench: Bench) -> None:
    bench.options = replace(bench.options, maintenance=None)
    applier, end, life = prepared(bench)
    for number in range(4, 7):
        begin, end = end, bench.write(life, number=number)
        applier.process(begin, end)
    applier.close()
    assert maintained(bench.table(KEYED)) == []
    assert bench.rows(KEYED) == life.truth()


def test_what_is_left_is_done_while_the_log_is_quiet(bench: Bench, tmp_path: Path) -> None:
    """Each batch does a piece of one table; the others have theirs without any more of them."""
    rng = random.Random(2)
    lives = [Life(table_of(2, name=f"t{number}"), rng) for number in range(4)]
    for number in (0, 5):
        bench.write(*lives, number=number)
    settings = ApplySettings(
        "test",
        bench.log.folder,
        bench.lake,
        tmp_path / "spark",
        parallel_tables=1,
        max_rows_per_batch=1,
        maintenance=BUSY,
    )
    stop = threading.Event()
    ended: list[BaseException] = []

    def run() -> None:
        try:
            run_apply(settings, stop, spark=bench.spark)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        tables = [bench.table(life.schema) for life in lives]
        until(lambda: bool(ended) or all(map(maintained, tables)), "every table maintained")
    finally:
        stop.set()
        thread.join()
    assert ended == []
    for life in lives:
        assert bench.rows(life.schema) == life.truth()
