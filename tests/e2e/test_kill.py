"""Kill −9 of anything that is ours, while the source is busy; then both sides agree."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from collections.abc import Iterator

import pytest

from headrace.changelog import ChangeLogReader
from headrace.demo.shops import shop_of
from headrace.demo.traffic import TrafficProcess
from headrace.observe.failpoints import FAILPOINTS
from headrace.registry.file import FileRegistry
from headrace.replicator.databases import open_database
from headrace.replicator.runner import goal
from headrace.testing.oracle import LedgerOracle
from headrace.testing.postgres import EmbeddedPostgres
from tests.e2e.pipeline import Pipeline
from tests.requirements import req

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1800)]

ROWS = 10_000
TABLES = ("shop.accounts", "shop.events", "shop.order_items", "shop.products")
"""A text key that moves, no key at all, a composite key, long texts: one of each kind."""
on_each_kind = pytest.mark.parametrize("tables", [TABLES], ids=["each-kind"])
on_two_kinds = pytest.mark.parametrize("tables", [TABLES[:2]], ids=["two-kinds"])
on_each_source = pytest.mark.parametrize(
    "kind",
    [
        "postgres",
        pytest.param("mariadb", marks=pytest.mark.mariadb),
        pytest.param("mysql", marks=pytest.mark.mysql),
    ],
)
VICTIMS = ("capture", "apply", "jvm", "supervisor")


@pytest.fixture
def target(request: pytest.FixtureRequest) -> str:
    """Return a target that passes the failpoint of the test, if it has one."""
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    if name and name.startswith("maintenance."):
        # As eager as it can be: a few deleted rows are reason enough.
        return (
            "{type: delta, path: ./lake, maintenance: {small_file: 1KiB, deleted: 0.01, load: 1}}"
        )
    if name not in ("apply.staged", "apply.merged"):
        return "{type: delta, path: ./lake}"
    return f"{{type: postgres, url: {json.dumps(request.getfixturevalue('warehouse_url'))}}}"


@contextlib.contextmanager
def busy_shop(url: str) -> Iterator[TrafficProcess]:
    """Fill the shop and let slow traffic loose on it."""
    shop_of(url).fill(url, ROWS)
    with TrafficProcess(url, 60, ROWS, 5_000, (5.0, 12.0, 18.0)) as traffic:
        yield traffic


OF_A_RUN = [
    name
    for name in FAILPOINTS
    if not name.startswith(("adopt.", "control.", "letters.", "rewind.", "xa."))
]
"""Those of an adoption are passed by its own command (`tests/e2e/test_adopt.py`), and the shop has no distributed
transactions (`tests/integration/test_binlog_xa.py`)."""


def strike(pipeline: Pipeline, victim: str) -> None:
    """Kill one process and see the whole come back to work."""
    before = pipeline.frontier()
    if victim == "supervisor":
        pipeline.kill()
        pipeline.start()
    else:
        # The one that is found: asked again there may be none, and 0 would be all processes of our own group.
        pid = pipeline.running(f"a living {victim}", lambda: pipeline.pid_of(victim))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pipeline.running(f"progress after {victim} died", lambda: pipeline.frontier() > before)


def agree(pipeline: Pipeline, traffic: TrafficProcess) -> None:
    """Let it copy all tables and follow to the last commit, compare; and read the change log with the ledger oracle."""
    pipeline.running("every table live", lambda: pipeline.all_live(len(pipeline.tables)))
    traffic.stop()
    last, _ = goal(pipeline.config)
    pipeline.running("the last commit in the tables", lambda: pipeline.frontier() >= last)
    assert pipeline.stop() == 0, pipeline.logs()
    pipeline.succeed("verify")
    # What was recorded on the way contradicts itself nowhere, either.
    oracle = LedgerOracle(FileRegistry(pipeline.paths.registry).get)
    for block in ChangeLogReader(pipeline.paths.changelog).blocks(0):
        oracle.feed(block)
    assert len(oracle.log_transactions) > 100
    keyed = [table for table in open_database(pipeline.config).tables() if table.key]
    assert len(oracle.read_rows) == len(keyed) >= len(pipeline.tables) - 1, (
        "every keyed table was dumped in chunks"
    )


@on_two_kinds
@req("C12", "C13", "P19", "C24", "P17")
@on_each_source
def test_four_random_kills_lose_and_repeat_nothing(shop_url: str, shop: Pipeline) -> None:
    victims = list(VICTIMS)
    random.Random(7).shuffle(victims)
    with busy_shop(shop_url) as traffic:
        shop.start()
        for victim in victims:
            strike(shop, victim)
        agree(shop, traffic)


@pytest.mark.long
@on_each_kind
@req("C12", "C13", "P19")
def test_twenty_random_kills_lose_and_repeat_nothing(url: str, pipeline: Pipeline) -> None:
    generator = random.Random(11)
    with busy_shop(url) as traffic:
        pipeline.start()
        for _ in range(20):
            strike(pipeline, generator.choice(VICTIMS))
        agree(pipeline, traffic)


@pytest.mark.long
@on_each_kind
@req("C12", "H10")
@pytest.mark.parametrize("name", OF_A_RUN)
@on_each_source
def test_a_death_at_each_failpoint_costs_nothing(name: str, shop_url: str, shop: Pipeline) -> None:
    with busy_shop(shop_url) as traffic:
        # The second pass: the first may come before there is anything to lose. Files of a shop this small are
        # written anew once in a while.
        passes = 1 if name.startswith("maintenance.") else 2
        shop.start({"HEADRACE_FAILPOINT": f"{name}:{passes}"})
        shop.running(f"a death at {name}", lambda: sum(shop.restarts().values()))
        # Whoever is started again would die there again.
        assert shop.stop() == 0, shop.logs()
        shop.start()
        agree(shop, traffic)


@pytest.mark.long
@on_each_kind
@req("A-12", "C61")
def test_postgresql_may_restart_in_mid_stream(
    server: EmbeddedPostgres, url: str, pipeline: Pipeline
) -> None:
    with busy_shop(url) as traffic:
        pipeline.start()
        # While tables are being copied, so in the middle of a window as well.
        pipeline.running("rows in the log", lambda: pipeline.frontier() > 0)
        server.restart("immediate")
        before = pipeline.frontier()
        pipeline.running("progress after the restart", lambda: pipeline.frontier() > before)
        agree(pipeline, traffic)
