"""``headrace version``."""

from __future__ import annotations

import contextlib
import json
import platform
from importlib import metadata

import typer

from headrace import __version__
from headrace.cli.output import console
from headrace.cli.server import AsJson

__all__ = ["version"]


def version(as_json: AsJson = False) -> None:
    """Print the versions of headrace and of what it stands on."""
    found = {"headrace": __version__, "python": platform.python_version()}
    for package in ("pyspark", "pyarrow", "psycopg"):
        # Who only consumes has none of the platform.
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, number in found.items():
        console.print(f"{name} {number}")
