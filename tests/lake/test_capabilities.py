"""What a target lacks is refused by name, without Spark."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigError
from headrace.lake.capabilities import DELTA, DUCKDB, MERGE, POSTGRES, Capabilities, refuse_unkept
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


@pytest.mark.parametrize("target", [MERGE, DUCKDB, POSTGRES], ids=lambda one: one.name)
def test_a_mode_that_the_target_lacks_is_refused_by_name(target: Capabilities) -> None:
    given = (("shop.*", TableSettings()), ("public.t", TableSettings(Mode.APPEND)))
    refuse_unkept(given, DELTA)
    with pytest.raises(
        ConfigError, match=rf"tables\.public\.t: the target {target.name} has no mode append"
    ) as caught:
        refuse_unkept(given, target)
    assert caught.value.next_step == "choose mirror for the table, or another target."


@pytest.mark.parametrize("asked", SETTINGS)
def test_a_target_that_keeps_rows_as_they_are_refuses_column_settings(asked: TableSettings) -> None:
    given = (("shop.*", TableSettings()), ("public.t", asked))
    refuse_unkept(given, DELTA)
    with pytest.raises(ConfigError, match=r"tables\.public\.t: the target duckdb has the source's"):
        refuse_unkept(given, DUCKDB)


@pytest.mark.parametrize(
    ("policies", "named"),
    [
        (NEW, "incompatible: new_column"),
        (RECOPY, "incompatible: recopy"),
        (KEEP, "dropped_column: keep"),
    ],
)
@pytest.mark.parametrize("target", [MERGE, DUCKDB, POSTGRES], ids=lambda one: one.name)
def test_a_policy_that_the_target_lacks_is_refused_by_name(
    target: Capabilities, policies: Policies, named: str
) -> None:
    refuse_unkept((("*", TableSettings(policies=policies)),), DELTA)
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
