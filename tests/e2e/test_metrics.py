"""Numbers of a replicator as its user reads them, with PostgreSQL, Spark and deaths in between."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.replicator.runner import goal
from headrace.testing.ports import free_port
from tests.e2e.pipeline import Pipeline
from tests.requirements import req

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]

OPERATIONS = """
insert into shop.t select n, 'new' from generate_series(101, 105) n;
update shop.t set v = 'other' where id in (1, 2, 3);
begin;
update shop.t set id = id + 1000 where id in (4, 5);
delete from shop.t where id in (6, 7);
commit;
begin;
insert into shop.t values (900, 'never');
rollback;
insert into shop.u values (2);
truncate shop.u;
insert into shop.u values (3);
"""
TOLD = {"inserts": 5, "updates": 5, "deletes": 2, "truncates": 0, "copied_rows": 10}
TOLD_OF_U = {"inserts": 2, "updates": 0, "deletes": 0, "truncates": 1, "copied_rows": 1}


@pytest.fixture
def pipeline(tmp_path: Path, url: str) -> Iterator[Pipeline]:
    more = f"metrics: {{listen: '127.0.0.1:{free_port()}'}}\nobjective: {{within_s: 3600}}\n"
    made = Pipeline(tmp_path, url, more=more)
    yield made
    made.close()


def told(value: Callable[[str, str], float], table: str) -> dict[str, float]:
    return {name: value(f"headrace_{name}_total", table) for name in TOLD}


def printed(pipeline: Pipeline) -> Callable[[str, str], float]:
    """Return what ``headrace metrics --json`` says, by name and table."""
    samples = json.loads(pipeline.succeed("metrics", "--json"))["samples"]
    found = {(s["name"], s["labels"].get("table", "")): s["value"] for s in samples}
    return lambda name, table: found[name, table]


def served(pipeline: Pipeline) -> Callable[[str, str], float]:
    """Return what Prometheus reads of the running replicator."""
    assert pipeline.config.metrics is not None
    with urllib.request.urlopen(f"http://{pipeline.config.metrics.listen}/metrics") as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = answer.read().decode().splitlines()

    def value(name: str, table: str) -> float:
        labels = f'{{replicator="e2e",table="{table}"}}' if table else '{replicator="e2e"}'
        (line,) = [line for line in lines if line.startswith(f"{name}{labels} ")]
        return float(line.rpartition(" ")[2])

    return value


@req("C11", "C74", "C-1", "C-4", "T20")
def test_operations_are_counted_once_through_deaths_and_restarts(
    url: str, pipeline: Pipeline
) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create schema shop")
        connection.execute("create table shop.t (id int primary key, v text)")
        connection.execute("create table shop.u (id int primary key)")
        connection.execute("insert into shop.t select n, 'old' from generate_series(1, 10) n")
        connection.execute("insert into shop.u values (1)")
        pipeline.succeed("run", "--once")
        *first, second = OPERATIONS.split(";\n")[:-1]
        # Tables are committed and the frontier is not, each time that there is something to commit.
        for place, statements in (
            ("apply.after_commit", first),
            ("apply.before_manifest", [second]),
        ):
            for statement in statements:
                connection.execute(statement)
            pipeline.start({"HEADRACE_FAILPOINT": place})
            pipeline.running(
                f"a death at {place}", lambda: pipeline.restarts().get("apply", 0) >= 1
            )
            last, _ = goal(pipeline.config)
            assert pipeline.stop() == 0, pipeline.logs()
        pipeline.start()
        pipeline.running("the last commit in the tables", lambda: pipeline.frontier() >= last)
        pipeline.running(
            "the numbers served", lambda: served(pipeline)("headrace_inserts_total", "shop.u") >= 2
        )
        for look in (served, printed):
            assert told(look(pipeline), "shop.t") == TOLD
            assert told(look(pipeline), "shop.u") == TOLD_OF_U
        assert pipeline.stop() == 0, pipeline.logs()
        before = printed(pipeline)
        # Nothing is new in another run, and then one row is.
        pipeline.succeed("run", "--once")
        assert told(printed(pipeline), "shop.t") == TOLD
        connection.execute("insert into shop.t values (200, 'late')")
        pipeline.succeed("run", "--once")
        after = printed(pipeline)
        assert told(after, "shop.t") == {**TOLD, "inserts": 6}
        for name in ("headrace_freshness_seconds_count", "headrace_changes_total"):
            assert after(name, "shop.t") == before(name, "shop.t") + 1
            assert after(name, "shop.u") == before(name, "shop.u")
        assert after("headrace_bytes_total", "shop.t") > before("headrace_bytes_total", "shop.t")
        assert after("headrace_replicator_errors_total", "") == 0
        # Over time they come to the same.
        minutes = json.loads(pipeline.succeed("activity", "--json"))["minutes"]
        assert sum(one["inserts"] for one in minutes if one["table"] == "shop.t") == 6
        assert sum(one["copied"] for one in minutes) == 11
        hours = json.loads(pipeline.succeed("activity", "--hours", "24", "--json"))["hours"]
        assert sum(one["copied"] for one in hours) == 11
        assert "within 3600 s: 100 % of the last 24 h, met" in " ".join(
            pipeline.succeed("status").split()
        )
