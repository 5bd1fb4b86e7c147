"""Marks, the ``--long`` option, the order of work, and the check that tests name only known requirements."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from headrace.testing.mariadb_server import installed as mariadb_installed
from headrace.testing.mysql_server import installed as mysql_installed
from headrace.testing.object_store import server_program
from headrace.testing.postgres import EmbeddedPostgres
from tests.fixtures_read_back import READ_BACK, WORKED_ON
from tools.check_requirements import known_ids

TESTS = Path(__file__).parent
DEBIAN_POSTGRES = Path("/usr/lib/postgresql/15/bin/postgres")

LONGEST_FIRST = (
    "scenarios/test_random_histories.py",
    "spark/test_partitions.py",
    "e2e/test_kill.py",
    "e2e/test_migration.py",
    "e2e/test_metrics.py",
    "control/test_kills.py",
    "e2e/test_run_once.py",
    "e2e/test_bucket.py",
    "e2e/test_adopt.py",
    "faults/test_chaos.py",
    "integration/test_restart.py",
    "spark/test_targets.py",
    "spark/test_targets_in_time.py",
    "faults/test_warehouses.py",
    "e2e/test_serve.py",
    "e2e/test_stories.py",
    "e2e/test_warehouses.py",
    "lake/test_own_tables_in_spark.py",
    "e2e/test_policies.py",
    "e2e/test_modes.py",
    "spark/test_cluster.py",
    "integration/test_new_tables.py",
    "integration/test_debian_run.py",
    "e2e/test_demo.py",
    "e2e/test_tables_from_a_relay.py",
    "control/test_many.py",
    "scenarios/test_adopted_histories.py",
    "spark/test_as_of.py",
    "spark/test_job.py",
    "lake/test_spark_tables.py",
    "lake/test_clustered_in_spark.py",
    "spark/test_policies.py",
    "spark/test_copied_again.py",
    "spark/test_shaped_in_warehouses.py",
    "spark/test_modes_in_warehouses.py",
    "spark/test_copied_again_in_warehouses.py",
    "spark/test_apply.py",
    "spark/test_maintenance.py",
    "spark/test_modes.py",
    "faults/test_target.py",
    "e2e/test_steering.py",
    "e2e/test_dump_kills.py",
)
"""Files that take a good part of the whole time, begun first by workers that share the tests: none ends alone."""

SHORT_S = 1_200
"""How long a test may take that does not run with ``--long``, in seconds."""

MARKERS = (
    "req(*ids): the requirements of docs/requirements.md that this test proves",
    "long: takes minutes; runs only with --long",
    "spark: starts a Spark session",
    "unreadable: leaves Delta tables that are not to be read",
    "postgres: starts the embedded PostgreSQL",
    "since(version): needs that PostgreSQL; skipped where HEADRACE_POSTGRES names an older one",
    "object_store: starts versitygw; skipped where the set-up could not build it",
    "debian_postgres: needs Debian's PostgreSQL 15; skipped where it is not installed",
    "mariadb: needs Debian's MariaDB; skipped where it is not installed",
    "mysql: needs a MySQL server; skipped where the set-up could not unpack one",
)

# Spark's workers are started by name otherwise, and would miss the packages of this environment.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

# A test's JVM lives for seconds and works on handfuls of rows: a compiler that asks for profiles first only takes
# time from it, a third of all that it has. And Spark's queries are evaluated as they stand: compiling each to Java that
# runs once takes a sixth. `make test-long` lets both compile, as users' processes do.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1"
    " -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN",
)

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("headrace", deadline=None)
hypothesis.settings.load_profile("headrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--long`` and ``--chaos-minutes``."""
    parser.addoption("--long", action="store_true", help="also run the tests marked long")
    parser.addoption(
        "--chaos-minutes",
        type=float,
        default=30.0,
        help="how long the long chaos test breaks things",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, so that a misspelt one is an error."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse unknown requirement ids, leave out what cannot or shall not run here, and put the rest in order."""
    try:
        _check_requirements(items)
    except pytest.UsageError as error:
        if hasattr(config, "workeroutput"):
            config.workeroutput["refused"] = str(error)
        raise
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_rank)
    _skip(items, "long", "long: run with --long", unless=config.getoption("--long"))
    if not config.getoption("--long"):
        _bound(items)
    _skip_older(items)
    _skip(
        items,
        "object_store",
        "versitygw is missing: install Go and run `make setup-tests`",
        unless=server_program() is not None,
    )
    _skip(
        items,
        "debian_postgres",
        f"{DEBIAN_POSTGRES} is missing: install Debian's postgresql-15",
        unless=DEBIAN_POSTGRES.exists(),
    )
    _skip(
        items,
        "mariadb",
        "/usr/sbin/mariadbd is missing: install Debian's mariadb-server-core",
        unless=mariadb_installed(),
    )
    _skip(
        items,
        "mysql",
        "there is no MySQL server: `make setup-tests` says why",
        unless=mysql_installed(),
    )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Say why a worker refused to begin, which xdist keeps to itself."""
    if refused := getattr(node, "workeroutput", {}).get("refused"):
        raise pytest.UsageError(refused)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what Spark did with the tables that the tests left behind."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    ended = [report for report in reports if getattr(report, "when", "") == "teardown"]
    for said in (READ_BACK, WORKED_ON):
        count = sum(dict(report.user_properties).get(said, 0) for report in ended)
        if count:
            terminalreporter.write_line(f"{count:,} {said}")


@pytest.fixture(scope="session", autouse=True)
def data_folders() -> Iterator[None]:
    """Let embedded servers begin with a copy of one initialised folder."""
    # The server runs as another user when we are root, and reaches no folder of pytest's own.
    with tempfile.TemporaryDirectory(prefix="headrace-initdb-") as folder:
        Path(folder).chmod(0o755)
        EmbeddedPostgres.templates = Path(folder)
        yield
        EmbeddedPostgres.templates = None


def _rank(item: pytest.Item) -> int:
    """Return the place of a test's file among the longest; all others come behind them as they stood."""
    name = item.path.relative_to(TESTS).as_posix()
    return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)


def _bound(items: list[pytest.Item]) -> None:
    """Give a test of a short run twenty minutes at most: more is for what its long form does."""
    for item in items:
        mark = item.get_closest_marker("timeout")
        if mark is not None and mark.args[0] > SHORT_S:
            item.add_marker(pytest.mark.timeout(SHORT_S), append=False)


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


def _skip_older(items: list[pytest.Item]) -> None:
    named = int(os.environ.get("HEADRACE_POSTGRES", 0))
    for item in items:
        marker = item.get_closest_marker("since")
        if named and marker is not None and named < marker.args[0]:
            reason = f"needs PostgreSQL {marker.args[0]}, HEADRACE_POSTGRES is {named}"
            item.add_marker(pytest.mark.skip(reason=reason))


def _skip(items: list[pytest.Item], marker: str, reason: str, *, unless: bool) -> None:
    if unless:
        return
    skip = pytest.mark.skip(reason=reason)
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(skip)
