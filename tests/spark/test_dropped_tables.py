"""What becomes of the target of a table that was dropped or renamed, by policy."""

from __future__ import annotations

import pytest

from headrace.lake.policies import Policies
from headrace.model.block import SystemKind
from headrace.observe.failpoints import arm, disarm
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.policies import (
    DROP,
    OLD,
    Bench,
    Crash,
    T,
    announce,
    begun,
    crash,
)

pytestmark = pytest.mark.spark


@req("C30", "C-11")
def test_a_dropped_table_goes_by_policy_and_comes_back_by_itself(policed: Bench) -> None:
    policed.policies(DROP)
    begun(policed)
    other = table_of(2, name="other")
    policed.run(policed.log.write(other, "+I(1,a)"))
    gone = policed.log.tell(SystemKind.DROP_TABLE, T, identity="7")
    applier = policed.run(gone)
    assert not (policed.lake / "public" / "t").exists()
    assert (policed.entry().state, policed.entry().version) == ("left", -1)
    assert "dropped at the source" in policed.entry().reason
    said = applier.status.tables[str(T)].error
    assert said is not None
    assert said["next_step"].startswith("there is no target table")
    # A restart knows it, and holds nothing back for it.
    assert policed.run(policed.log.write(other, "+I(2,b)")).status.frontier_scn == policed.log.scn
    policed.log.tell(SystemKind.TRUNCATE, T, anew=True)
    announce(policed, OLD)
    policed.run(policed.dumped(OLD, "+R(8,a8,b8)", "second"))
    assert (policed.rows(), policed.state()) == ([{"k": 8, "a": "a8", "b": "b8"}], "live")


@pytest.mark.parametrize("name", ["apply.before_manifest", "apply.after_manifest"])
def test_a_crash_around_the_end_of_a_table_is_made_good(policed: Bench, name: str) -> None:
    policed.policies(DROP)
    begun(policed)
    gone = policed.log.tell(SystemKind.DROP_TABLE, T, identity="7")
    arm(name, crash)
    with pytest.raises(Crash):
        policed.run(gone)
    disarm()
    assert (policed.lake / "public" / "t").exists()
    policed.run(gone)
    assert policed.run(policed.log.write(table_of(2, name="other"), "+I(1,a)")).failing == []
    assert not (policed.lake / "public" / "t").exists()
    assert policed.state() == "left"


@req("C30")
@pytest.mark.parametrize("kind", ["kept", "renamed", "in one batch made anew"])
def test_a_table_stays_when_it_is_not_surely_gone(policed: Bench, kind: str) -> None:
    policed.policies(Policies() if kind == "kept" else DROP)
    begun(policed)
    before = policed.rows()
    if kind == "renamed":
        policed.log.tell(SystemKind.RENAME_TABLE, T, identity="7", to="public.u")
    else:
        policed.log.tell(SystemKind.DROP_TABLE, T, identity="7")
    if kind == "in one batch made anew":
        policed.log.tell(SystemKind.TRUNCATE, T, anew=True)
        policed.run(policed.log.scn)
        assert (policed.rows(), policed.state()) == ([], "copying")
        return
    policed.run(policed.log.scn)
    assert (policed.rows(), policed.state()) == (before, "left")
