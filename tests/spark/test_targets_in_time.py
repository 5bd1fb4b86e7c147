"""Batches through the applier into every implementation of the port: cuts, replays, crashes, changes of columns."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore
from headrace.lake.ledger import table_path
from headrace.lake.modes import Mode, shaped
from headrace.lake.settings import TableSettings
from headrace.model.block import Body, SystemEvent, SystemKind
from headrace.model.schema import Column, KeyCheck, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.spark.apply import Applier, ApplyOptions
from headrace.store import store_of
from headrace.testing.notation import change_batch, table_of
from tests.histories import TargetHistory
from tests.requirements import req
from tests.spark.folded import run_to
from tests.spark.log import Log, lent, model
from tests.spark.subjects import BUCKET, DIFFERENT, MARIADB, OWN, SQL, Subject, made

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

KEYED, BAG = table_of(3, name="keyed"), table_of(2, check=KeyCheck.NONE, name="bag")
WHOLE = table_of(2, check=KeyCheck.DEFERRED, name="whole")
PARTS = {
    KEYED: ["+I(1,a,b) +I(2,c,d)", "=U(1,x,?) | -U(2) +U(3,y,?)", "-D(1) | +I(2,.,z)"],
    BAG: ["+I(1,a) +I(1,a)", "-D(1,a) +I(2,b)", "T | +I(3,c) +I(3,c)"],
    # A deferrable key: the rows move up by one, which for a moment gives two rows one key.
    WHOLE: ["+I(1,a) +I(2,b)", "-U(1,a) +U(2,a) -U(2,b) +U(3,b)", "-D(3,b)"],
}


class Crash(BaseException):
    """The process ends here."""


class Bench:
    """A change log, one implementation, and appliers that come and go."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self.subject = subject
        self.log = Log(folder / "changelog")
        self.options = ApplyOptions("test", self.log.folder, subject.lake)
        self.frontier = FrontierStore(subject.lake, "test")

    def run(self, *ends: int) -> Applier:
        """Start afresh, as after a restart, and apply up to each end in turn."""
        return run_to(self.options, self.subject.make(), *ends)

    def versions(self) -> list[int]:
        """Return how often each table was changed."""
        states = [self.subject.target.state(schema.table) for schema in PARTS]
        return [state.version if state else -1 for state in states]


@pytest.fixture(params=DIFFERENT)
def subject(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Subject:
    return made(request.param, request, spark, tmp_path)


@pytest.fixture
def bench(subject: Subject, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(subject, tmp_path))


def expect_equal(bench: Bench, parts: int = 3) -> None:
    for schema, histories in PARTS.items():
        assert bench.subject.content(schema) == model(schema, *histories[:parts]), schema.table


@req("C43", "C44", "T13")
def test_replaying_everything_or_any_suffix_changes_nothing(bench: Bench) -> None:
    """The newest changes of two tables are deletes: what they leave in the rows would be an older number."""
    random, ends = Random(6), []
    for part in range(3):
        for schema, histories in PARTS.items():
            ends.append(bench.log.write(schema, histories[part]))
    for schema in PARTS:
        bench.log.complete(schema)
    bench.run(*ends[2::3], bench.log.scn)
    expect_equal(bench)
    versions = bench.versions()
    folder = bench.frontier.folder
    store_of(folder).delete([folder / name for name in store_of(folder).names(folder)])
    bench.run(ends[0], ends[4], bench.log.scn)
    assert bench.versions() == versions
    applier = Applier(bench.options, bench.subject.make())
    applier.begin()
    for start in [0, *ends]:
        for end in {*random.sample(ends, 2), bench.log.scn}:
            if start < end:
                applier.process(start, end)
    applier.close()
    assert not applier.failing
    assert bench.versions() == versions
    expect_equal(bench)


def _columns(subject: Subject, schema: TableSchema) -> list[str]:
    """Return the columns of a target table as anybody finds them."""
    if subject.kind not in SQL:
        path = table_path(subject.lake, schema.table)
        return list(DeltaTable(path).snapshot().schema.names)
    with subject.warehouse.opened(read_only=True) as session:
        place = f"table_schema = 'public' AND table_name = '{schema.table.name}'"
        query = f"SELECT column_name FROM information_schema.columns WHERE {place} ORDER BY ordinal_position"
        return [str(name) for (name,) in session.rows(query)]


@req("C40")
def test_a_target_table_has_the_sources_columns_and_the_number_where_that_is_asked_for(
    bench: Bench,
) -> None:
    """A mirror is the source's table and nothing more; a mode that says what became of rows has the change's number."""
    plain, numbered = table_of(3, name="plain"), table_of(3, name="numbered")
    asked = (("public.numbered", TableSettings(Mode.SOFT_DELETE)),)
    settings = asked if "soft_delete" in bench.subject.target.capabilities.modes else ()
    bench.options = replace(bench.options, settings=settings)
    last = {}
    for schema in (plain, numbered):
        bench.log.write(schema, "+I(1,a,b) | +I(2,c,d)")
        last[schema] = bench.log.write(schema, "=U(1,x,?)")
        bench.log.complete(schema)
    assert not bench.run(bench.log.scn).failing
    assert _columns(bench.subject, plain) == plain.names
    if settings:
        added = ["_deleted", "_deleted_at", "_scn"]
        assert _columns(bench.subject, numbered) == [*numbered.names, *added]
        held = bench.subject.rows(shaped(numbered, Mode.SOFT_DELETE)).select(["k", "_scn"])
        rows = {row["k"]: row["_scn"] for row in held.to_pylist()}
        assert rows == {1: last[numbered], 2: last[numbered] - 10}


def _places(kind: str) -> list[str]:
    staged = ["apply.staged", "apply.merged"] if kind in ("postgres", "mariadb") else []
    files = ["apply.files_written"] if kind in (*OWN, BUCKET) else []
    return ["apply.before_commit", *files, *staged, "apply.after_commit"]


@req("C12", "C43", "C44", "C58", "C-12")
@pytest.mark.parametrize(
    ("subject", "place"),
    [
        *((kind, place) for kind in [OWN[0], *SQL[:2]] for place in _places(kind)),
        *(pytest.param("mariadb", p, marks=MARIADB.marks) for p in _places("mariadb")),
        *(pytest.param(BUCKET, p, marks=pytest.mark.object_store) for p in _places(BUCKET)),
    ],
    indirect=["subject"],
)
def test_a_crash_before_inside_and_after_the_commit_changes_nothing(
    bench: Bench, place: str
) -> None:
    for schema, histories in PARTS.items():
        bench.log.write(schema, histories[0])
        bench.log.complete(schema)
    bench.run(bench.log.scn)
    middle = 0
    for schema, histories in PARTS.items():
        middle = bench.log.write(schema, histories[1])

    # A warehouse commits all tables at once; of three commits of Delta tables, side by side, the last one ends here.
    commits = 1 if bench.subject.kind in SQL else len(PARTS)
    ends_at = commits if place == "apply.after_commit" else 1
    passed = itertools.count(1)

    def crash() -> None:
        if next(passed) >= ends_at:
            raise Crash

    arm(place, crash)
    with pytest.raises(Crash):
        bench.run(bench.log.scn)
    disarm()
    # Readers see all of the batch or nothing of it.
    expect_equal(bench, 2 if place == "apply.after_commit" else 1)
    for schema, histories in PARTS.items():
        bench.log.write(schema, histories[2])
    # Cut elsewhere than before the crash.
    bench.run(middle, bench.log.scn)
    expect_equal(bench)


@req("C06", "C45", "C30", "C-11")
@pytest.mark.parametrize("cuts", ["each", "once"])
def test_columns_come_go_grow_and_change_their_names(bench: Bench, cuts: str) -> None:
    old = table_of(3)
    old = replace(old, columns=(Column("k", pa.int32(), "int4"), *old.columns[1:]))
    new = replace(
        old,
        columns=(
            Column("k", pa.int64(), "int8"),
            # The two texts have changed names.
            replace(old.columns[2], name="c1"),
            replace(old.columns[1], name="c2"),
            Column("n", pa.decimal128(10, 2), "numeric(10,2)"),
        ),
    )
    last = replace(new, columns=(*new.columns[:1], *new.columns[2:]))
    ends = [bench.log.announce(old, {"k": 1, "c1": 2, "c2": 3})]
    bench.log.write(old, "+I(1,a,b) | +I(2,c,d)")
    ends.append(bench.log.complete(old))
    ends.append(bench.log.announce(new, {"k": 1, "c2": 2, "c1": 3, "n": 4}))
    ends.append(bench.log.write(new, "=U(1,new,?,.) | +I(3000000000,e,f,.)"))
    ends.append(bench.log.announce(last, {"k": 1, "c2": 2, "n": 4}))
    ends.append(bench.log.write(last, "=U(2,gone,?)"))
    applier = bench.run(*(ends if cuts == "each" else ends[-1:]))
    assert not applier.failing
    assert bench.subject.content(last) == Counter(
        {(1, "a", None): 1, (2, "gone", None): 1, (3_000_000_000, "f", None): 1}
    )


@req("C06", "C45")
def test_another_key_is_followed(bench: Bench) -> None:
    first = table_of(3)
    second = replace(first, key=("k", "c1"))
    bare = replace(first, key=(), key_check=KeyCheck.NONE)
    ends = [bench.log.announce(first)]
    ends.append(bench.log.write(first, "+I(1,a,b) | +I(2,c,d)"))
    bench.log.complete(first)
    bench.log.announce(second)
    ends.append(bench.log.write(second, "+I(1,z,y) | -D(2,c)"))
    bench.log.announce(bare)
    ends.append(bench.log.write(bare, "+I(1,z,y) | +I(.,.,.)"))
    applier = bench.run(*ends)
    assert not applier.failing
    assert bench.subject.content(bare) == Counter(
        {(1, "a", "b"): 1, (1, "z", "y"): 2, (None, None, None): 1}
    )


def _write(log: Log, histories: list[TargetHistory]) -> list[int]:
    """Interleave the transactions of histories in one log; return the SCNs."""
    scns: list[int] = []
    schemas = {
        schema.table: (log.registry.put(schema), schema)
        for history in histories
        for schema in history.schemas
    }
    waiting = {number: list(history.transactions()) for number, history in enumerate(histories)}
    while waiting:
        for number in list(waiting):
            rows, truncates = waiting[number].pop(0)
            if not waiting[number]:
                del waiting[number]
            scn = log.following
            bodies = [
                Body(schemas[table][0], table, change_batch(schemas[table][1], held(scn)))
                for table, held in rows.items()
            ]
            events = [
                SystemEvent(scn, order, SystemKind.TRUNCATE, table) for table, order in truncates
            ]
            scns.append(log.batch(*bodies, events=tuple(events)))
    return scns


def run_histories(bench: Bench, first: int, count: int) -> None:
    """Take histories through one implementation as tables of the same batches, over restarts."""
    histories = [TargetHistory(seed, f"h{seed}_") for seed in range(first, first + count)]
    scns = _write(bench.log, histories)
    random = Random(first)
    ends = sorted(random.sample(sorted(scns), 5))
    for end in [*ends, bench.log.scn]:
        applier = bench.run(end)
        assert not applier.failing
    for history in histories:
        for schema, rows in history.truth().items():
            if history.touches(schema):
                assert bench.subject.content(schema) == rows, (first, schema.table)


@req("F1", "C43", "C50")
def test_random_histories_end_as_at_the_source(bench: Bench) -> None:
    run_histories(bench, 0, 3)


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Let Spark interpret its expressions: to compile each of thousands of small MERGEs takes hours."""
    settings = (
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    )
    for name, value in settings:
        spark.conf.set(name, value)
    yield
    for name, _ in settings:
        spark.conf.unset(name)


@pytest.mark.long
@pytest.mark.usefixtures("interpreted")
@req("F1", "C43", "C50")
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_two_hundred_random_histories_end_as_at_the_source(bench: Bench, first: int) -> None:
    run_histories(bench, first, 25)
