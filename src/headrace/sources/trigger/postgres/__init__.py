"""Triggers on PostgreSQL: transactions are told apart by their ids, and the clock is one of snapshots."""

from headrace.sources.trigger.postgres.source import PostgresTriggerSource

__all__ = ["PostgresTriggerSource"]
