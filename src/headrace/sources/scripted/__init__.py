"""A database in memory whose every step is chosen by the caller: for histories, crash points and demonstrations."""

from headrace.sources.scripted.database import ScriptedDatabase, Transaction
from headrace.sources.scripted.source import ScriptedSource

__all__ = ["ScriptedDatabase", "ScriptedSource", "Transaction"]
