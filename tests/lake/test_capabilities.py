"""What a target lacks is refused by name, without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import ConfigError
from headrace.lake.capabilities import (
    DELTA,
    DUCKDB,
    MERGE,
    PARQUET,
    POSTGRES,
    Capabilities,
    refuse_unkept,
)
from headrace.lake.modes import Mode
from headrace.lake.policies import Dropped, Incompatible, Policies
from headrace.lake.settings import TableSettings

NEW = Policies(incompatible=Incompatible.NEW_COLUMN)
RECOPY = Policies(incompatible=Incompatible.RECOPY)
KEEP = Policies(dropped_column=Dropped.KEEP)
SETTINGS = [
    TableSettings(select=("c1",)),
    TableSettings(drop=("c1",)),
    TableSettings(rename=(("c1", "x"),)),
    TableSettings(mask=(("c1", "'***'"),)),
    TableSettings(compute=(("loud", "upper(c1)"),)),
    TableSettings(where="k > 3"),
]


ALL = [DELTA, MERGE, DUCKDB, POSTGRES, PARQUET]


@pytest.mark.parametrize("target", [MERGE, DUCKDB, POSTGRES, PARQUET], ids=lambda one: one.name)
def test_partitions_that_the_target_lacks_are_refused_by_name(target: Capabilities) -> None:
    mode = Mode.APPEND if target is PARQUET else Mode.MIRROR
    given = (("public.t", TableSettings(mode, partition_by=("day",))),)
    refuse_unkept(given, DELTA)
    with pytest.raises(
        ConfigError, match=rf"tables\.public\.t: the target {target.name} partitions no tables"
    ) as caught:
        refuse_unkept(given, target)
    assert caught.value.next_step == "take partition_by away, or choose another target."


@pytest.mark.parametrize("target", [MERGE, DUCKDB, POSTGRES, PARQUET], ids=lambda one: one.name)
def test_adoption_that_the_target_lacks_is_refused_by_name(target: Capabilities) -> None:
    mode = Mode.APPEND if target is PARQUET else Mode.MIRROR
    given = (("public.t", TableSettings(mode, adopted=True)),)
    with pytest.raises(
        ConfigError, match=rf"tables\.public\.t: the target {target.name} adopts no dumps"
    ):
        refuse_unkept(given, target)


@pytest.mark.parametrize("settings", [*SETTINGS, TableSettings(Mode.HISTORY)], ids=str)
def test_adopted_tables_hold_the_sources_own_rows(settings: TableSettings) -> None:
    refuse_unkept((("public.t", TableSettings(adopted=True, partition_by=("c1",))),), DELTA)
    with pytest.raises(ConfigError, match="first_copy: adopted needs the source's own rows"):
        refuse_unkept((("public.t", replace(settings, adopted=True)),), DELTA)


def test_partitions_are_neither_a_shape_nor_a_setting_of_columns() -> None:
    asked = TableSettings(partition_by=("day",))
    assert not asked.of_columns
    assert asked.shape == ""


@pytest.mark.parametrize(
    ("target", "has", "lacks"),
    [(MERGE, Mode.MIRROR, Mode.APPEND), (PARQUET, Mode.APPEND, Mode.HISTORY)],
)
def test_a_mode_that_the_target_lacks_is_refused_by_name(
    target: Capabilities, has: Mode, lacks: Mode
) -> None:
    given = (("shop.*", TableSettings(has)), ("public.t", TableSettings(lacks)))
    for other in (DELTA, DUCKDB, POSTGRES):
        refuse_unkept(given, other)
    with pytest.raises(
        ConfigError,
        match=rf"tables\.public\.t: the target {target.name} has no mode {lacks.value}",
    ) as caught:
        refuse_unkept(given, target)
    assert caught.value.next_step == f"choose {has.value} for the table, or another target."


@pytest.mark.parametrize("asked", SETTINGS)
@pytest.mark.parametrize("target", ALL, ids=lambda one: one.name)
def test_column_settings_go_with_every_target(target: Capabilities, asked: TableSettings) -> None:
    mode = Mode.APPEND if target is PARQUET else Mode.MIRROR
    refuse_unkept((("public.t", replace(asked, mode=mode)),), target)


@pytest.mark.parametrize(
    ("target", "policies", "named"),
    [
        (MERGE, NEW, "incompatible: new_column"),
        (MERGE, KEEP, "dropped_column: keep"),
        (MERGE, RECOPY, "incompatible: recopy"),
    ],
)
def test_a_policy_that_the_target_lacks_is_refused_by_name(
    target: Capabilities, policies: Policies, named: str
) -> None:
    refuse_unkept((("*", TableSettings(policies=policies)),), DELTA)
    refuse_unkept((("*", TableSettings(policies=policies)),), DUCKDB)
    refuse_unkept((("*", TableSettings(policies=policies)),), POSTGRES)
    with pytest.raises(ConfigError, match=rf"^changes: the target {target.name} cannot do {named}"):
        refuse_unkept((("*", TableSettings(policies=policies)),), target)
    # What every target does is refused by none.
    refuse_unkept((("*", TableSettings(policies=Policies(dropped_table=Dropped.DROP))),), target)


@pytest.mark.parametrize("policies", [NEW, RECOPY, KEEP])
def test_policies_that_keep_columns_do_not_go_with_column_settings(policies: Policies) -> None:
    given = (("public.t", TableSettings(drop=("c1",), policies=policies)),)
    with pytest.raises(ConfigError, match=r"tables\.public\.t: .* does not go with select"):
        refuse_unkept(given, DELTA)


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.SOFT_DELETE, Mode.HISTORY])
def test_a_table_that_keeps_what_is_gone_is_never_copied_anew(mode: Mode) -> None:
    refuse_unkept((("public.t", TableSettings(mode, policies=NEW)),), DELTA)
    with pytest.raises(ConfigError, match=f"would throw away what the mode {mode.value} keeps"):
        refuse_unkept((("public.t", TableSettings(mode, policies=RECOPY)),), DELTA)
