"""``headrace adopt`` refuses by name what it cannot do exactly, and may be called again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.changelog import ChangeLogSettings
from headrace.changelog.jobs import register_job
from headrace.changelog.writer import ChangeLogWriter
from headrace.errors import (
    ConfigError,
    DumpUnfit,
    HeadraceError,
    LeaseLost,
    ScnNotFound,
    StateError,
    TargetConflict,
    TargetUnwritable,
)
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import SCHEMA_PROPERTY
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.ledger import applied_scn, table_path
from headrace.lake.remembered import numbers_of
from headrace.model.schema import TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.replicator import runner
from headrace.replicator.adopt import Adopted, adopt
from headrace.replicator.config_file import load
from headrace.replicator.lock import held
from headrace.replicator.paths import StatePaths
from headrace.sources.postgres.lsn import format_lsn
from headrace.state.incarnation import Incarnation
from headrace.state.records import OPEN, Cause, RequestState
from headrace.state.store import StateStore
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import Log

T = table_of(2)


class Shop:
    """A replicator that has captured a table since SCN 20, and whose log holds 10 to 60."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop.yaml"
        self.file.write_text(
            "name: shop\n"
            'source: {type: postgres, url: "postgresql://nobody@127.0.0.1:1/x", tables: ["public.*"]}\n'
            "target: {type: delta, path: ./lake}\n"
            "tables: {public.t: {first_copy: adopted}}\n"
        )
        self.config = load(self.file)
        self.paths = StatePaths.of(self.config)
        self.log = Log(self.paths.changelog)
        self.log.write(T, "+I(1,a) | +I(2,a) | +I(3,a) | +I(4,a) | +I(5,a) | +I(6,a)")
        self.state = StateStore(self.paths.database)
        self.state.write([Incarnation("one", offset=5).keep, lambda w: w.set_since(T.table, 20)])
        self.state.write([lambda w: w.set("schema public.t", str(T.schema_id))])
        self.files = folder / "dump"
        self.dump([1, 2, 3])

    def dump(self, keys: list[int | None], **more: list[str]) -> None:
        self.files.mkdir(exist_ok=True)
        columns = {"k": pa.array(keys, pa.int64()), "c1": ["a"] * len(keys), **more}
        pq.write_table(pa.table(columns), self.files / "all.parquet")

    def adopt(self, at: str = "30", table: TableSchema = T, now: TableSchema = T) -> Adopted:
        def parse(text: str, offset: int) -> int:
            raise ValueError(text)

        return adopt(self.config, table.table, self.files, at, parse, lambda: now, 0.0)

    def held(self) -> DeltaTable:
        return DeltaTable(table_path(self.config.lake, T.table))

    def causes(self) -> list[Cause]:
        return [request.cause for request in self.state.requests()]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.log.writer.close()
    made.state.close()


@req("D34")
def test_a_call_fills_the_table_and_asks_for_its_completion_once(shop: Shop) -> None:
    first = shop.adopt()
    assert (first.table, first.scn, first.rows) == ("public.t", 30, 3)
    assert applied_scn(shop.held().latest(), "shop", T.table) == 30
    (request,) = shop.state.requests()
    assert (request.table, request.cause, request.priority) == (T.table, Cause.ADOPTED, 100)
    again = shop.adopt()
    assert (again.rows, again.request) == (None, request.request_id)
    assert shop.held().latest_version() == 0
    shop.state.move(request.request_id, RequestState.COMPLETED, since=OPEN)
    assert shop.adopt().request == request.request_id
    # One that a person cancelled is asked for again.
    shop.state.move(request.request_id, RequestState.CANCELLED, since=[RequestState.COMPLETED])
    assert shop.adopt().request != request.request_id


class Crash(BaseException):
    """The process ends here."""


@req("D34")
@pytest.mark.parametrize(
    ("step", "there", "asked"),
    [
        ("adopt.files_written", False, False),
        ("adopt.after_commit", True, False),
        ("adopt.after_request", True, True),
    ],
)
def test_a_crash_at_any_step_leaves_the_rest_to_the_next_call(
    shop: Shop, step: str, there: bool, asked: bool
) -> None:
    """The table is durable before its completion is asked for: a log that holds that makes apply look for the table."""

    def die() -> None:
        raise Crash

    arm(step, die)
    try:
        with pytest.raises(Crash):
            shop.adopt()
    finally:
        disarm()
    assert (shop.held().latest() is not None, bool(shop.causes())) == (there, asked)
    assert shop.adopt().scn == 30
    assert (shop.held().latest_version(), shop.causes()) == (0, [Cause.ADOPTED])
    assert shop.held().snapshot().to_table().num_rows == 3


@req("D34")
@pytest.mark.parametrize(
    ("at", "error"),
    [
        ("19", ScnNotFound),
        ("61", ScnNotFound),
        ("0", ConfigError),
        ("-3", ConfigError),
        ("9223372036854775808", ConfigError),
        ("1/", ConfigError),
        ("now", ConfigError),
    ],
)
def test_a_position_that_cannot_be_joined_is_refused(
    shop: Shop, at: str, error: type[HeadraceError]
) -> None:
    with pytest.raises(error) as refused:
        shop.adopt(at)
    assert refused.value.next_step
    assert (shop.held().latest(), shop.causes()) == (None, [])


@req("D34")
@pytest.mark.parametrize("at", ["20", "60"])
def test_the_first_and_the_last_position_that_can_be_joined(shop: Shop, at: str) -> None:
    assert shop.adopt(at).scn == int(at)


@req("D34")
def test_a_position_before_a_resync_is_refused(shop: Shop) -> None:
    shop.state.write([Incarnation("two", offset=5, since_scn=40).keep])
    with pytest.raises(ScnNotFound):
        shop.adopt("39")
    assert shop.adopt("40").scn == 40


@req("D34")
def test_what_the_log_has_dropped_since_is_refused_unless_it_said_nothing_of_the_table(
    shop: Shop,
) -> None:
    shop.log.writer.close()
    register_job(shop.paths.changelog, "shop", 60)
    settings = ChangeLogSettings(segment_bytes=64 * 1024, retain_bytes=0)
    shop.log.writer = ChangeLogWriter.open(shop.paths.changelog, settings)
    shop.log.write(T, "+I(9,a)")
    shop.log.writer.retain()
    assert shop.log.writer.tail.oldest_scn == 60
    with pytest.raises(ScnNotFound, match="holds 60 to 70"):
        shop.adopt("50")
    waiting = TableEntry(-1, 65, None, "copying")
    FrontierStore(shop.config.lake, "shop").write(Manifest(65, 1, {"public.t": waiting}, 1))
    assert shop.adopt("50").scn == 50


@req("D34")
def test_an_lsn_stands_for_what_committed_before_it(shop: Shop) -> None:
    """A commit is numbered by where its record begins: one that begins at the LSN is behind the dump."""
    done = runner.adopt(shop.config, "public.t", shop.files, format_lsn(36))
    assert done.scn == 36 - 1 + 5


@req("D34")
def test_tables_that_are_not_marked_or_not_captured_are_refused(shop: Shop, tmp_path: Path) -> None:
    other = table_of(2, name="other")
    with pytest.raises(ConfigError, match=r"the first copy of public.other is made by headrace"):
        shop.adopt(table=other)
    shop.file.write_text(shop.file.read_text().replace("public.t", '"*.*"'))
    shop.config = load(shop.file)
    with pytest.raises(StateError, match=r"capture has not begun with public.other"):
        shop.adopt(table=other)
    shop.file.write_text(shop.file.read_text().replace("name: shop", "name: fresh"))
    shop.config = load(shop.file)
    with pytest.raises(StateError, match="replicator fresh has captured nothing yet"):
        shop.adopt()


@req("D34")
def test_a_table_that_is_there_already_is_left_alone(shop: Shop) -> None:
    shop.adopt("30")
    with pytest.raises(TargetConflict, match=r"a target table of public.t already"):
        shop.adopt("40")
    assert applied_scn(shop.held().latest(), "shop", T.table) == 30


@req("D34")
def test_a_dump_that_does_not_fit_changes_nothing_and_a_better_one_is_taken(shop: Shop) -> None:
    shop.dump([1, None])
    with pytest.raises(DumpUnfit):
        shop.adopt()
    assert (shop.held().latest(), shop.causes()) == (None, [])
    shop.dump([1, 2], further=["x", "y"])
    assert shop.adopt().passed_over == ("further",)


def test_one_call_at_a_time(shop: Shop) -> None:
    with held(shop.paths.lock("adopt"), "headrace adopt"), pytest.raises(LeaseLost):
        shop.adopt()


def test_a_folder_that_refuses_is_a_named_error(shop: Shop) -> None:
    (shop.file.parent / "lake").write_text("in the way")
    with pytest.raises(TargetUnwritable, match=r"target table of public.t"):
        shop.adopt()


@req("D34")
def test_rows_are_cast_to_the_version_of_their_position(shop: Shop) -> None:
    """What the log says later changes the table when it is applied; before, its version is the last one told."""
    wider, now = table_of(3), table_of(4)
    shop.log.announce(T, {"k": 1, "c1": 2})
    early = shop.log.scn
    shop.log.announce(wider, {"k": 1, "c1": 2, "c2": 3})
    late = shop.log.scn
    for at, schema in ((early + 5, T), (late, wider)):
        shop.dump([1], c2=["b"])
        assert shop.adopt(str(at), now=now).passed_over == (() if schema is wider else ("c2",))
        snapshot = shop.held().snapshot()
        assert int(snapshot.properties[SCHEMA_PROPERTY]) == schema.schema_id
        assert numbers_of(snapshot)["c1"] == 2
        folder = shop.file.parent / "lake" / "public"
        (folder / "t").rename(folder / f"at{at}")


@req("D34")
def test_a_log_that_never_spoke_of_the_table_leaves_the_version_to_the_source(shop: Shop) -> None:
    wider = table_of(3)
    shop.dump([1], c2=["b"])
    shop.state.write([lambda w: w.set("schema public.t", "")])
    shop.adopt(now=wider)
    assert shop.log.registry.get(wider.schema_id) == wider
    with closing(StateStore(shop.paths.database)) as state:
        assert state.spoken_for() == {T.table}
