"""When maintenance has its turn, and whose it is: no Spark, and time that only work lets pass."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.errors import HeadraceError, TargetConflict
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import Rewritten
from headrace.model.schema import TableId
from headrace.spark.maintenance import Maintenance, MaintenanceSettings
from headrace.spark.targets.base import Target
from headrace.spark.targets.delta import DeltaTarget
from headrace.spark.targets.duckdb import DuckdbTarget
from headrace.spark.targets.merge import MergeTarget
from headrace.spark.targets.postgres import PostgresTarget

A, B, C = (TableId("public", name) for name in "abc")
Outcome = Rewritten | HeadraceError | None


class Lake:
    """Tables with so many pieces of work each, of two seconds; a negative number is one that cannot be worked on."""

    capabilities = SimpleNamespace(maintenance=True)

    def __init__(self, **work: int) -> None:
        self.work = {TableId("public", name): count for name, count in work.items()}
        self.now = 100.0
        self.turns: list[str] = []

    def maintain(
        self, keys: Mapping[TableId, tuple[str, ...]], _sizes: Sizes, most: int
    ) -> dict[TableId, Outcome]:
        found: dict[TableId, Outcome] = {}
        for table in keys:
            if most == 0:
                break
            if self.work[table] < 0:
                found[table] = TargetConflict("somebody else")
            elif self.work[table] == 0:
                found[table] = None
            else:
                self.work[table] -= 1
                most -= 1
                found[table] = Rewritten(8, "small", 4, 1, 40, 40)
                self.turns.append(table.name)
        self.now += 2.0 if any(isinstance(one, Rewritten) for one in found.values()) else 0.0
        return found

    def maintenance(self, load: float = 1.0, most: int = 1) -> Maintenance:
        settings = MaintenanceSettings(load=load)
        return Maintenance(
            cast(Target, self), settings, lambda _: ("k",), most, clock=lambda: self.now
        )


VERSIONS = {A: 7, B: 7, C: 7}


def test_tables_take_turns() -> None:
    lake = Lake(a=3, b=1, c=2)
    maintenance = lake.maintenance()
    for _ in range(8):
        maintenance.between_batches(VERSIONS)
        lake.now += 1
    assert lake.turns == ["a", "b", "c", "a", "c", "a"]


def test_as_many_tables_at_once_as_may_be() -> None:
    lake = Lake(a=2, b=2, c=2)
    assert lake.maintenance(most=2).between_batches(VERSIONS).keys() == {A, B}


@pytest.mark.parametrize(("load", "rest"), [(1.0, 0.0), (0.5, 2.0), (0.1, 18.0)])
def test_it_rests_for_as_long_as_its_share_of_time_asks(load: float, rest: float) -> None:
    lake = Lake(a=9, b=0, c=0)
    maintenance = lake.maintenance(load)
    assert maintenance.between_batches(VERSIONS)
    lake.now += rest - 0.01
    assert not maintenance.between_batches(VERSIONS) or not rest
    lake.now += 0.02
    assert maintenance.between_batches(VERSIONS)


def test_a_table_in_order_is_looked_at_when_it_has_another_version() -> None:
    lake = Lake(a=0, b=0, c=0)
    maintenance = lake.maintenance()
    assert maintenance.between_batches({A: 7}) == {}
    assert not maintenance.is_due
    lake.now += 1
    lake.work[A] = 1
    assert maintenance.between_batches({A: 7}) == {}
    lake.now += 1
    assert maintenance.between_batches({A: 8}).keys() == {A}


def test_a_table_that_fails_rests_and_holds_no_other_up() -> None:
    lake = Lake(a=-1, b=1, c=1)
    maintenance = lake.maintenance()
    assert maintenance.between_batches(VERSIONS).keys() == {B}
    assert maintenance.between_batches(VERSIONS).keys() == {C}
    lake.work[A] = 1
    assert maintenance.between_batches(VERSIONS) == {}
    lake.now += 600
    assert maintenance.between_batches(VERSIONS).keys() == {A}


def test_tables_that_may_not_be_worked_on_are_passed_over() -> None:
    lake = Lake(a=1, b=1, c=0)
    assert lake.maintenance().between_batches({B: 7}).keys() == {B}


def test_who_can_do_it_says_so() -> None:
    can: dict[Any, bool] = {
        kind: kind.capabilities.maintenance
        for kind in (DeltaTarget, MergeTarget, DuckdbTarget, PostgresTarget)
    }
    assert [kind for kind, yes in can.items() if yes] == [DeltaTarget]
    lake = Lake(a=1)
    lake.capabilities = SimpleNamespace(maintenance=False)
    assert lake.maintenance().between_batches({A: 7}) == {}
    assert lake.turns == []
