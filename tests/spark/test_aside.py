"""Changes that a table will never take are put aside, one transaction at a time, and the table goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.changelog.dead_letters import DeadLetter, DeadLetterStore, LetterState
from headrace.errors import StateError
from headrace.lake.settings import TableSettings
from headrace.model.block import Body, SystemEvent, SystemKind
from headrace.model.schema import KeyCheck, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.spark.apply import Applier
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.places import local
from tests.requirements import req
from tests.spark.log import lent, model
from tests.spark.test_apply import Bench, Crash

pytestmark = pytest.mark.spark

GOOD, BAD = table_of(3, name="good"), table_of(3, name="bad")
BAG = table_of(2, check=KeyCheck.NONE, name="bag")
POISON = "=U({key},poison,?)"
"""Patches a row that nobody ever made."""


class Life:
    """An applier that puts changes of ``public.b*`` aside, and a clock that goes where the test wants it."""

    def __init__(self, bench: Bench) -> None:
        self.letters = DeadLetterStore(bench.log.folder.with_name("letters"))
        settings = (("public.b*", TableSettings(sets_aside=True)),)
        options = replace(
            bench.options,
            settings=settings,
            dead_letters=bench.log.folder.with_name("letters"),
        )
        self.bench, self.now = bench, 0.0
        self.came: dict[str, bool] = {}
        self.applier = Applier(
            options, bench.target, replayed=self.came.get, clock=lambda: self.now
        )
        self.scn = self.applier.begin().from_scn

    def process(self, end: int) -> None:
        """Apply up to an end, with as many attempts as that takes."""
        self.applier.process(self.scn, end)
        self.scn = end
        for _ in range(8):
            self.now += 100.0
            self.applier.retry(end)

    def state(self, schema: TableSchema) -> str:
        return self.applier.status.tables[str(schema.table)].state

    def of(self, schema: TableSchema) -> list[DeadLetter]:
        return list(self.letters.of(schema.table))


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


def begun(bench: Bench, *schemas: TableSchema) -> None:
    for schema in schemas:
        bench.log.write(schema, "+I(1,a,b)" if schema.key else "+I(1,a)")
        bench.log.complete(schema)
    bench.run(bench.log.scn)


def packed(bench: Bench, schema: TableSchema, history: str) -> int:
    """Append transactions that lie in one block, as a busy capture writes them; return the last SCN."""
    parts = history.split("|")
    begin = bench.log.scn
    for part in parts:
        bench.log.batch(
            Body(
                bench.log.registry.put(schema),
                schema.table,
                change_batch(schema, parse_history(part, bench.log.following).rows),
            )
        )
    assert bench.log.scn == begin + 10 * len(parts)
    return bench.log.scn


@req("C67", "C10")
def test_one_transaction_is_put_aside_and_everything_around_it_arrives(bench: Bench) -> None:
    begun(bench, GOOD, BAD)
    before = "+I(2,c,d) | =U(1,x,?)"
    end = packed(bench, BAD, f"{before} | {POISON.format(key=9)} +I(3,e,f) | +I(4,g,h)")
    bench.log.write(GOOD, "+I(2,c,d)")
    life = Life(bench)
    life.process(bench.log.scn)

    # The transaction is left out whole, and no other is.
    assert bench.rows(BAD) == model(BAD, "+I(1,a,b)", before, "+I(4,g,h)")
    assert bench.rows(GOOD) == model(GOOD, "+I(1,a,b) +I(2,c,d)")
    (letter,) = life.of(BAD)
    assert letter.letter_id == f"public.bad@{end - 10}"
    assert (letter.rows, letter.operations) == (2, {"=U": 1, "+I": 1})
    assert letter.error["name"] == "MissingBase"
    assert "poison" not in str(letter.to_json())
    (block,) = life.letters.blocks(letter)
    assert block.bodies[0].batch.column("c1").to_pylist() == ["poison", "e"]
    assert block.index["scn"].tolist() == [letter.scn]

    # It goes on, outside the frontier: nobody takes it for the source's rows.
    assert (life.state(GOOD), life.state(BAD)) == ("live", "failing")
    said = life.applier.status.tables[str(BAD.table)].error
    assert said is not None
    assert said["name"] == "DeadLetters"
    assert "1 transaction put aside" in said["message"]
    life.process(bench.log.write(BAD, "+I(5,i,j)"))
    assert sum(bench.rows(BAD).values()) == 4
    manifest = bench.frontier.latest()
    assert manifest is not None
    assert (manifest.tables["public.bad"].state, manifest.scn) == ("failing", bench.log.scn)
    assert manifest.tables["public.bad"].applied_scn == bench.log.scn, "the log may go on"

    life.letters.update(letter, state=LetterState.DISCARDED)
    life.process(bench.log.write(GOOD, "+I(3,e,f)"))
    assert life.state(BAD) == "live"
    assert not list(life.letters.blocks(letter))
    life.applier.close()


@req("C67")
def test_a_replay_brings_the_rows_of_today_and_the_table_back(bench: Bench) -> None:
    begun(bench, BAD)
    bench.log.write(BAD, POISON.format(key=9))
    life = Life(bench)
    life.process(bench.log.scn)
    (letter,) = life.of(BAD)
    life.letters.update(letter, state=LetterState.REPLAYING, request="r1")
    life.process(bench.log.write(BAD, "+I(2,c,d)"))
    assert (life.state(BAD), life.of(BAD)[0].state) == ("failing", LetterState.REPLAYING)

    # What the request reads lies in the log behind the letter, where it may not age a row.
    end = bench.log.write(BAD, "+R(9,late,z)")
    life.came["r1"] = True
    life.process(end - 10)
    assert life.of(BAD)[0].state is LetterState.REPLAYED
    assert life.state(BAD) == "failing", "the rows came to the log, and not yet to the table"
    life.process(end)
    assert life.state(BAD) == "live"
    assert bench.rows(BAD)[(9, "late", "z")] == 1

    bench.log.write(BAD, POISON.format(key=10))
    life.process(bench.log.scn)
    _, other = life.of(BAD)
    life.letters.update(other, state=LetterState.REPLAYING, request="r2")
    life.came["r2"] = False
    life.process(bench.log.write(BAD, "+I(3,e,f)"))
    assert life.of(BAD)[1].state is LetterState.WAITING
    assert "r2" in life.of(BAD)[1].reason
    life.applier.close()


@req("C67")
@pytest.mark.parametrize(
    "place", ["letters.rows_written", "letters.put", "apply.before_manifest", "apply.after_commit"]
)
def test_a_crash_at_any_step_leaves_one_letter_and_the_same_rows(bench: Bench, place: str) -> None:
    begun(bench, BAD)
    end = packed(bench, BAD, f"+I(2,c,d) | {POISON.format(key=9)} | +I(3,e,f)")

    def crash() -> None:
        raise Crash

    life = Life(bench)
    life.applier.process(life.scn, end)
    arm(place, crash)
    with pytest.raises(Crash):
        life.process(end)
    disarm()
    life.applier.close()
    again = Life(bench)
    again.process(end)
    assert bench.rows(BAD) == model(BAD, "+I(1,a,b) +I(2,c,d) +I(3,e,f)")
    assert [letter.scn for letter in again.of(BAD)] == [end - 10]
    assert again.state(BAD) == "failing"
    again.applier.close()


def test_what_was_discarded_stays_out_when_its_table_is_behind_it(bench: Bench) -> None:
    """The table's own word is older than the letter where nothing was committed behind it."""
    begun(bench, BAD)
    end = bench.log.write(BAD, POISON.format(key=9))
    life = Life(bench)
    life.process(end)
    life.letters.update(life.of(BAD)[0], state=LetterState.DISCARDED)
    life.applier.close()
    for manifest in bench.frontier.scns()[1:]:
        local(bench.frontier.folder / f"{manifest:020d}.json").unlink()
    again = Life(bench)
    again.applier.process(again.scn, bench.log.write(BAD, "+I(2,c,d)"))
    assert not again.applier.failing
    assert bench.rows(BAD) == model(BAD, "+I(1,a,b) +I(2,c,d)")
    again.applier.close()


def test_without_a_key_a_row_that_was_never_there_is_put_aside(bench: Bench) -> None:
    begun(bench, BAG)
    packed(bench, BAG, "+I(2,b) | -D(7,never) | -D(1,a) +I(3,c)")
    life = Life(bench)
    life.process(bench.log.scn)
    assert bench.rows(BAG) == Counter({(2, "b"): 1, (3, "c"): 1})
    assert [letter.error["name"] for letter in life.of(BAG)] == ["NegativeCount"]
    life.applier.close()


@req("C67")
@pytest.mark.parametrize("seed", [1, 2, pytest.param(3, marks=pytest.mark.long)])
def test_of_random_histories_exactly_the_poisoned_transactions_are_missing(
    bench: Bench, seed: int
) -> None:
    random = Random(seed)
    begun(bench, BAD)
    kept, poisoned, parts = ["+I(1,a,b)"], [], []
    for place in range(24):
        part = f"+I({100 + place},v{place},w) " + random.choice(["", f"=U(1,u{place},?)"])
        if random.random() < 0.25:
            poisoned.append(bench.log.scn + 10 * (place + 1))
            part += f" {POISON.format(key=1_000 + place)}"
        else:
            kept.append(part)
        parts.append(part)
    end = packed(bench, BAD, "|".join(parts))
    life = Life(bench)
    for cut in sorted({*random.sample(range(life.scn + 10, end, 10), 2), end}):
        life.process(cut)
        if random.random() < 0.5:
            life.applier.close()
            life = Life(bench)
    assert [letter.scn for letter in life.of(BAD)] == poisoned
    assert bench.rows(BAD) == model(BAD, *kept)
    life.applier.close()


def test_a_transaction_that_tells_of_the_shape_that_the_target_has_is_put_aside(
    bench: Bench,
) -> None:
    """A source tells of a table's shape with its first change after each start; that is no reason to wait."""
    begun(bench, BAD)
    rows = parse_history("=U(9,x,?)", bench.log.following).rows
    body = Body(bench.log.registry.put(BAD), BAD.table, change_batch(BAD, rows))
    told = SystemEvent(
        bench.log.following, 0, SystemKind.SCHEMA, BAD.table, {"schema_id": BAD.schema_id}
    )
    life = Life(bench)
    life.applier.process(life.scn, bench.log.batch(body, events=(told,)))
    for _ in range(3):
        life.now += 100
        life.applier.retry(bench.log.scn)
    assert len(life.of(BAD)) == 1
    life.applier.close()


def test_a_change_of_shape_is_no_letter(bench: Bench) -> None:
    begun(bench, BAD)
    *columns, last = BAD.columns
    other = replace(BAD, columns=(*columns, replace(last, type=pa.binary(), source_type="bytea")))
    bench.log.announce(other)
    life = Life(bench)
    life.applier.process(life.scn, bench.log.write(other, "+I(2,c,d)"))
    life.now += 100
    life.applier.retry(bench.log.scn)
    assert [type(error).__name__ for error in life.applier.failing] == ["IncompatibleSchemaChange"]
    assert not life.of(BAD)
    life.applier.close()


def test_a_letter_that_does_not_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "public.t"
    folder.mkdir()
    (folder / "1.json").write_text("{")
    with pytest.raises(StateError, match=r"1\.json does not read"):
        DeadLetterStore(tmp_path).all()
