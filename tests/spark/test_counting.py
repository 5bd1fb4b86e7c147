"""What a frontier counts of each table: what the source did, once, whatever the cut, the crash and the replay."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.changelog import ChangeLogReader
from headrace.lake.counts import TableCounts
from headrace.model.block import SystemKind
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import KeyCheck, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.sources.base import ReceivedMark
from headrace.testing.notation import change_batch, parse_history, table_of
from headrace.watermark.emit import table_blocks
from tests.requirements import req
from tests.spark.log import lent
from tests.spark.test_apply import Bench, Crash
from tests.spark.test_numbers import PLACES, crash, in_one_block

pytestmark = pytest.mark.spark

TABLE, OTHER = table_of(3), table_of(2, name="other")
NAMES = {"+I": "inserts", "+U": "updates", "=U": "updates", "-D": "deletes", "+R": "copied"}


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(spark, tmp_path)
    # Whole seconds of commit time, half of them in 1970: every delay is in the last class.
    made.log.commit_us = lambda scn: scn * 1_000_000
    yield from lent(made)


def told(bench: Bench, table: str, upto_scn: int) -> Counter[str]:
    """Return what the rows of the log say of a table up to an SCN, one by one."""
    found: Counter[str] = Counter()
    transactions = set()
    for block in ChangeLogReader(bench.log.folder).blocks(0):
        for event in block.system:
            if str(event.table) == table and event.scn <= upto_scn:
                found["truncates"] += event.kind is SystemKind.TRUNCATE
                found["ddl"] += event.kind is SystemKind.SCHEMA
        for body in block.bodies:
            for scn, op in zip(*(body.batch[n].to_pylist() for n in ("_scn", "_op")), strict=True):
                if str(body.table) == table and scn <= upto_scn:
                    transactions.add(scn)
                    found["rows"] += 1
                    found[NAMES.get(op, "")] += 1
    found["transactions"] = len(transactions)
    return found


def shown(counts: TableCounts) -> Counter[str]:
    """Return counts as `told` says them."""
    names = ("inserts", "updates", "deletes", "truncates", "ddl", "copied", "rows")
    found = Counter({name: getattr(counts, name) for name in names})
    found["transactions"] = counts.delays.count
    return found


def check(bench: Bench) -> TableCounts:
    """Compare every frontier with the log; return the newest counts of the first table."""
    newest = TableCounts()
    for frontier in bench.frontier.list():
        for name, entry in frontier.tables.items():
            wanted = told(bench, name, entry.applied_scn)
            del wanted[""]
            assert shown(entry.counts) == wanted, (frontier.scn, name)
        if "public.t" in frontier.tables:
            newest = frontier.tables["public.t"].counts
    return newest


@req("C-1", "C-4", "T20", "C74")
def test_each_change_counts_once_whatever_the_cut_and_the_crash(bench: Bench) -> None:
    rng = random.Random(3)
    ends = in_one_block(
        bench, TABLE, "+I(1,a,b) +I(2,c,d) | =U(1,x,?) | -U(2) +U(3,y,?) | -D(3) | +I(4,a,b)"
    )
    ends += [bench.log.write(OTHER, "+I(1,a) | +I(2,b) | T | +I(3,c)"), bench.log.complete(OTHER)]
    ends += [bench.log.complete(TABLE), bench.log.announce(TABLE)]
    ends += in_one_block(bench, TABLE, "+I(7,a,b) | =U(7,x,?) | -D(7) | +I(8,a,b)")
    ends.append(bench.log.write(TABLE, "+R(9,a,b) +R(10,a,b)"))
    # The first block is read by two batches, and each counts its part.
    bench.run(*ends[:2])
    assert check(bench).rows == 3
    for key, place in enumerate(rng.sample(PLACES, len(PLACES)), 100):
        ends.append(bench.log.write(OTHER, f"+I({key},x)"))
        arm(place, crash)
        with pytest.raises(Crash):
            bench.run(*sorted(rng.sample(ends[:-1], 2)), bench.log.scn)
        disarm()
        check(bench)
        bench.run(*sorted(rng.sample(ends, 2)))
        check(bench)
    bench.run(bench.log.scn)
    last = check(bench)
    assert shown(last) == Counter(
        {
            "inserts": 5,
            "updates": 3,
            "deletes": 2,
            "copied": 2,
            "ddl": 1,
            "rows": 13,
            "transactions": 10,
        }
    )
    # Bytes are those of whole bodies, however the batches were cut.
    reader, registry = ChangeLogReader(bench.log.folder), bench.log.registry
    refs = list(reader.refs(0))
    ids = {schema_id for ref in refs for schema_id, _ in ref.tables if schema_id}
    ids = {one for one in ids if registry.get(one).table == TABLE.table}
    assert last.bytes == sum(found.bytes for _, found in reader.operations(refs, ids)) > 0


@req("C11", "C-4", "T20")
def test_a_table_that_fails_counts_its_failures_and_its_changes_when_they_are_in(
    bench: Bench,
) -> None:
    bench.options = replace(bench.options, within_s=10.0)
    for schema in (TABLE, OTHER):
        bench.log.write(schema, "+I(1,a,b)" if schema is TABLE else "+I(1,a)")
        bench.log.complete(schema)
    bench.run(bench.log.scn)
    before = check(bench)
    behind = bench.log.write(TABLE, "=U(2,x,?) | +I(5,q,r)")
    bench.run(behind, bench.log.write(OTHER, "+I(2,b)"))
    failing = check(bench)
    assert failing.errors == 1
    assert replace(failing, errors=0) == before
    # The row comes, in another process: what was left behind is counted, and the failure is not forgotten.
    bench.log.write(TABLE, "+R(2,x,z)")
    bench.run(bench.log.scn)
    caught_up = check(bench)
    assert (caught_up.inserts, caught_up.updates, caught_up.copied) == (2, 1, 1)
    assert caught_up.errors == 1
    newest = bench.frontier.latest()
    assert newest is not None
    transactions = len(ChangeLogReader(bench.log.folder).index(0))
    assert newest.totals.delays.count == transactions
    assert newest.totals.on_time is not None
    assert (newest.totals.on_time.seen, newest.totals.on_time.in_time) == (transactions, 0)


@req("C-1")
def test_a_frontier_of_before_that_did_not_count_is_gone_on_from(bench: Bench) -> None:
    """Its tables count from where they stand, and nothing is guessed of what was before."""
    bench.log.write(TABLE, "+I(1,a,b) | +I(2,a,b)")
    bench.run(bench.log.complete(TABLE))
    assert isinstance(bench.frontier.folder, Path)
    for path in bench.frontier.folder.iterdir():
        text = path.read_text()
        path.write_text(_uncounted(text))
    bench.log.write(TABLE, "+I(3,a,b)")
    bench.run(bench.log.scn)
    newest = bench.frontier.latest()
    assert newest is not None
    assert (newest.tables["public.t"].counts.inserts, newest.totals.delays.count) == (1, 1)


def _uncounted(text: str) -> str:
    value = json.loads(text)
    del value["totals"]
    for entry in value["tables"].values():
        del entry["counts"]
    return json.dumps(value)


@req("C-1", "C74")
def test_a_dump_of_a_table_without_a_key_counts_as_what_it_read(bench: Bench) -> None:
    """It empties the target and writes inserts; neither is what the source did."""
    schema = table_of(2, check=KeyCheck.NONE)
    bench.log.announce(schema)
    bench.log.write(schema, "+I(1,a) | T | +I(1,a)")
    for _ in range(2):
        dump(bench, schema, "+I(1,a) +I(2,b)")
    bench.run(bench.log.write(schema, "+I(3,c)"))
    manifest = bench.frontier.latest()
    assert manifest is not None
    counts = manifest.tables["public.t"].counts
    assert (counts.inserts, counts.copied, counts.truncates) == (3, 4, 1)
    assert bench.rows(schema) == Counter({(1, "a"): 1, (2, "b"): 1, (3, "c"): 1})


def dump(bench: Bench, schema: TableSchema, rows: str) -> None:
    """Append the window that a dump of a table without a key writes."""
    scn = bench.log.scn = bench.log.following
    read = change_batch(schema, parse_history(rows).rows).select(schema.names)
    mark = ReceivedMark(Mark(MarkKind.HIGH, "a", "b"), scn, scn)
    for block in table_blocks(mark, schema, [read], 10):
        bench.log.writer.append(block)
    bench.log.writer.sync()
