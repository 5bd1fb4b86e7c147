"""Fixtures with a real object store: a server for the session, an empty ``prefix`` for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from headrace.store import ObjectPath
from headrace.testing.fault_proxy import FaultProxy
from headrace.testing.object_store import ObjectServer

__all__ = ["object_server", "prefix", "proxy"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    with ObjectServer() as server:
        yield server


@pytest.fixture
def prefix(object_server: ObjectServer) -> ObjectPath:
    return object_server.place(f"test {next(_numbers)}")


@pytest.fixture
def proxy(object_server: ObjectServer) -> Iterator[FaultProxy]:
    with FaultProxy(object_server.port) as between:
        yield between
