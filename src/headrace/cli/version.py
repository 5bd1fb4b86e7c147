"""``headrace version``."""

from __future__ import annotations

import platform
from importlib import metadata

from headrace import __version__
from headrace.cli.output import console

__all__ = ["version"]


def version() -> None:
    """Print the versions of headrace and of what it stands on."""
    console.print(f"headrace {__version__}")
    console.print(f"python {platform.python_version()}")
    for package in ("pyspark", "pyarrow", "psycopg"):
        console.print(f"{package} {metadata.version(package)}")
