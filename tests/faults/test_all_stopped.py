"""Every process of ours is killed at once: the source goes on as if nothing were, and afterwards nothing is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from headrace.testing.ports import free_port
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

ROUNDS = 3


@contextmanager
def everything(file: Path, url: str, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run capture, relay and a consumer, each a process; all are killed at the end."""
    consume = ["consume", "ndjson", url, "--to", str(folder / "lines")]
    with ExitStack() as stack, (folder / "output").open("ab") as output:

        def started(*words: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([sys.executable, "-m", *words], stdout=output, stderr=output)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        capture = started("headrace.replicator.capture_process", str(file))
        relay = started("headrace.cli.main", "relay", str(file))
        until(partial(listens, url), "the relay listens", 120)
        place = str(folder / "place")
        yield [capture, relay, started("headrace.cli.main", *consume, "--checkpoint", place)]


def listens(url: str) -> bool:
    with suppress(OSError), urlopen(f"{url}/healthz", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def written(connection: psycopg.Connection, first: int) -> float:
    """Change rows in some transactions; return how long the slowest of them took."""
    slowest = 0.0
    for number in range(first, first + 50):
        began = time.monotonic()
        with connection.transaction():
            connection.execute("INSERT INTO t VALUES (%s, 'new')", (number,))
            connection.execute("UPDATE t SET v = v || '.' WHERE id = %s", (number - 7,))
            connection.execute("DELETE FROM t WHERE id = %s", (number - 20,))
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def truth(connection: psycopg.Connection) -> dict[int, str]:
    return dict(connection.execute("SELECT id, v FROM t").fetchall())


def held(folder: Path) -> dict[int, str]:
    """Return the rows that the consumer's lines amount to."""
    rows: dict[int, str] = {}
    file = folder / "lines"
    for line in file.read_bytes().splitlines() if file.exists() else ():
        try:
            said = json.loads(line)
        except ValueError:
            # Being written at this moment.
            continue
        if said.get("op") == "-D":
            rows.pop(said["row"]["id"], None)
        elif "op" in said:
            rows[said["row"]["id"]] = said["row"]["v"]
    return rows


@req("D01")
def test_with_every_process_killed_the_source_goes_on_and_a_restart_loses_nothing(
    database: str, tmp_path: Path
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"name: shop\nsource: {{type: postgres, url: {json.dumps(database)}, tables: ['public.*']}}\n"
        f"target: {{type: delta, path: ./lake}}\nrelay: {{listen: '127.0.0.1:{port}', heartbeat_s: 0.5}}\n"
    )
    options = "-c statement_timeout=10s -c lock_timeout=10s"
    with psycopg.connect(database, autocommit=True, options=options) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        connection.execute("INSERT INTO t SELECT n, 'old' FROM generate_series(1, 100) n")
        for round_ in range(ROUNDS):
            with everything(file, url, tmp_path) as processes:
                begin = 1000 * (round_ + 1)
                written(connection, begin)
                wanted = truth(connection)

                def arrived(wanted: dict[int, str] = wanted) -> bool:
                    return held(tmp_path) == wanted

                until(arrived, "the rows of the source", 120)
                # In the middle of work.
                written(connection, begin + 100)
                for process in processes:
                    os.kill(process.pid, signal.SIGKILL)
                for process in processes:
                    assert process.wait(60) == -signal.SIGKILL
            until(partial(alone, connection), "the server has noticed")
            slowest = written(connection, begin + 200)
            assert slowest < 5.0
        with everything(file, url, tmp_path):
            wanted = truth(connection)
            until(lambda: held(tmp_path) == wanted, "the rows of the source", 120)


def alone(connection: psycopg.Connection) -> bool:
    """Whether nobody but the test has a session."""
    query = """
        SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND backend_type IN ('client backend', 'walsender')
    """
    return connection.execute(query).fetchone() == (1,)
