"""What capture does without, for it answers in milliseconds.

pyarrow imports pandas, where it is installed, before it makes its first array: capture would pay with start-up time and
memory for a library that Spark needs and capture never touches. And Python's collector would walk over every imported
module each time it looks for garbage.
"""

from __future__ import annotations

import gc
import importlib.abc
import sys

__all__ = ["leave_to_stay", "without_pandas"]


class _NoPandas(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)


def without_pandas() -> None:
    """Make the import of pandas fail from here on, unless it has happened."""
    import polars as pl  # noqa: F401 - asks for pandas when it is imported, and takes no for an error

    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())


def leave_to_stay() -> None:
    """Keep the collector of garbage from looking again at what exists by now."""
    gc.collect()
    gc.freeze()
