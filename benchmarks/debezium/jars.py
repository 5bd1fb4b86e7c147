"""The jars of Debezium's embedded engine: fetched the way the Delta jars are, into a cache folder of their own.

``python -m benchmarks.debezium.jars`` fetches what is missing; ``--lock VERSION`` resolves another version and
writes ``jars.lock`` anew. ``HEADRACE_CACHE`` and ``HEADRACE_JAR_REPOSITORY`` mean what they mean for Delta.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

from headrace.spark import jars
from headrace.spark.jars import Jar

__all__ = ["LOCK", "VERSION", "debezium_jars"]

LOCK = Path(__file__).with_name("jars.lock")
_ROOTS = ("debezium-embedded", "debezium-connector-postgres")
_HEAD = (
    "# SHA-256 and coordinate of every jar of Debezium's embedded engine with its PostgreSQL connector.\n"
    "# Written by `python -m benchmarks.debezium.jars --lock VERSION`; do not edit.\n"
)


def _locked() -> list[Jar]:
    return jars.parse_lock(LOCK.read_text(encoding="utf-8"))


VERSION = next(
    jar.coordinate.rpartition(":")[2] for jar in _locked() if f":{_ROOTS[0]}:" in jar.coordinate
)
"""Of Debezium; 3.6.3.Final is the newest 3.x of which the repository holds every part."""


def debezium_jars() -> list[Path]:
    """Return the jars, fetched if need be.

    Raises:
        JarsUnavailable: one is missing and cannot be fetched, or its hash is wrong.
    """
    return jars.fetched(_locked(), (), folder="debezium", asked=_roots(VERSION))


def _roots(version: str) -> list[str]:
    return [f"io.debezium:{name}:{version}" for name in _ROOTS]


def write_lock(version: str) -> int:
    """Resolve a version with everything it needs, write the lock, and return the number of jars."""
    with tempfile.TemporaryDirectory(prefix="headrace-debezium-") as work:
        brought = jars.resolve(_roots(version), Path(work), ())
        # Where the resolver keeps its copies, the folders say what the file names leave open.
        kept = {path.name: path for path in (brought.parent / "cache").glob("*/*/*/*.jar")}
        lines = []
        for path in sorted(kept.values()):
            group, name = path.parts[-4], path.parts[-3]
            own = path.stem.removeprefix(f"{name}-")
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{digest} {group}:{name}:{own}\n")
    LOCK.write_text(_HEAD + "".join(lines), encoding="utf-8")
    return len(lines)


def main() -> int:
    """Fetch the jars, or write the lock."""
    parser = argparse.ArgumentParser(prog="benchmarks.debezium.jars", description=__doc__)
    parser.add_argument("--lock", metavar="VERSION", help="resolve this version and write the lock")
    given = parser.parse_args()
    if given.lock:
        print(f"{write_lock(given.lock)} jars in {LOCK.name}")
    else:
        found = debezium_jars()
        print(f"{len(found)} jars of Debezium {VERSION} in {found[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
