"""Tables that somebody has clustered by Spark: what the log says of that stays true through our commits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.fold import fold
from headrace.lake import settle
from headrace.lake.aside import aside_path, begin_copy, take_place
from headrace.lake.clustering import FEATURES, clustered_by
from headrace.lake.commit import commit_info, put_commit
from headrace.lake.copies import Copy
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import evolve_actions, with_features
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import plan_rewrite, put_rewrite
from headrace.model.schema import TableSchema
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.lake.local_table import LocalTable, keep_files_apart
from tests.places import local
from tests.requirements import req

OLD = replace(table_of(4), numbers={"k": 1, "c1": 2, "c2": 3, "c3": 4})
BY = ("c2", "c1")


def folded(schema: TableSchema, history: str) -> pa.Table:
    return fold(schema, [change_batch(schema, parse_history(history).rows)])


def put(table: LocalTable, *actions: Mapping[str, Any]) -> None:
    put_commit(table.folder, table.table.snapshot().version + 1, [*actions])


def cluster(table: LocalTable, *columns: str) -> None:
    """Have a table clustered by columns, as Spark does it."""
    protocol = with_features(table.table.snapshot().protocol, [])
    writer = dict.fromkeys([*protocol["writerFeatures"], *FEATURES])
    text = json.dumps({"clusteringColumns": [[name] for name in columns]})
    domain = {"domain": "delta.clustering", "configuration": text, "removed": False}
    put(
        table,
        {"protocol": {**protocol, "writerFeatures": [*writer]}},
        {"domainMetadata": domain},
        commit_info("CLUSTER BY"),
    )


def evolve(table: LocalTable, schema: TableSchema) -> None:
    put(table, *evolve_actions(table.table.snapshot(), schema))
    table.schema = schema


def domain(table: LocalTable) -> list[list[str]]:
    text = table.table.snapshot().domains["delta.clustering"]
    found: list[list[str]] = json.loads(text)["clusteringColumns"]
    return found


@pytest.fixture
def table(tmp_path: Path) -> LocalTable:
    made = LocalTable(tmp_path / "t", OLD)
    made.apply(folded(OLD, "+I(1,a,b,c) +I(2,d,e,f)"), 1)
    cluster(made, *BY)
    return made


def test_the_clustering_outlives_our_commits_and_checkpoints(table: LocalTable) -> None:
    for scn in range(2, 25):
        table.apply(folded(OLD, f"+R({scn},a,b,{scn}) | -D({scn - 1})"), scn)
    log = local(table.folder) / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    assert pq.read_table(checkpoint, columns=["domainMetadata"]).column(0).drop_null().to_pylist()
    for commit in range(20):
        (log / f"{commit:020d}.json").unlink()
    assert clustered_by(table.table.snapshot()) == BY
    assert table.table.follow().latest() == table.table.snapshot()
    # A domain that is taken away is gone, from checkpoints as well.
    gone = {"domain": "delta.clustering", "configuration": "", "removed": True}
    put(table, {"domainMetadata": gone})
    assert clustered_by(table.table.snapshot()) == ()
    assert table.table.snapshot().domains == {}


@req("C30")
def test_columns_that_are_renamed_or_dropped_are_followed(table: LocalTable) -> None:
    columns = (OLD.columns[0], replace(OLD.columns[1], name="word"), *OLD.columns[2:])
    renamed = replace(OLD, columns=columns, numbers={"k": 1, "word": 2, "c2": 3, "c3": 4})
    evolve(table, renamed)
    assert clustered_by(table.table.snapshot()) == ("c2", "word")
    assert domain(table) == [["c2"], ["c1"]]
    dropped = replace(
        renamed,
        columns=(*columns[:2], columns[3]),
        numbers={"k": 1, "word": 2, "c3": 4},
    )
    evolve(table, dropped)
    assert (clustered_by(table.table.snapshot()), domain(table)) == (("word",), [["c1"]])
    # One that comes back under that name is another one.
    again = replace(OLD, columns=columns, numbers={"k": 1, "word": 2, "c2": 9, "c3": 4})
    evolve(table, again)
    assert clustered_by(table.table.snapshot()) == ("word",)
    bare = replace(OLD, columns=OLD.columns[:1], numbers={"k": 1})
    evolve(table, bare)
    assert (clustered_by(table.table.snapshot()), domain(table)) == ((), [])


@pytest.mark.parametrize("mapped", [False, True])
def test_a_table_that_is_copied_again_stays_clustered(table: LocalTable, mapped: bool) -> None:
    held = OLD
    if mapped:
        # The column has a name in files that no new table would give it.
        held = replace(OLD, columns=OLD.columns[:2], numbers={"k": 1, "c1": 2})
        evolve(table, held)
        held = replace(OLD, numbers={"k": 1, "c1": 2, "c2": 9, "c3": 10})
        evolve(table, held)
        cluster(table, dict(zip(OLD.names, names_in_files(table), strict=True))["c2"], "c1")
    assert clustered_by(table.table.snapshot()) == BY
    binary = replace(held.columns[3], type=pa.binary())
    new = replace(
        held,
        columns=(held.columns[0], *held.columns[2:3], binary, replace(held.columns[1], name="w")),
        numbers={**{name: held.numbers[name] for name in ("k", "c2", "c3")}, "w": 2},
    )
    aside = aside_path(table.folder.parent, "p", OLD.table)
    begin_copy(aside, new, "t", Copy("asked", 30), vectors=True)
    take_place(table.table.snapshot(), DeltaTable(aside).snapshot(), "t")
    snapshot = table.table.snapshot()
    assert clustered_by(snapshot) == ("c2", "w")
    assert [name for (name,) in domain(table)] == ["c2", "w"]


def names_in_files(table: LocalTable) -> list[str]:
    fields = json.loads(table.table.snapshot().metadata["schemaString"])["fields"]
    return [field["metadata"]["delta.columnMapping.physicalName"] for field in fields]


def test_files_that_lose_rows_stay_what_they_were(
    table: LocalTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_files_apart(monkeypatch, rows=1, size=100)
    many = " ".join(f"+R({key},a{key},b,c)" for key in range(1, 50))
    table.apply(folded(OLD, many), 2)
    (file,) = table.table.snapshot().files
    mark = {"clusteringProvider": "liquid", "tags": {"ZCUBE_ID": "7"}}
    put(table, {"add": {**file.action, **mark, "dataChange": False}})
    table.apply(folded(OLD, "-D(3)"), 3)
    (file,) = (file for file in table.table.snapshot().files if file.vector)
    assert mark.items() <= file.action.items()


def test_maintenance_lays_files_side_by_side_by_the_columns_of_the_clustering(
    table: LocalTable,
) -> None:
    for scn in range(2, 6):
        keys = range(10 * scn, 10 * scn + 5)
        part = folded(OLD, " ".join(f"+R({key},x,v{99 - key},c)" for key in keys))
        put_rows(table, part, scn)
    rewrite = plan_rewrite(table.table.snapshot(), ("k",), Sizes())
    assert rewrite is not None
    assert rewrite.key == ("c2", "c1", "k")
    before = table.content()
    done = put_rewrite(rewrite, rewrite.write(), table.table.latest)
    assert done is not None
    assert table.content() == before
    (file,) = (f for f in table.table.snapshot().files if f.rows() > 2)
    rows = pq.read_table(table.folder / file.action["path"]).to_pylist()
    assert rows == sorted(rows, key=lambda row: (row["c2"], row["c1"], row["k"]))
    assert [row["k"] for row in rows] != sorted(row["k"] for row in rows)
    assert Counter(row["k"] for row in rows) == Counter(key[0] for key in before)


def put_rows(table: LocalTable, part: pa.Table, scn: int) -> None:
    """Commit rows as a file of their own, however small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settle, "_SMALL_BYTES", 0)
        table.apply(part, scn)


def test_maintenance_gives_way_to_who_clusters_the_table_otherwise(table: LocalTable) -> None:
    for scn in range(2, 6):
        keys = range(10 * scn, 10 * scn + 5)
        put_rows(table, folded(OLD, " ".join(f"+R({key},x,y,c)" for key in keys)), scn)
    rewrite = plan_rewrite(table.table.snapshot(), ("k",), Sizes())
    assert rewrite is not None
    actions = rewrite.write()
    cluster(table, "c3")
    before = table.table.snapshot()
    assert put_rewrite(rewrite, actions, table.table.latest) is None
    assert table.table.snapshot() == before
