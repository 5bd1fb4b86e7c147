"""The apply job on a standalone cluster of two small workers, submitted and through Spark Connect."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.model.block import Body
from headrace.model.schema import KeyCheck, TableSchema
from headrace.testing.lives import Transaction, commit_us
from headrace.testing.notation import table_of
from tests.lake.sql.warehouses import content, plain
from tests.requirements import req
from tests.spark import cluster_program as big
from tests.spark.log import Log
from tests.spark.standalone import HOME, Cluster, cluster
from tests.spark.test_modes import expected, lives

pytestmark = [
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.timeout(3_000),
]

ROWS = 300_000
NEEDED = ("grpc", "grpc_status", "google.rpc", "zstandard")


class History:
    """A change log of lives in every mode and of one large table, and what its targets hold behind it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        rng = random.Random(seed)
        log = Log(folder / "changelog", commit_us)
        waiting = {schema: list(life) for schema, life in lives(rng, 12).items()}
        self.written: dict[TableSchema, list[Transaction]] = {schema: [] for schema in waiting}
        bag = table_of(3, check=KeyCheck.NONE, name="bag")
        for schema in (*waiting, bag, big.SCHEMA):
            log.announce(schema)
            log.complete(schema)
        self.bag = bag
        log.write(bag, "+I(1,a,b) +I(1,a,b) +I(2,c,d) | -D(1,a,b) +I(1,a,b) +I(1,a,b)")
        large = [("+I", 1, first) for first in range(0, ROWS, big.BLOCK_ROWS)]
        large += [("=U", 2, first) for first in range(0, ROWS, big.BLOCK_ROWS)]
        schema_id = log.registry.put(big.SCHEMA)
        while large or any(waiting.values()):
            left = [schema for schema, life in waiting.items() if life]
            if large and (not left or rng.random() < 0.15):
                op, number, first = large.pop(0)
                rows = big.changes(first, big.BLOCK_ROWS, log.following, op, number)
                log.batch(Body(schema_id, big.SCHEMA.table, rows))
                continue
            schema = rng.choice(left)
            transaction = waiting[schema].pop(0).at(log.following)
            log.write(schema, transaction.notation)
            self.written[schema].append(transaction)
        self.end = log.scn
        log.writer.close()

    def check(self, rows: Callable[[TableSchema], pa.Table]) -> None:
        """Hold the tables of a target against what they should be."""
        for schema, life in self.written.items():
            assert plain(rows(schema)) == expected(schema, life), schema.table
        wanted = Counter({(1, "a", "b"): 3, (2, "c", "d"): 1})
        assert plain(rows(self.bag).select(self.bag.names)) == wanted
        large = rows(big.SCHEMA)
        assert large.num_rows == pc.count_distinct(large["id"]).as_py() == ROWS
        assert pc.sum(large["n"]).as_py() == 2 * sum(range(ROWS))


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("standalone") / "cluster") as made:
        yield made


@pytest.fixture(params=["submitted", "connected"])
def run(request: pytest.FixtureRequest, standalone: Cluster) -> Callable[..., dict[str, Any]]:
    """Give each way to run a program on the cluster; it returns what the program saw."""
    if request.param == "submitted":
        program = Path(__file__).with_name("standalone_job.py")

        def submitted(folder: Path, goal: int, url: str) -> dict[str, Any]:
            arguments = [str(program), str(folder), standalone.master, str(goal), url]
            command = standalone.submit(*arguments)
            return told(standalone.run([str(HOME / "bin" / command[0]), *command[1:]]))

        return submitted
    missing = [name for name in NEEDED if not has(name)]
    if missing:
        pytest.skip(f"the extra connect is not installed: {', '.join(missing)}")
    server = standalone.serve()

    def connected(folder: Path, goal: int, url: str) -> dict[str, Any]:
        arguments = ["-m", "tests.spark.standalone_job", str(folder), server, str(goal), url]
        return told(standalone.run([sys.executable, *arguments]))

    return connected


def told(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def has(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@req("C12", "C13", "C43", "C72")
def test_a_history_is_applied_on_a_cluster_as_the_model_has_it(
    run: Callable[..., dict[str, Any]],
    standalone: Cluster,
    database: str,
    tmp_path: Path,
) -> None:
    history = History(tmp_path, 5)
    before = standalone.worked()
    seen = run(tmp_path, history.end, database)
    assert seen["master"] == standalone.master
    # Both workers had an executor, of this run or of the server that it used.
    assert all(now > 0 for now in standalone.worked())
    assert seen["remote"] or standalone.worked() > before
    named = [message.split()[0] for message in seen["refused"]]
    assert named == (["target.merge:", "spark.master:"] if seen["remote"] else ["spark.master:"])

    def in_lake(schema: TableSchema) -> pa.Table:
        return DeltaTable(table_path(tmp_path / "lake", schema.table)).snapshot().to_table()

    history.check(in_lake)
    history.check(lambda schema: content(PostgresWarehouse(database), schema))
