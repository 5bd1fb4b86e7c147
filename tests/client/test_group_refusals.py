"""What a group refuses: members that mean another one, and what no group can be."""

from __future__ import annotations

import json
import threading

import pytest

from headrace.client import Consumer, Group, GroupStore, SqlGroupStore
from headrace.errors import ConfigError
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
