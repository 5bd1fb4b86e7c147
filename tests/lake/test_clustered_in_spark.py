"""A table that Spark has clustered, and that its OPTIMIZE, MERGE and VACUUM work on while we go on writing it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.lake.clustering import FEATURES, clustered_by
from headrace.lake.commit import put_commit
from headrace.lake.evolution import evolve_actions
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import plan_rewrite, put_rewrite
from headrace.testing.notation import table_of
from tests.lake.local_table import LocalTable, keep_files_apart
from tests.lake.test_commits import Source, folded_of
from tests.requirements import req

pytestmark = pytest.mark.spark

BY = ["c2", "c1"]


class Clustered:
    """Our table, as both sides see it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.table = LocalTable(folder, table_of(3))
        self.name = f"delta.`{folder}`"
        self.scn = 0

    def sql(self, text: str) -> Any:
        return self.spark.sql(text.format(t=self.name))

    def apply(self, folded: Any) -> None:
        self.scn += 1
        # A patch of a row that Spark has removed has nowhere to go.
        self.table.apply(folded, self.scn, complete=False)

    def maintain(self) -> None:
        """Do a piece of maintenance, if there is one to do."""
        rewrite = plan_rewrite(self.table.table.snapshot(), ("k",), Sizes())
        if rewrite is not None:
            assert put_rewrite(rewrite, rewrite.write(), self.table.table.latest) is not None

    def check(self) -> None:
        """Hold what Spark reads, and says of the clustering, against what we do."""
        rows = self.sql("SELECT * FROM {t}").collect()
        assert Counter(tuple(row) for row in rows) == self.table.content()
        assert self.columns() == [*clustered_by(self.table.table.snapshot())]

    def columns(self) -> list[str]:
        """Return the columns by which Spark says that the table is clustered."""
        (detail,) = self.sql("DESCRIBE DETAIL {t}").select("clusteringColumns").collect()
        return [*detail.clusteringColumns]


@pytest.fixture
def clustered(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clustered:
    keep_files_apart(monkeypatch)
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    made = Clustered(session, tmp_path)
    made.sql(f"ALTER TABLE {{t}} CLUSTER BY ({', '.join(BY)})")
    return made


def test_our_commits_and_sparks_optimize_go_together(clustered: Clustered) -> None:
    table, source = clustered.table, Source(7, 1)
    assert clustered.columns() == BY
    assert set(FEATURES) <= set(table.table.snapshot().protocol["writerFeatures"])
    for _ in range(6):
        clustered.apply(folded_of(table.schema, source.batch(60)))
    clustered.sql("OPTIMIZE {t}")
    assert [f.action["clusteringProvider"] for f in table.table.snapshot().files] == ["liquid"]
    before = table.content()
    for _ in range(3):
        clustered.apply(folded_of(table.schema, source.batch(2)))
    # Files that lost rows to our vectors are still known as clustered.
    marked = [file.action for file in table.table.snapshot().files if file.vector]
    assert marked
    assert all(action["clusteringProvider"] == "liquid" for action in marked)
    assert table.content() != before
    clustered.check()
    clustered.sql("OPTIMIZE {t} FULL")
    assert table.vectors() == 0
    clustered.check()
    clustered.maintain()
    clustered.sql("VACUUM {t} RETAIN 0 HOURS")
    clustered.check()


@req("C30")
def test_a_column_of_the_clustering_may_go_and_another_change_its_name(
    clustered: Clustered,
) -> None:
    table, old = clustered.table, table_of(3)
    clustered.apply(folded_of(old, "+I(1,a,b) | +I(2,c,d)"))
    narrow = table_of(2)
    snapshot = table.table.snapshot()
    put_commit(table.folder, snapshot.version + 1, evolve_actions(snapshot, narrow))
    table.schema = narrow
    clustered.apply(folded_of(narrow, "+I(3,e) | -D(1)"))
    assert clustered.columns() == ["c1"]
    clustered.check()
    clustered.sql("OPTIMIZE {t}")
    clustered.sql("ALTER TABLE {t} CLUSTER BY NONE")
    clustered.apply(folded_of(narrow, "+I(4,f)"))
    clustered.check()
    assert clustered.columns() == []


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(4))
def test_a_long_life_with_sparks_statements_in_between(clustered: Clustered, seed: int) -> None:
    rng = random.Random(seed)
    table, source = clustered.table, Source(seed, 1)
    merge = (
        "MERGE INTO {t} AS t USING (SELECT id AS k, 'spark' AS c1, 's' || id % 3 AS c2 FROM range(5)) AS s "
        "ON t.k = s.k WHEN MATCHED THEN UPDATE SET t.c1 = s.c1, t.c2 = s.c2"
    )
    acts: list[Callable[[], object]] = [
        lambda: clustered.sql("OPTIMIZE {t}"),
        lambda: clustered.sql("OPTIMIZE {t} FULL"),
        lambda: clustered.sql(merge),
        lambda: clustered.sql("VACUUM {t} RETAIN 0 HOURS"),
        lambda: clustered.sql("DELETE FROM {t} WHERE k % 7 = 0"),
        clustered.maintain,
    ]
    for _ in range(60):
        clustered.apply(folded_of(table.schema, source.batch(rng.choice((1, 3, 40)))))
        if rng.random() < 0.3:
            rng.choice(acts)()
            clustered.check()
    clustered.check()
    assert clustered.columns() == BY
