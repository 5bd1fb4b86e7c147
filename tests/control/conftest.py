"""Databases and control planes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.replicator.control import leases
from headrace.replicator.control.database import Database
from headrace.replicator.control.records import Lease
from headrace.replicator.control.store import ControlStore
from tests.control.databases import KINDS, url_of
from tests.fixtures_postgres import database, postgres_server, sql

__all__ = ["database", "postgres_server", "sql"]


@pytest.fixture(params=KINDS)
def control_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path, request)


@pytest.fixture
def store(control_url: str) -> Iterator[ControlStore]:
    opened = Database(control_url)
    yield ControlStore(opened)
    opened.close()


@pytest.fixture
def lease(store: ControlStore) -> Lease:
    taken = leases.take(store.database, "me", 60)
    assert taken is not None
    return taken
