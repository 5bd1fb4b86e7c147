"""The jars of Debezium's embedded engine: fetched the way the Delta jars are, into a cache folder of their own.

``python -m benchmarks.debezium.jars CONNECTOR`` fetches what is missing; ``--lock VERSION`` resolves another version
and writes the lock of that connector anew. ``HEADRACE_CACHE`` and ``HEADRACE_JAR_REPOSITORY`` mean what they mean for
Delta.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

from headrace.spark import jars
from headrace.spark.jars import Jar

__all__ = ["CONNECTORS", "debezium_jars", "lock", "version"]

_ROOTS = {
    "postgres": ("debezium-embedded", "debezium-connector-postgres"),
    "mysql": ("debezium-embedded", "debezium-connector-mysql", "debezium-storage-file"),
}
CONNECTORS = tuple(_ROOTS)
"""Each has a lock and a version of its own: the newest 3.x of which the repository holds every part."""

_HEAD = (
    "# SHA-256 and coordinate of every jar of Debezium's embedded engine with its {connector} connector.\n"
    "# Written by `python -m benchmarks.debezium.jars {connector} --lock VERSION`; do not edit.\n"
)


def lock(connector: str) -> Path:
    """Return the file that names a connector's jars."""
    return Path(__file__).with_name(f"{connector}.lock")


def _locked(connector: str) -> list[Jar]:
    return jars.parse_lock(lock(connector).read_text(encoding="utf-8"))


def version(connector: str) -> str:
    """Return the version of Debezium that a connector is measured in."""
    embedded = f":{_ROOTS[connector][0]}:"
    return next(
        jar.coordinate.rpartition(":")[2]
        for jar in _locked(connector)
        if embedded in jar.coordinate
    )


def debezium_jars(connector: str) -> list[Path]:
    """Return the jars, fetched if need be.

    Raises:
        JarsUnavailable: one is missing and cannot be fetched, or its hash is wrong.
    """
    asked = _roots(connector, version(connector))
    return jars.fetched(_locked(connector), (), folder=f"debezium-{connector}", asked=asked)


def _roots(connector: str, version: str) -> list[str]:
    return [f"io.debezium:{name}:{version}" for name in _ROOTS[connector]]


def write_lock(connector: str, version: str) -> int:
    """Resolve a version with everything it needs, write the lock, and return the number of jars."""
    with tempfile.TemporaryDirectory(prefix="headrace-debezium-") as work:
        brought = jars.resolve(_roots(connector, version), Path(work), ())
        # Where the resolver keeps its copies, the folders say what the file names leave open.
        kept = {path.name: path for path in (brought.parent / "cache").glob("*/*/*/*.jar")}
        lines = []
        for path in sorted(kept.values()):
            group, name = path.parts[-4], path.parts[-3]
            own = path.stem.removeprefix(f"{name}-")
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{digest} {group}:{name}:{own}\n")
    text = _HEAD.format(connector=connector) + "".join(lines)
    lock(connector).write_text(text, encoding="utf-8")
    return len(lines)


def main() -> int:
    """Fetch the jars, or write the lock."""
    parser = argparse.ArgumentParser(prog="benchmarks.debezium.jars", description=__doc__)
    parser.add_argument("connector", choices=CONNECTORS)
    parser.add_argument("--lock", metavar="VERSION", help="resolve this version and write the lock")
    given = parser.parse_args()
    if given.lock:
        print(f"{write_lock(given.connector, given.lock)} jars in {lock(given.connector).name}")
    else:
        found = debezium_jars(given.connector)
        print(f"{len(found)} jars of Debezium {version(given.connector)} in {found[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
