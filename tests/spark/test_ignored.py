"""Operations that never reach a table, and what reaches it all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import ConfigError
from headrace.lake.modes import Mode
from headrace.lake.settings import TableSettings
from headrace.model.block import (
    ORIGIN_SELECT,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.schema import KeyCheck, TableSchema
from headrace.replicator.asked import table_settings
from headrace.replicator.config_file import load
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.requirements import req
from tests.spark.log import lent
from tests.spark.test_apply import Bench

pytestmark = pytest.mark.spark

KEYED, BAG = table_of(2, name="keyed"), table_of(2, check=KeyCheck.NONE, name="bag")


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


def settings_of(folder: Path, tables: str) -> tuple[tuple[str, TableSettings], ...]:
    """Return what a file with these tables asks for."""
    file = folder / "shop.yaml"
    file.write_text(
        "name: shop\n"
        "source: {type: postgres, url: 'postgresql://u@h/db', tables: ['public.*']}\n"
        f"target: {{type: delta, path: ./lake}}\ntables: {tables}\n"
    )
    return tuple(table_settings(load(file)))


def window(bench: Bench, schema: TableSchema, history: str, *, wiped: bool = False) -> int:
    """Append a window of our own, whose truncate comes first if there is one."""
    scn = bench.log.following
    bench.log._next()
    batch = change_batch(schema, parse_history(history, scn).rows)
    events = (SystemEvent(scn, -1, SystemKind.TRUNCATE, schema.table),) if wiped else ()
    index = transaction_index(
        [(scn, bench.log.commit_us(scn), 0, batch.num_rows + len(events), ORIGIN_SELECT, 1)]
    )
    body = Body(bench.log.registry.put(schema), schema.table, batch)
    bench.log.writer.append(Block(index, (body,), events, scn))
    bench.log.writer.sync()
    return scn


@req("C-8", "C18")
@pytest.mark.parametrize("cuts", ["each", "at once"])
def test_deletes_and_truncates_do_not_reach_a_table_that_ignores_them(
    bench: Bench, tmp_path: Path, cuts: str
) -> None:
    """Inserts, updates, moves of keys, new shapes and what dumps say do."""
    bench.options = replace(
        bench.options, settings=settings_of(tmp_path, "{'public.*': {ignore: [delete, truncate]}}")
    )
    ends = [bench.log.announce(KEYED)]
    for part, without_key in (
        ("+I(1,a) +I(2,b) +I(3,c)", "+I(1,a) +I(2,b) +I(3,c)"),
        ("-D(1) | -U(2) +U(4,b)", "-D(1,a) | -U(2,b) +U(4,b)"),
        ("T | +I(5,e)", "T | +I(5,e)"),
        ("=U(3,x)", "-U(3,c) +U(3,x)"),
    ):
        ends += [bench.log.write(KEYED, part), bench.log.write(BAG, without_key)]
    ends += [bench.log.complete(schema) for schema in (KEYED, BAG)]
    bench.run(*(ends if cuts == "each" else ends[-1:]))
    kept = Counter({(1, "a"): 1, (3, "x"): 1, (4, "b"): 1, (5, "e"): 1})
    assert bench.rows(KEYED) == kept
    assert bench.rows(BAG) == kept

    # A repair deletes what is asked for, and a table without a key is copied anew.
    window(bench, KEYED, "-D(1) +R(6,f)")
    bench.run(window(bench, BAG, "+I(7,g)", wiped=True))
    assert bench.rows(KEYED) == kept - Counter([(1, "a")]) + Counter([(6, "f")])
    assert bench.rows(BAG) == Counter({(7, "g"): 1})


@req("C-8", "C18")
def test_a_table_of_changes_keeps_only_the_operations_that_it_wants(
    bench: Bench, tmp_path: Path
) -> None:
    settings = settings_of(
        tmp_path, "{public.keyed: {mode: append, ignore: [insert, update, truncate]}}"
    )
    bench.options = replace(bench.options, settings=settings)
    bench.log.write(KEYED, "+I(1,a) +I(2,b) | =U(2,x) | -D(1) | -U(2) +U(3,x) | T | -D(3)")
    bench.run(bench.log.complete(KEYED))
    kept = list(bench.rows(KEYED).elements())
    assert len(kept) == 2
    assert all("-D" in row for row in kept)


def test_where_every_row_is_needed_only_those_are_ignored_that_leave_more(tmp_path: Path) -> None:
    for mode in ("mirror", "history", "soft_delete"):
        with pytest.raises(ConfigError, match="only in the mode append"):
            settings_of(tmp_path, f"{{public.keyed: {{mode: {mode}, ignore: [update]}}}}")
    (_, settings), _ = settings_of(tmp_path, "{public.keyed: {mode: history, ignore: [delete]}}")
    assert (settings.mode, settings.ignored) == (Mode.HISTORY, frozenset({"-D"}))
