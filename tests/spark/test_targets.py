"""The decision table through every implementation of the target port, against the target in memory."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from headrace.errors import MissingBase, NegativeCount, TargetConflict
from headrace.fold import fold
from headrace.model.change import change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.testing.notation import change_batch, parse_history, table_of
from headrace.testing.target import ModelTable
from tests.requirements import req
from tests.spark.folded import GivenFolded, apply_one
from tests.spark.subjects import ALL, Subject

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

with_merge = pytest.mark.parametrize("subject", ALL, indirect=True)


class Pair:
    """A table and the model of it; every batch goes to both."""

    def __init__(self, subject: Subject, schema: TableSchema) -> None:
        self.schema = schema
        self.subject = subject
        self.target = subject.target
        self.model = ModelTable(schema)
        self.scn = 0

    def apply(self, history: str, *, complete: bool = True) -> None:
        parsed = parse_history(history, self.scn + 1)
        self.scn = max(
            scn for scn in [row[0] for row in parsed.rows] + [at[0] for at in parsed.truncates]
        )
        folded = fold(self.schema, [change_batch(self.schema, parsed.rows)], parsed.truncates)
        self.target.evolve(self.schema)
        given = GivenFolded(self.target.session(self.schema.table), folded)
        before = self.target.state(self.schema.table)
        after = apply_one(self.target, self.schema, given, self.scn, complete=complete)
        assert before is not None
        assert (after.version, after.applied_scn) == (before.version + 1, self.scn)
        self.model.apply(folded, self.scn, complete=complete)

    def content(self) -> Counter[tuple[object, ...]]:
        return self.subject.content(self.schema)


@req("P18", "C30", "C-11")
@with_merge
def test_upsert_delete_and_truncate_keep_the_table_equal(subject: Subject) -> None:
    pair = Pair(subject, table_of(3, key=2))
    pair.apply("+I(1,a,x) +I(2,a,y) +I(3,.,z)")
    pair.apply("+U(1,a,X) -D(2,a) +I(4,a,w) +R(3,.,Z) -D(99,a)")
    assert pair.content() == pair.model.content()
    pair.apply("+I(5,a,q) T +I(6,a,r)")
    assert pair.content() == pair.model.content() == Counter({(6, "a", "r"): 1})


MISSING = (
    "=U(1,p1,?) | "  # patch in place
    "-U(2) +U(12,q1,?) | "  # moved, other cells from the old key
    "-U(3) +U(93,?,?) -U(4) +U(3,?,?) -U(93) +U(4,?,?) | "  # swap
    "-D(6) -U(5) +U(6,r1,?) | "  # moved into a deleted key
    "-D(7) | +R(8,s1,s2) =U(8,t1,?) | =U(9,?,u2) =U(9,v1,?) | +I(20,w1,w2) =U(20,?,x2)"
)


@req("T2")
def test_missing_cells_come_from_the_row_before_the_batch(subject: Subject) -> None:
    pair = Pair(subject, table_of(3))
    pair.apply(" ".join(f"+I({key},a{key},b{key})" for key in range(1, 11)))
    pair.apply(MISSING)
    assert pair.content() == pair.model.content()


def test_partial_rows_without_base_wait_for_the_dump(subject: Subject) -> None:
    pair = Pair(subject, table_of(3))
    pair.apply("+I(1,a,b) +I(2,c,d)", complete=False)
    pair.apply("=U(50,x,?) | -U(60) +U(1,y,?) | =U(2,z,?)", complete=False)
    assert pair.content() == pair.model.content() == Counter({(2, "z", "d"): 1})


# How a base can be missing is the fold's matter and the same for all; each MERGE takes seconds.
@pytest.mark.parametrize(
    ("subject", "change"),
    [
        ("delta", "=U(50,x,?)"),
        ("delta", "-U(60) +U(1,y,?)"),
        ("delta", "-D(1) | =U(1,z,?)"),
        ("delta without vectors", "-U(60) +U(1,y,?)"),
        ("duckdb", "=U(50,x,?)"),
        ("duckdb", "-D(1) | =U(1,z,?)"),
        ("postgres", "-U(60) +U(1,y,?)"),
        ("postgres", "-D(1) | =U(1,z,?)"),
        ("merge", "-U(60) +U(1,y,?)"),
    ],
    indirect=["subject"],
)
def test_a_complete_table_names_the_missing_base(subject: Subject, change: str) -> None:
    pair = Pair(subject, table_of(3))
    pair.apply("+I(1,a,b)")
    version = pair.target.state(pair.schema.table)
    with pytest.raises(MissingBase) as caught:
        pair.apply(change)
    assert (caught.value.table, caught.value.key) == ("public.t", "(k)")
    assert caught.value.columns == ["c2"]
    assert pair.target.state(pair.schema.table) == version


@req("C50", "T15")
@with_merge
def test_a_table_without_key_is_a_multiset(subject: Subject) -> None:
    pair = Pair(subject, table_of(2, check=KeyCheck.NONE))
    pair.apply("+I(1,a) +I(1,a) +I(1,a) +I(2,.) +I(2,.) +I(3,b)")
    pair.apply("-D(1,a) -D(2,.) -U(3,b) +U(3,c) +I(1,d) +I(1,d)")
    assert pair.content() == pair.model.content()
    assert pair.content()[1, "a"] == 2
    pair.apply("+I(7,e) T +I(8,f) +I(8,f)")
    assert pair.content() == Counter({(8, "f"): 2})
    with pytest.raises(NegativeCount):
        pair.apply("-D(8,f) -D(8,f) -D(8,f)")
    assert pair.content() == Counter({(8, "f"): 2})


@req("T1", "C50")
def test_signed_zeros_are_different_rows(subject: Subject) -> None:
    schema = TableSchema(
        TableId("public", "f"), (Column("x", pa.float64(), "float8"),), (), KeyCheck.NONE
    )
    target = subject.target
    target.evolve(schema)
    session = target.session(schema.table)
    nan = float("nan")
    for scn, op, values in ((1, "+I", [0.0, -0.0, nan]), (2, "-D", [-0.0, nan])):
        columns = [[scn] * len(values), list(range(len(values))), [op] * len(values)]
        cells = [*columns, [None] * len(values), values]
        changes = pa.record_batch(
            [pa.array(c, f.type) for c, f in zip(cells, change_schema(schema), strict=True)],
            schema=change_schema(schema),
        )
        folded = fold(schema, [changes])
        apply_one(target, schema, GivenFolded(session, folded), scn, complete=True)
    assert [str(x) for x in subject.rows(schema)["x"].to_pylist()] == ["0.0"]


@req("P18")
@pytest.mark.parametrize("subject", ["delta", "duckdb", "postgres"], indirect=True)
def test_a_position_that_is_reached_is_not_committed_again(subject: Subject) -> None:
    pair = Pair(subject, table_of(3))
    pair.apply("+I(1,a,b)")
    folded = fold(pair.schema, [change_batch(pair.schema, parse_history("+I(2,c,d)").rows)])
    given = GivenFolded(pair.target.session(pair.schema.table), folded)
    with pytest.raises(TargetConflict, match="at SCN"):
        apply_one(pair.target, pair.schema, given, pair.scn, complete=True)
    assert pair.content() == Counter({(1, "a", "b"): 1})


@req("C30")
def test_a_table_that_is_dropped_is_gone_with_its_position_and_may_come_back(
    subject: Subject,
) -> None:
    pair = Pair(subject, table_of(3))
    pair.target.drop(pair.schema.table)
    pair.apply("+I(1,a,b)")
    other = table_of(3, name="other")
    pair.target.evolve(other)
    pair.target.drop(pair.schema.table)
    assert pair.target.state(pair.schema.table) is None
    assert subject.make().state(pair.schema.table) is None
    assert pair.target.state(other.table) is not None
    again = Pair(subject, pair.schema)
    again.apply("+I(2,c,d)")
    assert again.content() == Counter({(2, "c", "d"): 1})


@req("C86", "C89", "C38")
@with_merge
def test_everything_may_be_handed_over_twice(subject: Subject) -> None:
    """As after a crash between any two steps: tables, columns, rows and removals come again and change nothing."""
    first, second = table_of(2), table_of(3)
    other = table_of(2, name="other")
    target = subject.target
    target.drop(first.table)
    target.evolve(other)

    def twice(schema: TableSchema, history: str) -> None:
        made = target.evolve(schema)
        assert (target.evolve(schema), target.state(schema.table)) == (made, made)
        parsed = parse_history(history)
        scn = parsed.rows[-1][0]
        folded = fold(schema, [change_batch(schema, parsed.rows)], parsed.truncates)
        given = GivenFolded(target.session(schema.table), folded)
        after = apply_one(target, schema, given, scn, complete=True)
        rows = subject.content(schema)
        if subject.kind == "merge":
            # Delta itself passes over a position that it has.
            assert apply_one(target, schema, given, scn, complete=True) == after
        else:
            with pytest.raises(TargetConflict, match="at SCN"):
                apply_one(target, schema, given, scn, complete=True)
        # What was made is found again by whoever comes next, with its rows.
        found = subject.make().evolve(schema)
        assert (found.version, found.applied_scn) == (after.version, scn)
        assert subject.content(schema) == rows

    twice(first, "+I(1,a) | +I(2,b)")
    twice(second, "-D(1) | -D(1) | +I(3,c,d)")
    assert subject.content(second) == {(2, "b", None): 1, (3, "c", "d"): 1}
    for _ in range(2):
        target.drop(second.table)
        assert target.state(second.table) is None
    assert target.state(other.table) is not None
