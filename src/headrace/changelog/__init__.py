"""The change log: durable blocks on disk between the one capture that writes and all who read."""

from __future__ import annotations

from headrace.changelog.config import ChangeLogSettings
from headrace.changelog.jobs import jobs, register_job, unregister_job
from headrace.changelog.reader import ChangeLogReader
from headrace.changelog.refs import BlockRef
from headrace.changelog.require import require
from headrace.changelog.stretches import Spot, Stretch, StretchReader
from headrace.changelog.tail import Tail
from headrace.changelog.writer import ChangeLogWriter

__all__ = [
    "BlockRef",
    "ChangeLogReader",
    "ChangeLogSettings",
    "ChangeLogWriter",
    "Spot",
    "Stretch",
    "StretchReader",
    "Tail",
    "jobs",
    "register_job",
    "require",
    "unregister_job",
]
