"""``headrace group``: looked at and steered from beside its members."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.client import SqlGroupStore
from headrace.client.group_begin import defined
from headrace.client.group_state import GroupState, begun, turn
from headrace.wire.place import Place
from tests.changelog.windows import TABLE, window
from tests.client.conftest import log, relay

__all__ = ["log", "relay"]


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["group", *words], catch_exceptions=False)


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Return a database with a group of two partitions, of which a member owns both."""
    url = f"sqlite:///{tmp_path}/groups.db"
    kept = SqlGroupStore(url)
    kept.create("mail", begun(defined("shop", "hash", {}), 2, Place(9)))
    kept.change("mail", lambda state, now_us: turn(state, "m", now_us, 10**9))
    return url


def state_in(store: str) -> GroupState:
    state = SqlGroupStore(store).read("mail")
    assert state is not None
    return state


def test_a_group_is_shown_to_people_and_to_programs(store):
    shown = call("show", store, "mail")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["0", "9", "m"],
        ["1", "9", "m"],
    ]
    said = json.loads(call("show", store, "mail", "--json").stdout)
    assert said["definition"]["source"] == "shop"
    assert [(one["place"], one["owner"]) for one in said["partitions"]] == [("9", "m")] * 2


@pytest.mark.parametrize(("to", "scn"), [("4", 4), ("oldest", 0), ("newest", 2)])
def test_a_group_is_rewound_from_beside_its_members(log, relay, store, to, scn):
    log.register(TABLE)
    log.append(window(1), window(2))
    asked = call("rewind", store, "mail", relay, "--to", to)
    assert asked.exit_code == 0, asked.output
    assert state_in(store).rewind == scn
    assert f"rewind to SCN: {scn}" in call("show", store, "mail").stdout


def test_a_group_is_resized_from_beside_its_members(store):
    assert call("resize", store, "mail", "--partitions", "5").exit_code == 0
    assert state_in(store).target == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "STORE", "nail"), "There is no group nail"),
        (("show", "sqlite:no", "mail"), "no address of a database"),
        (("show", "env:NOTHING_THERE", "mail"), "NOTHING_THERE"),
        (("rewind", "STORE", "mail", "--to", "oldest"), "only a relay knows"),
        (("rewind", "STORE", "mail", "--to", "soon"), "--to: 'soon'"),
        (("resize", "STORE", "mail", "--partitions", "0"), "0 partitions"),
    ],
)
def test_what_cannot_be_is_refused_by_name(store, words, said):
    done = call(*(store if word == "STORE" else word for word in words))
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert state_in(store).target is None
