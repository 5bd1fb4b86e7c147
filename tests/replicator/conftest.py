"""One embedded server for the tests of verify, a database for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.replicator import verify as verify_module
from headrace.testing.postgres import EmbeddedPostgres
from tests.replicator.verify_bench import Bench


@pytest.fixture(scope="session")
def verify_server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as server:
        yield server


@pytest.fixture
def bench(
    verify_server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    # Nothing but the test writes the log: when it stands still there is nothing to wait for.
    monkeypatch.setattr(verify_module, "_QUIET_S", 0.2)
    bench = Bench(verify_server.create_database("verify"), tmp_path)
    yield bench
    bench.close()
    verify_server.drop_database("verify")
