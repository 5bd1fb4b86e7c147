"""headrace keeps copies of live databases correct and fresh.

It reads a database's log, merges full-state reads of the tables into it without locks, keeps the
merged stream in a change log, and folds that with Spark into Delta tables.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
