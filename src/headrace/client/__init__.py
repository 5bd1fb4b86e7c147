"""The client library: a relay's stream as callbacks or by iteration, without Spark, drivers or server parts."""

from __future__ import annotations

from headrace.client.checkpoints import (
    Checkpoints,
    FileCheckpoints,
    NoCheckpoints,
    SqlCheckpoints,
)
from headrace.client.consumer import Batch, Consumer, Event, Result, Window

__all__ = [
    "Batch",
    "Checkpoints",
    "Consumer",
    "Event",
    "FileCheckpoints",
    "NoCheckpoints",
    "Result",
    "SqlCheckpoints",
    "Window",
]
