"""Tables go back to an earlier frontier, and the change log brings them forward again."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from headrace.changelog.config import ChangeLogSettings
from headrace.changelog.jobs import jobs
from headrace.changelog.writer import ChangeLogWriter
from headrace.errors import CommandRefused, ConfigError, LeaseLost
from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore
from headrace.lake.ledger import app_id, applied_scn, shown_version, table_path
from headrace.model.schema import KeyCheck, TableSchema
from headrace.observe.failpoints import FAILPOINTS, arm, disarm
from headrace.replicator import lock
from headrace.replicator.config import Config
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.replicator.rewind import finish, rewind
from headrace.testing.notation import table_of
from tests.places import local
from tests.requirements import req
from tests.spark.log import lent, model
from tests.spark.test_apply import Bench, Crash

pytestmark = pytest.mark.spark

KEYED, BAG = table_of(3, name="keyed"), table_of(2, check=KeyCheck.NONE, name="bag")
LATE = table_of(2, name="late")
WIDE = table_of(4, name="keyed")
PARTS: list[dict[TableSchema, str]] = [
    {KEYED: "+I(1,a,b) +I(2,c,d)", BAG: "+I(1,a) +I(1,a)"},
    {KEYED: "=U(1,x,?) | -U(2) +U(3,?,?)", BAG: "-D(1,a) +I(2,b)"},
    {KEYED: "-D(1)", LATE: "+I(1,a)"},
    {WIDE: "+I(4,e,f,g) | =U(3,y,?,?)", BAG: "T | +I(3,c)"},
    {WIDE: "-D(4) | +I(1,n,n,n)", LATE: "+I(2,b) | =U(1,z)"},
]


@dataclass
class History:
    """What the tables were at each frontier."""

    bench: Bench
    config: Config
    ends: list[int] = field(default_factory=list)

    def expect(self, upto: int) -> None:
        """Every table has the rows of the first so many parts, and readers at the frontier see them."""
        newest = self.bench.frontier.latest()
        assert newest is not None
        assert newest.scn == self.ends[upto - 1]
        for name in (KEYED.table, BAG.table, LATE.table):
            parts = [
                (schema, part)
                for given in PARTS[:upto]
                for schema, part in given.items()
                if schema.table == name
            ]
            found = DeltaTable(table_path(self.bench.lake, name)).latest()
            if not parts:
                assert found is None
                continue
            schema = parts[-1][0]
            wanted = (
                model(schema, *(part for _, part in parts)) if schema is not WIDE else _wide(upto)
            )
            assert self.bench.rows(schema) == wanted
            entry = newest.tables[str(name)]
            assert entry.state == "live"
            shown = shown_version(self.bench.lake, "test", name, entry.version)
            assert self.bench.rows(schema, shown) == wanted


def _wide(upto: int) -> Counter[tuple[object, ...]]:
    """Return the rows of the table that got a column on its way."""
    if upto == 4:
        return Counter({(3, "y", "d", None): 1, (4, "e", "f", "g"): 1})
    return Counter({(3, "y", "d", None): 1, (1, "n", "n", "n"): 1})


@pytest.fixture
def history(spark: SparkSession, tmp_path: Path) -> Iterator[History]:
    file = tmp_path / "test.yaml"
    file.write_text(
        "name: test\n"
        "source: {type: postgres, url: 'postgresql://u@h/db', tables: ['public.*']}\n"
        "target: {type: delta, path: ./lake}\n"
        "state: {dir: .}\n"
    )
    bench = Bench(spark, tmp_path)
    made = History(bench, load(file))
    complete: set[str] = set()
    for part in PARTS:
        for schema, text in part.items():
            if schema is WIDE:
                bench.log.announce(WIDE)
            bench.log.write(schema, text)
            if str(schema.table) not in complete:
                bench.log.complete(schema)
                complete.add(str(schema.table))
        made.ends.append(bench.log.scn)
        bench.run(bench.log.scn)
    yield from lent_history(made)


def lent_history(made: History) -> Iterator[History]:
    for _ in lent(made.bench):
        yield made


@req("C101")
def test_tables_go_back_to_any_frontier_and_come_forward_again(history: History) -> None:
    """Rows, columns and tables are those of the frontier; the log brings the rest, as often as one likes."""
    random = Random(7)
    history.expect(5)
    for upto in (4, 2, 1, 3):
        before = {scn: history.bench.frontier.at_or_below(scn) for scn in history.ends[:upto]}
        done = rewind(history.config, str(history.ends[upto - 1] + random.choice([0, 5])))
        assert (done.scn, done.was_scn) == (history.ends[upto - 1], history.ends[4])
        history.expect(upto)
        assert ("public.late" in done.removed) == (upto < 3)
        assert jobs(history.bench.log.folder)["test"] <= done.scn
        # What older frontiers name is as it was.
        for scn, manifest in before.items():
            assert history.bench.frontier.at_or_below(scn) == manifest
        history.bench.run(*history.ends[upto:])
        history.expect(5)


@req("C101")
def test_an_applied_scn_never_goes_back(history: History) -> None:
    name = KEYED.table
    for number in (1, 2):
        rewind(history.config, str(history.ends[0]))
        held = DeltaTable(table_path(history.bench.lake, name)).latest()
        assert held is not None
        assert held.transactions[app_id("test", name)] == history.ends[4]
        assert held.transactions[app_id("test", name, number)] == history.ends[0]
        assert applied_scn(held, "test", name) == history.ends[0]
        history.bench.run(history.ends[4])
        history.expect(5)


@req("C101")
@pytest.mark.parametrize("place", [name for name in FAILPOINTS if name.startswith("rewind.")])
@pytest.mark.parametrize("passes", [1, 2])
def test_a_crash_at_any_step_leaves_the_one_frontier_or_the_other(
    history: History, place: str, passes: int
) -> None:
    def crash() -> None:
        nonlocal passes
        passes -= 1
        if not passes:
            raise Crash

    arm(place, crash)
    try:
        rewind(history.config, str(history.ends[1]))
    except Crash:
        disarm()
        # The next start of the apply job does this first.
        finish(history.config)
    disarm()
    history.expect(2)
    history.bench.run(history.ends[4])
    history.expect(5)


@req("C101")
def test_a_time_stands_for_the_newest_frontier_that_is_not_behind_it(history: History) -> None:
    manifest = history.bench.frontier.at_or_below(history.ends[1])
    assert manifest is not None
    time = dt.datetime.fromtimestamp(manifest.commit_us / 1e6, dt.UTC)
    done = rewind(history.config, (time + dt.timedelta(microseconds=1)).isoformat())
    assert done.scn == history.ends[1]
    with pytest.raises(CommandRefused, match="No frontier is kept"):
        rewind(history.config, "2001-01-01T00:00:00")
    with pytest.raises(ConfigError, match="neither an SCN nor a time"):
        rewind(history.config, "yesterday")


@req("C101")
def test_where_nobody_can_go_back_nothing_is_changed(history: History, tmp_path: Path) -> None:
    bench, config = history.bench, history.config
    held = jobs(bench.log.folder)

    def refused(why: str, to: int = 0) -> None:
        with pytest.raises(CommandRefused, match=why):
            rewind(config, str(history.ends[to]))
        history.expect(5)
        assert jobs(bench.log.folder) == held
        assert not (StatePaths.of(config).root / "rewind.json").exists()

    paths = StatePaths.of(config)
    with lock.held(paths.lock("apply"), "apply"), pytest.raises(LeaseLost, match="already runs"):
        rewind(config, str(history.ends[0]))
    with pytest.raises(CommandRefused, match=f"from SCN {history.ends[0]} to {history.ends[4]}"):
        rewind(config, "1")

    newest = bench.frontier.latest()
    assert newest is not None
    versions = [DeltaTable(table_path(bench.lake, s.table)).latest_version() for s in (KEYED, BAG)]
    later = dt.datetime.fromtimestamp(newest.commit_us / 1e6 + 1, dt.UTC).isoformat()
    for to in (str(newest.scn + 1), later):
        why = f"newest commit that the tables show: SCN {newest.scn}, of "
        with pytest.raises(CommandRefused, match=why):
            rewind(config, to)
    assert versions == [
        DeltaTable(table_path(bench.lake, s.table)).latest_version() for s in (KEYED, BAG)
    ]

    entry = bench.frontier.at_or_below(history.ends[0])
    assert entry is not None
    snapshot = DeltaTable(table_path(bench.lake, BAG.table)).snapshot(
        entry.tables[str(BAG.table)].version
    )
    lost = local(snapshot.files[0].path)
    kept = lost.rename(tmp_path / "kept")
    refused(r"public\.bag cannot go back to SCN \d+: 1 file of version")
    kept.rename(lost)


@req("C101")
def test_where_the_log_no_longer_reaches_back_that_is_said(history: History) -> None:
    log, bench = history.bench.log, history.bench
    log.writer.close()
    settings = ChangeLogSettings(segment_bytes=64 * 1024, retain_bytes=0)
    log.writer = ChangeLogWriter.open(log.folder, settings, sync=lambda _descriptor: None)
    for key in range(10, 16):
        log.write(BAG, f"+I({key},{'x' * 50_000})")
    bench.run(log.scn)
    assert log.writer.retain()
    held, newest = jobs(log.folder), bench.frontier.latest()
    with pytest.raises(CommandRefused, match="The change log no longer holds what came behind SCN"):
        rewind(history.config, str(history.ends[0]))
    assert (jobs(log.folder), bench.frontier.latest()) == (held, newest)
    assert not (history.config.state_dir / "rewind.json").exists()


def test_a_target_without_versions_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\n"
        "source: {type: postgres, url: 'postgresql://u@h/db', tables: ['public.*']}\n"
        "target: {type: parquet, path: ./changes}\n"
    )
    with pytest.raises(ConfigError, match="type parquet keeps no earlier versions"):
        rewind(load(file), "1")


def test_a_table_that_was_adopted_later_is_not_made_empty(history: History) -> None:
    adopted = history.config.model_copy(
        update={
            "tables": {
                "public.late": load(_written(history.config.state_dir / "other.yaml")).tables[
                    "public.late"
                ]
            }
        }
    )
    with pytest.raises(CommandRefused, match=r"public\.late was adopted behind SCN"):
        rewind(adopted, str(history.ends[1]))
    assert FrontierStore(history.bench.lake, "test").latest() is not None


def _written(file: Path) -> Path:
    file.write_text(
        "name: test\n"
        "source: {type: postgres, url: 'postgresql://u@h/db', tables: ['public.*']}\n"
        "target: {type: delta, path: ./lake}\n"
        "tables: {public.late: {first_copy: adopted}}\n"
    )
    return file
