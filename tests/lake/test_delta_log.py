from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import UnsupportedTableFeature
from headrace.lake import CorruptTable, DeltaTable, VersionNotFound, applied_scn
from headrace.lake.vectors import vector_path, write_vectors
from tests.lake.handmade import (
    HandmadeTable,
    metadata,
    protocol,
    remove,
    txn,
    write_checkpoint,
)
from tests.places import local

pytestmark = pytest.mark.unreadable  # written by hand, and damaged

ROWS = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(*pairs: tuple[int, str | None]) -> pa.Table:
    return pa.table({"id": [p[0] for p in pairs], "name": [p[1] for p in pairs]}, schema=ROWS)


def content(table: HandmadeTable, version: int | None = None) -> list[tuple[int, str]]:
    snapshot = DeltaTable(table.path).snapshot(version)
    return sorted((row["id"], row["name"]) for row in snapshot.to_table().to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return HandmadeTable(tmp_path / "shop" / "orders")


def test_no_table_is_none_and_no_snapshot(tmp_path):
    missing = DeltaTable(tmp_path / "nowhere")
    assert missing.latest() is None
    assert missing.latest_version() is None
    with pytest.raises(VersionNotFound, match="nowhere"):
        missing.snapshot()


def test_every_version_shows_its_own_files(table):
    table.create(rows((1, "a")))
    added = table.file(rows((2, "b")))
    table.commit(added)
    table.commit(remove(added), table.file(rows((2, "c"), (3, "d"))))
    assert content(table, 0) == [(1, "a")]
    assert content(table, 1) == [(1, "a"), (2, "b")]
    assert content(table) == [(1, "a"), (2, "c"), (3, "d")]


def test_transactions_and_properties_are_of_the_version(table):
    table.create(rows((1, "a")), txn("headrace/shop/public.orders", 10))
    table.commit(txn("headrace/shop/public.orders", 25), txn("other", 3))
    table.commit(metadata(ROWS, {"delta.appendOnly": "false"}))
    assert DeltaTable(table.path).snapshot(0).transactions == {"headrace/shop/public.orders": 10}
    newest = DeltaTable(table.path).latest()
    assert newest is not None
    assert newest.transactions == {"headrace/shop/public.orders": 25, "other": 3}
    assert newest.properties == {"delta.appendOnly": "false"}
    assert applied_scn(newest, "shop", "public.orders") == 25
    assert applied_scn(table.path, "shop", "public.orders") == 25
    assert applied_scn(newest, "shop", "public.lines") == 0
    assert applied_scn(table.path / "gone", "shop", "public.orders") == 0


def checkpointed(table: HandmadeTable) -> list[dict]:
    """Two versions, and the actions a checkpoint at version 1 holds."""
    table.create(rows((1, "a")), txn("app", 7))
    second = table.file(rows((2, "b")))
    table.commit(second)
    first = json.loads(table.commit_path(0).read_text().splitlines()[2])
    return [protocol(), metadata(ROWS, {"k": "v"}), first, second, txn("app", 7)]


def test_checkpoint_replaces_the_commits_before_it(table):
    actions = checkpointed(table)
    write_checkpoint(table.log / f"{1:020d}.checkpoint.parquet", actions)
    table.commit(txn("app", 9))
    for version in (0, 1):
        table.commit_path(version).unlink()
    assert content(table) == [(1, "a"), (2, "b")]
    newest = DeltaTable(table.path).snapshot()
    assert newest.transactions == {"app": 9}
    assert newest.properties == {"k": "v"}
    with pytest.raises(VersionNotFound, match="Version 0"):
        DeltaTable(table.path).snapshot(0)


def test_what_a_checkpoint_of_spark_says_once_more_is_passed_over(table):
    """As values, which no commit could repeat, and of which Python holds not all."""
    path = table.log / f"{1:020d}.checkpoint.parquet"
    write_checkpoint(path, checkpointed(table))
    held = pq.read_table(path)
    adds = held["add"].combine_chunks()
    late = pa.array([2**62] * len(adds)).view(pa.timestamp("us"))
    named = {field.name: adds.field(field.name) for field in adds.type}
    named["stats_parsed"] = pa.StructArray.from_arrays([late], ["at"])
    named["partitionValues_parsed"] = named["stats_parsed"]
    adds = pa.StructArray.from_arrays([*named.values()], [*named], mask=adds.is_null())
    pq.write_table(held.set_column(held.schema.get_field_index("add"), "add", adds), path)
    assert content(table) == [(1, "a"), (2, "b")]
    told = json.loads(table.commit_path(1).read_text())["add"]
    assert DeltaTable(table.path).snapshot().files[1].action == told


def test_checkpoint_in_parts_counts_only_when_whole(table):
    actions = checkpointed(table)
    halves = [actions[:3], actions[3:]]
    paths = [table.log / f"{1:020d}.checkpoint.{n:010d}.{2:010d}.parquet" for n in (1, 2)]
    for path, half in zip(paths, halves, strict=True):
        write_checkpoint(path, half)
    table.commit_path(0).unlink()
    assert content(table) == [(1, "a"), (2, "b")]
    paths[1].unlink()
    with pytest.raises(CorruptTable, match="lacks the commit of version 0"):
        DeltaTable(table.path).snapshot()


def test_an_unfinished_checkpoint_is_passed_over(table):
    actions = checkpointed(table)
    write_checkpoint(table.log / f"{1:020d}.checkpoint.{1:010d}.{2:010d}.parquet", actions[:3])
    assert content(table) == [(1, "a"), (2, "b")]


def test_last_checkpoint_file_is_no_more_than_a_hint(table):
    checkpointed(table)
    (table.log / "_last_checkpoint").write_text('{"version": 99, "size": 1}')
    assert content(table) == [(1, "a"), (2, "b")]
    (table.log / "_last_checkpoint").write_text("torn")
    assert content(table) == [(1, "a"), (2, "b")]


def test_a_missing_commit_is_named(table):
    table.create(rows((1, "a")))
    table.commit(table.file(rows((2, "b"))))
    table.commit(table.file(rows((3, "c"))))
    table.commit_path(1).unlink()
    with pytest.raises(CorruptTable, match="lacks the commit of version 1") as caught:
        DeltaTable(table.path).snapshot()
    assert caught.value.next_step
    assert content(table, 0) == [(1, "a")]
    with pytest.raises(VersionNotFound, match="newest version is 2"):
        DeltaTable(table.path).snapshot(9)


@pytest.mark.parametrize("damage", ["", '{"add": {"pa', "[1]\n", "\x00\x00"])
def test_a_torn_commit_is_named(table, damage):
    table.create(rows((1, "a")))
    table.commit(table.file(rows((2, "b"))))
    table.commit_path(1).write_text(damage)
    with pytest.raises(CorruptTable, match=r"00001\.json in the log of the table orders"):
        DeltaTable(table.path).snapshot()


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\u0085"])
def test_text_in_the_log_may_hold_what_ends_a_line_elsewhere(table, end):
    """Spark writes bounds as the text is; only a line feed ends an action."""
    table.create(rows((1, "a")))
    added = table.file(rows((2, f"b{end}c")))
    added["add"]["stats"] = json.dumps({"maxValues": {"name": f"b{end}c"}}, ensure_ascii=False)
    table.commit(added)
    line = json.dumps(added, ensure_ascii=False)
    assert end in line
    table.commit_path(1).write_text(f"{line}\n", encoding="utf-8")
    assert content(table) == [(1, "a"), (2, f"b{end}c")]


def test_a_torn_checkpoint_is_named(table):
    checkpointed(table)
    (table.log / f"{1:020d}.checkpoint.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(CorruptTable, match=r"checkpoint\.parquet"):
        DeltaTable(table.path).snapshot()


def test_a_lost_or_damaged_data_file_is_named(table):
    table.create(rows((1, "a")))
    file = DeltaTable(table.path).snapshot().files[0]
    local(file.path).write_bytes(b"PAR1 torn")
    with pytest.raises(CorruptTable, match="version 0"):
        content(table)
    local(file.path).unlink()
    with pytest.raises(CorruptTable, match=r"part-.*gone"):
        content(table)


@pytest.mark.parametrize("feature", ["v2Checkpoint", "later"])
def test_a_reader_feature_we_lack_is_refused_by_name(table, feature):
    table.commit(protocol(3, 7, [feature]), metadata(ROWS), table.file(rows((1, "a"))))
    with pytest.raises(UnsupportedTableFeature, match=feature) as caught:
        DeltaTable(table.path).snapshot()
    assert caught.value.next_step


def test_reader_features_we_know_are_read(table):
    features = [
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "vacuumProtocolCheck",
    ]
    table.commit(protocol(3, 7, features), metadata(ROWS), table.file(rows((1, "a"))))
    assert content(table) == [(1, "a")]


def test_reader_version_two_is_read_unless_columns_are_mapped_by_id(table):
    table.commit(protocol(2, 5), metadata(ROWS), table.file(rows((1, "a"))))
    assert content(table) == [(1, "a")]
    table.commit(metadata(ROWS, {"delta.columnMapping.mode": "id"}))
    with pytest.raises(UnsupportedTableFeature, match="columnMapping by id"):
        content(table)


def test_a_newer_reader_version_is_refused(table):
    table.commit(protocol(4, 8), metadata(ROWS))
    with pytest.raises(UnsupportedTableFeature, match="reader version 4"):
        content(table)


def test_a_file_without_its_vector_is_damaged(table):
    (vector,) = write_vectors(table.path, [np.array([0])])
    add = dict(table.file(rows((1, "a"), (2, "b")))["add"], deletionVector=vector)
    table.commit(protocol(3, 7, ["deletionVectors"]), metadata(ROWS), {"add": add})
    assert content(table) == [(2, "b")]
    local(vector_path(table.path, vector)).unlink()
    with pytest.raises(CorruptTable, match=r"part-.*gone"):
        content(table)


def test_checkpoints_of_the_second_kind_are_refused(table):
    actions = checkpointed(table)
    sidecar = pa.field("sidecar", pa.struct([("path", pa.string())]))
    write_checkpoint(
        table.log / f"{1:020d}.checkpoint.parquet", [*actions, {"sidecar": {"path": "x"}}], sidecar
    )
    with pytest.raises(UnsupportedTableFeature, match="v2Checkpoint"):
        DeltaTable(table.path).snapshot()


def test_a_log_that_only_a_second_kind_checkpoint_describes_is_refused(table):
    checkpointed(table)
    name = f"{1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"
    (table.log / name).write_bytes(b"")
    table.commit_path(0).unlink()
    table.commit_path(1).unlink()
    with pytest.raises(UnsupportedTableFeature, match="v2Checkpoint"):
        DeltaTable(table.path).snapshot()


def test_a_log_without_metadata_is_named(table):
    table.commit(protocol())
    with pytest.raises(CorruptTable, match="no metadata or protocol"):
        DeltaTable(table.path).snapshot()
