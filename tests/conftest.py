"""Marks, the ``--long`` option, and the check that tests name only known requirements."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hypothesis
import pytest

from tools.check_requirements import known_ids

DEBIAN_POSTGRES = Path("/usr/lib/postgresql/15/bin/postgres")

MARKERS = (
    "req(*ids): the requirements of docs/requirements.md that this test proves",
    "long: takes minutes; runs only with --long",
    "spark: starts a Spark session",
    "postgres: starts the embedded PostgreSQL",
    "debian_postgres: needs Debian's PostgreSQL 15; skipped where it is not installed",
)

# Spark's workers are started by name otherwise, and would miss the packages of this environment.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("headrace", deadline=None)
hypothesis.settings.load_profile("headrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--long``."""
    parser.addoption("--long", action="store_true", help="also run the tests marked long")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, so that a misspelt one is an error."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse unknown requirement ids, then leave out what cannot or shall not run here."""
    _check_requirements(items)
    _skip(items, "long", "long: run with --long", unless=config.getoption("--long"))
    _skip(
        items,
        "debian_postgres",
        f"{DEBIAN_POSTGRES} is missing: install Debian's postgresql-15",
        unless=DEBIAN_POSTGRES.exists(),
    )


def _check_requirements(items: list[pytest.Item]) -> None:
    known = known_ids()
    unknown = {
        f"{item.nodeid} names {id_}"
        for item in items
        for mark in item.iter_markers("req")
        for id_ in mark.args
        if id_ not in known
    }
    if unknown:
        raise pytest.UsageError(
            "not in docs/requirements.md: " + "; ".join(sorted(unknown)),
        )


def _skip(items: list[pytest.Item], marker: str, reason: str, *, unless: bool) -> None:
    if unless:
        return
    skip = pytest.mark.skip(reason=reason)
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(skip)
