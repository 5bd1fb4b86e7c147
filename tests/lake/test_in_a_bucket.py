"""Tables in an object store: random histories with a crash at each request, races for a version, and what is let go."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.errors import StoreUnavailable, UnsupportedTableFeature
from headrace.lake import commit, settle, tidy
from headrace.lake.aside import aside_path, asked_again, begin_copy, copy_of, take_place
from headrace.lake.checkpoint import write_checkpoint
from headrace.lake.commit import CommitConflict, commit_info, now_ms, put_commit, transaction
from headrace.lake.copies import Copy
from headrace.lake.data_writer import write_rows
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import create_actions
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.keyed import commit_keyed
from headrace.lake.ledger import applied_scn
from headrace.lake.multiset import commit_multiset
from headrace.model.schema import KeyCheck, TableSchema
from headrace.store import Found, ObjectPath, store_of
from headrace.testing.fault_proxy import Fault, FaultProxy, pass_all
from headrace.testing.notation import table_of
from headrace.testing.object_store import ObjectServer
from headrace.testing.target import ModelTable
from tests.fixtures_store import object_server, prefix, proxy
from tests.lake.local_table import LocalTable
from tests.lake.test_commits import Source, folded_of
from tests.requirements import req

__all__ = ["object_server", "prefix", "proxy"]

pytestmark = pytest.mark.object_store

DAY_MS = 86_400_000
KEYED, KEYLESS = table_of(3), table_of(2, check=KeyCheck.NONE)


@pytest.fixture
def behind(object_server: ObjectServer, proxy: FaultProxy, prefix: ObjectPath) -> ObjectPath:
    """Give the same prefix through a proxy, by a client that gives up at once."""
    return ObjectPath(object_server.bucket(proxy.endpoint, timeout_s=10, retries=0), prefix.key)


def crashes(proxy: FaultProxy, fault: Fault) -> Iterator[None]:
    """Let the network fail from the first request on, then from the second one on, and so forth."""
    number = 0
    while True:
        begun = len(proxy.requests)
        proxy.rule = lambda request: fault if request.number > begun + number else Fault.NONE  # noqa: B023
        yield
        proxy.rule = pass_all
        number += 1


class Writer:
    """A process that may die at any request: what it knows of a table it reads from the table."""

    def __init__(self, folder: ObjectPath, schema: TableSchema) -> None:
        self.folder = folder
        self.schema = schema
        self.followed = DeltaTable(folder).follow()

    def apply(self, history: str, scn: int) -> None:
        snapshot = self.followed.latest()
        if snapshot is None:
            put_commit(self.folder, 0, create_actions(self.schema, vectors=True))
            snapshot = self.followed.latest()
            assert snapshot is not None
        if applied_scn(snapshot, "p", "t") >= scn:
            return
        kernel = commit_multiset if self.schema.key_check is KeyCheck.NONE else commit_keyed
        actions = kernel(snapshot, self.schema, folded_of(self.schema, history), complete=True)
        position = transaction("headrace/p/t", scn)
        put_commit(self.folder, snapshot.version + 1, [commit_info("TEST"), position, *actions])
        held = self.followed.latest()
        assert held is not None
        if held.version % 3 == 0:
            write_checkpoint(self.folder, held.version, self.followed.state())


def content(folder: ObjectPath) -> Counter[tuple[object, ...]]:
    rows = DeltaTable(folder).snapshot().to_table().to_pylist()
    return Counter(tuple(row.values()) for row in rows)


def hinted(folder: ObjectPath) -> set[str]:
    """Return the checkpoint that other readers are led to, if any."""
    log = folder / "_delta_log"
    if "_last_checkpoint" not in store_of(log).names(log):
        return set()
    version = json.loads(store_of(log).read(log / "_last_checkpoint"))["version"]
    return {f"{version:020d}.checkpoint.parquet"}


def bag(seed: int) -> Iterator[str]:
    generator = random.Random(seed)
    while True:
        yield " ".join(
            f"+I({generator.randrange(4)},{generator.choice('ab')})"
            for _ in range(generator.choice([1, 7]))
        )


def batches(schema: TableSchema, seed: int) -> Iterator[str]:
    if schema is KEYLESS:
        yield from bag(seed)
    source = Source(seed, 1)
    while True:
        yield source.batch(source.random.choice([3, 30]))


@req("C12", "C43", "C50")
@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
@pytest.mark.parametrize("schema", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_a_crash_at_any_request_neither_doubles_nor_loses_a_batch(
    prefix: ObjectPath,
    behind: ObjectPath,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
    schema: TableSchema,
    fault: Fault,
) -> None:
    monkeypatch.setattr(settle, "_SMALL_ROWS", 5)
    model, broken = ModelTable(schema), 0
    for scn, history in zip(range(1, 6), batches(schema, 7), strict=False):
        before = model.content()
        model.apply(folded_of(schema, history), scn, complete=True)
        after = model.content()
        for _ in crashes(proxy, fault):
            try:
                Writer(behind / "t", schema).apply(history, scn)
                break
            except StoreUnavailable:
                broken += 1
                # Whatever there is, is a version between two batches, and nothing half done.
                if DeltaTable(prefix / "t").latest_version() is not None:
                    assert content(prefix / "t") in (before, after)
        assert content(prefix / "t") == after
        assert DeltaTable(prefix / "t").snapshot().transactions == {"headrace/p/t": scn}
    # One for creating, five for batches: nothing was written twice.
    assert DeltaTable(prefix / "t").latest_version() == 5
    assert broken > 20


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
def test_a_checkpoint_that_is_cut_short_leads_nobody_to_a_file_that_is_not_there(
    prefix: ObjectPath, behind: ObjectPath, proxy: FaultProxy, fault: Fault
) -> None:
    table = LocalTable(prefix / "t", KEYED)
    for scn in (1, 2):
        table.apply(folded_of(KEYED, f"+I({scn},a,b)"), scn)
    before, broken = table.content(), 0
    for _ in crashes(proxy, fault):
        try:
            write_checkpoint(behind / "t", 2, table.table.state(2))
            break
        except StoreUnavailable:
            broken += 1
            assert hinted(prefix / "t") <= set(store_of(prefix).names(prefix / "t" / "_delta_log"))
            assert table.content() == before
    assert broken == 2
    assert hinted(prefix / "t") == {f"{2:020d}.checkpoint.parquet"}
    assert table.content() == before


def test_a_table_in_a_bucket_is_the_table_of_a_folder(
    prefix: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "_SMALL_ROWS", 5)
    monkeypatch.setattr(settle, "_SMALL_BYTES", 6_000)
    table, model, source = LocalTable(prefix / "t", KEYED), ModelTable(KEYED), Source(3, 1)
    followed, vectors = DeltaTable(prefix / "t").follow(), 0
    for scn in range(1, 46):
        folded = folded_of(KEYED, source.batch(source.random.choice([1, 5, 60])))
        table.apply(folded, scn)
        model.apply(folded, scn, complete=True)
        vectors += table.vectors()
        held = followed.latest()
        assert held is not None
        assert (held.version, held.transactions) == (scn, {"t": scn})
    assert table.content() == model.content()
    assert vectors
    # Behind two checkpoints, and without the log before the first.
    old = [prefix / "t" / "_delta_log" / f"{version:020d}.json" for version in range(20)]
    store_of(prefix).delete(old)
    assert table.content() == model.content()


def test_a_followed_table_costs_one_request_when_nothing_is_new(
    prefix: ObjectPath, behind: ObjectPath, proxy: FaultProxy
) -> None:
    table = LocalTable(prefix / "t", KEYED)
    followed = DeltaTable(behind / "t").follow()
    assert followed.latest() is not None
    for new in (0, 1, 3):
        for scn in range(new):
            table.apply(folded_of(KEYED, f"+I({scn},a,b)"), scn + 1)
        begun = len(proxy.requests)
        held = followed.latest()
        assert held is not None
        assert held.version == table.table.latest_version()
        asked = [request.method for request in proxy.requests[begun:]]
        assert asked == ["GET"] * (1 + new)


def test_partitions_lie_under_names_that_others_read(prefix: ObjectPath) -> None:
    table = LocalTable(prefix / "t", KEYED, partition_by=("c1",))
    values = ["a b", "ä/%", "x=y", "."]
    for number, value in enumerate(values):
        table.apply(folded_of(KEYED, f"+I({number},{value.replace(' ', '_')},z)"), number + 1)
    assert len(table.content()) == len(values)
    files = DeltaTable(prefix / "t").snapshot().files
    assert store_of(prefix).missing(prefix / "t", [file.path for file in files]) == 0


def test_of_writers_that_race_for_versions_each_version_has_one(prefix: ObjectPath) -> None:
    writers, each = 6, 8
    LocalTable(prefix / "t", KEYED)

    def write(writer: int) -> int:
        lost = 0
        for number in range(each):
            while True:
                held = DeltaTable(prefix / "t").snapshot()
                row = {"k": writer * each + number, "c1": "a", "c2": "b"}
                rows = pa.Table.from_pylist([row], schema=held.schema)
                adds = write_rows(held.folder, rows, ["k"])
                actions = [commit_info("TEST"), *({"add": add} for add in adds)]
                try:
                    put_commit(held.folder, held.version + 1, actions)
                    break
                except CommitConflict:
                    settle.discard(held, actions)
                    lost += 1
        return lost

    with ThreadPoolExecutor(writers) as pool:
        lost = sum(pool.map(write, range(writers)))
    table = DeltaTable(prefix / "t")
    assert table.latest_version() == writers * each
    assert sorted(table.snapshot().to_table()["k"].to_pylist()) == list(range(writers * each))
    assert lost > 0
    # What the losers had written is gone.
    assert len(data_files(prefix / "t")) == writers * each


def test_two_writers_of_the_same_words_are_two_writers(
    prefix: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "now_ms", lambda: 1)
    LocalTable(prefix / "t", KEYED)
    put_commit(prefix / "t", 1, [commit_info("TEST"), transaction("t", 1)])
    with pytest.raises(CommitConflict, match="version 1 of the table t"):
        put_commit(prefix / "t", 1, [commit_info("TEST"), transaction("t", 1)])


@pytest.mark.parametrize("path", ["file:/somewhere/x.parquet", "s3://other/x.parquet"])
def test_a_table_that_names_files_elsewhere_is_refused(prefix: ObjectPath, path: str) -> None:
    LocalTable(prefix / "t", KEYED)
    add = {
        "path": path,
        "partitionValues": {},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
    }
    put_commit(prefix / "t", 1, [commit_info("TEST"), {"add": add}])
    with pytest.raises(UnsupportedTableFeature, match="file in another store"):
        DeltaTable(prefix / "t").snapshot()


def data_files(folder: ObjectPath) -> list[Found]:
    return list(store_of(folder).walk(folder, lambda _: False, lambda _: True))


def test_old_files_go_and_orphans_too_and_promised_ones_stay(
    prefix: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "_SMALL_ROWS", 5)
    monkeypatch.setattr(settle, "_SMALL_BYTES", 6_000)
    table, source = LocalTable(prefix / "t", KEYED), Source(3, 1)
    for scn in range(1, 46):
        table.apply(folded_of(KEYED, source.batch(60 if scn % 5 == 1 else 3)), scn)
    orphan = prefix / "t" / "part-orphan.snappy.parquet"
    stranger = prefix / "t" / "notes.txt"
    for path in (orphan, stranger):
        store_of(path).put(path, b"x")
    before, contents = len(data_files(prefix / "t")), {v: table.content(v) for v in (42, 45)}
    assert tidy.tidy(prefix / "t", 42) == 0
    monkeypatch.setattr(tidy, "now_ms", lambda: now_ms() + 40 * DAY_MS)
    assert tidy.tidy(prefix / "t", 42) > 20
    assert {v: table.content(v) for v in contents} == contents
    assert not store_of(orphan).exists(orphan)
    assert store_of(stranger).exists(stranger)
    assert len(data_files(prefix / "t")) < before
    log = store_of(prefix).names(prefix / "t" / "_delta_log")
    assert min(name for name in log if name.endswith(".json")) == f"{40:020d}.json"


@req("C12")
@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
def test_a_copy_takes_its_tables_place_through_a_crash_at_any_request(
    prefix: ObjectPath, behind: ObjectPath, proxy: FaultProxy, fault: Fault
) -> None:
    aside = aside_path(prefix, "p", KEYED.table)
    slow = aside_path(behind, "p", KEYED.table)
    shown = LocalTable(prefix / "t", KEYED)
    shown.apply(folded_of(KEYED, "+I(1,a,b) +I(2,a,b)"), 10)
    old = shown.content()
    begin_copy(aside, KEYED, "t", Copy("first", 20), vectors=True)
    asked_again(aside, "second")
    other = LocalTable.__new__(LocalTable)
    other.folder, other.schema, other.table = aside, KEYED, DeltaTable(aside)
    other.apply(folded_of(KEYED, "+I(1,x,y) +I(3,x,y)"), 30)
    other.apply(folded_of(KEYED, "-D(3) +I(4,z,z)"), 40)
    new, broken = other.content(), 0
    for _ in crashes(proxy, fault):
        try:
            if copy_of(slow, behind / "t") is None:
                break
            take_place(DeltaTable(behind / "t").snapshot(), DeltaTable(slow).snapshot(), "t")
            break
        except StoreUnavailable:
            broken += 1
            assert shown.content() in (old, new)
    proxy.rule = pass_all
    assert shown.content() == new
    assert shown.table.latest_version() == 2
    assert copy_of(aside, prefix / "t") is None
    assert broken > 5
    # The next copy begins empty, whatever the last one left.
    begin_copy(aside, KEYED, "t", Copy("third", 50), vectors=True)
    assert copy_of(aside, prefix / "t") == Copy("third", 50)
    assert not DeltaTable(aside).snapshot().files


def test_frontiers_are_kept_in_the_bucket(prefix: ObjectPath) -> None:
    frontiers = FrontierStore(prefix, "shop", keep=3)
    assert frontiers.latest() is None
    entry = TableEntry(version=1, applied_scn=1, complete_scn=1, state="live")
    manifests = [Manifest(scn, scn, {"a.b": entry}, scn) for scn in range(1, 6)]
    for manifest in manifests:
        frontiers.write(manifest)
    assert frontiers.list() == tuple(manifests[2:])
    assert frontiers.at_or_below(4) == manifests[3]
    frontiers.write(replace(manifests[4], written_us=99))
    latest = frontiers.latest()
    assert latest is not None
    assert latest.written_us == 99
