"""A PostgreSQL database whose log may not be read: triggers write each change into tables of ours."""

from headrace.sources.trigger.source import TriggerSource

__all__ = ["TriggerSource"]
