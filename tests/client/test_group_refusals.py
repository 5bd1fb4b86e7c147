"""What a group refuses: members that mean another one, and what no group can be."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from headrace.client import Consumer, Group, GroupStore, SqlGroupStore
from headrace.client.group_state import GroupState
from headrace.errors import ConfigError
from headrace.testing.group import CutGroupStore
from tests.changelog.windows import TABLE, window
from tests.client.grouping import GROUP_SETTINGS
from tests.client.members import ROWS
from tests.waiting import until


@pytest.mark.parametrize(
    "options", [{"by": "mod"}, {"filter": {"tables": ["public.*"]}}], ids=["by", "filter"]
)
def test_a_member_that_wants_something_else_is_refused(log, members, options):
    log.register(TABLE)
    log.append(window(1, ROWS))
    members.join()
    members.settled(4, 1)
    other = members.join(**options)
    members.threads[other.member].join(60)
    (error,) = members.failed
    assert isinstance(error, ConfigError)
    assert json.dumps(sorted(options)[0]).strip('"') in str(error)
    members.live.remove(other)
    until(lambda: members.shares() == [4], "the group goes on")


def test_a_member_that_begins_at_the_same_time_as_another_one_means_the_same_or_is_refused(
    log, relay, members
):
    """Who makes the group first says what it is; the other one finds that out before it is a member."""
    log.register(TABLE)
    log.append(window(1, ROWS))

    class Faster(CutGroupStore):
        def create(self, group: str, state: GroupState) -> None:
            super().create(group, replace(state, definition="another"))
            super().create(group, state)

    store = Faster(members.store)
    group = Group(relay, "shop", lambda _: Consumer(), store, "g", settings=GROUP_SETTINGS)
    with pytest.raises(ConfigError, match="shares another, and this member"):
        group.run()
    state = members.store.read("g")
    assert state is not None
    assert state.members == {}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"partitions": 0}, "0 partitions"),
        ({"lease_s": 0}, "lease_s"),
        ({"by": "range"}, "'range'"),
        ({"filter": {"partition": {"by": "mod", "count": 2, "take": [0]}}}, "partition"),
    ],
)
def test_what_no_group_can_be_is_refused(tmp_path, options, named):
    store: GroupStore = SqlGroupStore(f"sqlite:///{tmp_path}/group.db")
    with pytest.raises(ConfigError, match=named):
        Group("http://127.0.0.1:1", "shop", lambda _: Consumer(), store, "g", **options)


def test_a_member_that_finds_no_relay_ends_when_it_is_stopped(tmp_path):
    store = SqlGroupStore(f"sqlite:///{tmp_path}/group.db")
    group = Group(
        "http://127.0.0.1:1", "shop", lambda _: Consumer(), store, "g", settings=GROUP_SETTINGS
    )
    thread = threading.Thread(target=group.run, daemon=True)
    thread.start()
    group.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert store.read("g") is None
