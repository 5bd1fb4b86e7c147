"""The client library: a relay's stream as callbacks or by iteration, without Spark, drivers or server parts."""

from __future__ import annotations

from headrace.client.checkpoints import (
    Checkpoints,
    FileCheckpoints,
    NoCheckpoints,
    SqlCheckpoints,
)
from headrace.client.consumer import Batch, Consumer, Event, Result, Window
from headrace.client.dead_letters import read_dead_letters
from headrace.client.group import Group
from headrace.client.group_share import Partition
from headrace.client.group_sql import SqlGroupStore
from headrace.client.group_store import GroupStore
from headrace.client.http import HttpSettings
from headrace.client.iterator import IteratedWindow
from headrace.client.relays import Backoff
from headrace.client.settings import Settings
from headrace.client.states import State, Status
from headrace.client.subscription import Subscription
from headrace.client.together import Together

__all__ = [
    "Backoff",
    "Batch",
    "Checkpoints",
    "Consumer",
    "Event",
    "FileCheckpoints",
    "Group",
    "GroupStore",
    "HttpSettings",
    "IteratedWindow",
    "NoCheckpoints",
    "Partition",
    "Result",
    "Settings",
    "SqlCheckpoints",
    "SqlGroupStore",
    "State",
    "Status",
    "Subscription",
    "Together",
    "Window",
    "read_dead_letters",
]
