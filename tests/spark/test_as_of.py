"""A table that keeps its versions, read as the source was at any commit, and what it refuses to tell."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.errors import TargetError
from headrace.lake.modes import Mode
from headrace.model.schema import KeyCheck
from headrace.spark.read import as_of, frontier_at
from headrace.testing.lives import random_life
from headrace.testing.notation import table_of
from tests.lake.sql.warehouses import plain
from tests.requirements import req
from tests.spark.log import lent
from tests.spark.test_modes import Bench, named

pytestmark = pytest.mark.spark


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


@req("P71", "C55")
@pytest.mark.parametrize("check", [KeyCheck.IMMEDIATE, KeyCheck.DEFERRED])
def test_the_rows_of_every_commit_are_those_that_the_source_had(
    bench: Bench, check: KeyCheck
) -> None:
    schema = named(Mode.HISTORY, 3, check)
    truth: dict[int, Counter[object]] = {}
    for number, transaction in enumerate(random_life(schema, random.Random(11), 12)):
        scn = bench.log.write(schema, transaction.at(bench.log.following).notation)
        truth[scn] = Counter(transaction.state.values())
        if number == 0:
            complete = bench.log.complete(schema)
            truth = {complete: truth[scn]}
    # Cut elsewhere than it is asked about.
    bench.run(complete + 30, bench.log.scn)
    held: Counter[object] = Counter()
    for scn in range(complete, bench.log.scn + 1, 5):
        held = truth.get(scn, held)
        rows = as_of(bench.spark, bench.lake, "test", "public.history", scn)
        assert rows.columns == schema.names
        assert plain(rows.toArrow()) == held, scn
    assert len(set(map(str, truth.values()))) > 8


def test_what_is_not_known_is_refused_and_never_guessed(bench: Bench, tmp_path: Path) -> None:
    history, mirror = named(Mode.HISTORY), named(Mode.MIRROR)
    bench.log.write(mirror, "+I(1,a)")
    bench.log.complete(mirror)
    bench.log.write(history, "+R(1,a)")
    complete = bench.log.complete(history)
    bench.run(bench.log.write(history, "=U(1,b)"))
    file = tmp_path / "old.json"
    source = {"type": "postgres", "url": "postgresql://nobody@nowhere/none", "tables": ["public.*"]}
    told = {"name": "test", "source": source, "target": {"type": "delta", "path": str(bench.lake)}}
    file.write_text(json.dumps(told))

    def rows(scn: int) -> Counter[tuple[object, ...]]:
        return plain(headrace.as_of(bench.spark, file, "public.history", scn).toArrow())

    newest = frontier_at(bench.lake, "test").scn
    assert (rows(complete), rows(newest)) == (Counter({(1, "a"): 1}), Counter({(1, "b"): 1}))
    for scn, table, text in (
        (newest + 1, "public.history", f"shows SCN {newest}, and not {newest + 1} yet"),
        (complete - 1, "public.history", f"was not whole at SCN {complete - 1}"),
        (newest, "public.mirror", "kept by mode mirror"),
        (newest, "public.nobody", "is not known"),
    ):
        with pytest.raises(TargetError, match=text) as caught:
            headrace.as_of(bench.spark, file, table, scn)
        assert caught.value.next_step
    copying = table_of(2, name="history_2")
    bench.log.write(copying, "+R(1,a)")
    bench.run(bench.log.scn)
    with pytest.raises(TargetError, match=r"history_2 is copying"):
        headrace.as_of(bench.spark, file, "public.history_2", bench.log.scn)
    for target, text in (
        ({"type": "parquet", "path": "./files"}, "files of changes"),
        ({"type": "duckdb", "path": "./w.duckdb"}, "in a warehouse"),
    ):
        file.write_text(json.dumps({**told, "target": target}))
        with pytest.raises(TargetError, match=text):
            rows(newest)
