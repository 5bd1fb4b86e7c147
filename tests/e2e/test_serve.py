"""The newcomer's path of the README, and the whole life of a replicator behind it, on a real PostgreSQL with Spark."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.lake.delta_log import DeltaTable
from headrace.replicator.control.processes import RunProcess, find
from headrace.spark.session import SessionSettings, build_session
from headrace.testing.ports import free_port
from tests.control.asking import Asking
from tests.e2e.pipeline import contents
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
SECRET = "swordfish-of-the-source"
WRITTEN = "select (pg_current_wal_insert_lsn() - '0/0')::bigint"
TABLES = """
create schema {0};
create table {0}.orders (id int primary key, total numeric(10,2));
insert into {0}.orders select i, i from generate_series(1, 100) i;
"""


def commands() -> list[str]:
    """Return what the README tells a newcomer to type."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## From `headrace serve` to a second running replicator")[2]
    block = re.search(r"^```sh\n(.*?)^```", section, re.M | re.S)
    assert block
    return block[1].splitlines()


class Newcomer:
    """Somebody at two terminals in one folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        address = f"127.0.0.1:{free_port()}"
        self.environment = {
            **os.environ,
            "HEADRACE_LISTEN": address,
            "HEADRACE_SERVER": f"http://{address}",
            "SOURCE_PASSWORD": SECRET,
            "HEADRACE_SECRETS": str(folder.with_name(f"{folder.name}-secrets")),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "COLUMNS": "200",
        }
        self.served = folder / "served"
        self.serving: subprocess.Popen[bytes] | None = None
        self.said = ""
        kept = Path(self.environment["HEADRACE_SECRETS"])
        kept.mkdir()
        (kept / "billing").write_text(SECRET + "\n")
        for name, secret in (("shop", "env:SOURCE_PASSWORD"), ("billing", "file:billing")):
            source = url.replace("postgresql://postgres", f"postgresql://postgres:${{{secret}}}")
            document = {
                "name": name,
                "source": {"type": "postgres", "url": source, "tables": [f"{name}.*"]},
                "target": {"type": "delta", "path": "./lake"},
                "spark": {"master": "local[1]", "driver_memory": "1g"},
            }
            (folder / f"{name}.yaml").write_text(json.dumps(document))

    def types(self, line: str) -> str:
        """Run one command, ``headrace serve`` in the other terminal; return what it says."""
        name, *words = shlex.split(line)
        assert name == "headrace"
        argv = [sys.executable, "-m", "headrace.cli.main", *words]
        if words == ["serve"]:
            with self.served.open("ab") as out:
                self.serving = subprocess.Popen(
                    argv, cwd=self.folder, env=self.environment, stdout=out, stderr=out
                )
            until(lambda: "serving http" in self.served.read_text(), "the control plane")
            return ""
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=700,
            check=False,
        )
        self.said += done.stdout + done.stderr
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def shows(self, name: str) -> Any:
        return json.loads(self.types(f"headrace replicators {name} --json"))

    def state(self) -> Path:
        return self.folder / ".headrace" / "serve"

    def logs(self) -> str:
        found = sorted(self.state().rglob("*.log"))
        return "\n".join(f"--- {p}\n{p.read_text(errors='replace')[-2000:]}" for p in found)

    def rows(self, schema: str) -> dict[int, str]:
        """Return the target's orders, id to total."""
        newest = DeltaTable(self.folder / "lake" / schema / "orders").latest()
        rows = newest.to_table(["id", "total"]).to_pylist() if newest else []
        return {row["id"]: str(row["total"]) for row in rows}

    def ids(self, schema: str, table: str) -> set[int]:
        """Return the keys of a table of the target."""
        newest = DeltaTable(self.folder / "lake" / schema / table).latest()
        return {row["id"] for row in newest.to_table(["id"]).to_pylist()} if newest else set()

    def close(self) -> None:
        if self.serving is not None and self.serving.poll() is None:
            self.serving.terminate()
            self.serving.wait(30)
        for found in find(self.state() / "replicators").values():
            for process in found:
                process.signal(signal.SIGTERM)
                until(partial(_ended, process), "the end of a replicator", 90)


def _ended(process: RunProcess) -> bool:
    return not process.lives()


def copied(newcomer: Newcomer, schema: str) -> bool:
    return len(newcomer.rows(schema)) == 100


@pytest.fixture
def newcomer(tmp_path: Path, url: str) -> Iterator[Newcomer]:
    with psycopg.connect(url, autocommit=True) as connection:
        for schema in ("shop", "billing"):
            connection.execute(TABLES.format(schema).encode())
    made = Newcomer(tmp_path, url)
    yield made
    made.close()


def slots(connection: psycopg.Connection[Any]) -> set[str]:
    found = connection.execute("select slot_name from pg_replication_slots").fetchall()
    return {name for (name,) in found if not name.startswith("pg_")}


@req("C01", "C02", "C03", "C04", "C16", "C17", "C69", "C70", "C100", "C101", "C-5", "C-20", "P67")
def test_from_serve_to_a_second_running_replicator_and_on(newcomer: Newcomer, url: str) -> None:
    typed = commands()
    assert len(typed) == 6
    for line in typed:
        shown = newcomer.types(line)
    assert [line.split()[:2] for line in shown.splitlines()[1:3]] == [
        ["billing", "RUNNING"],
        ["shop", "RUNNING"],
    ]
    for schema in ("shop", "billing"):
        until(partial(copied, newcomer, schema), f"the rows of {schema}", 300)

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update shop.orders set total = 7 where id = 1")
        until(lambda: newcomer.rows("shop").get(1) == "7.00", "a change", 120)
        sparks = list(drivers(newcomer))
        assert len(sparks) == 2
        assert all(b"-Xmx1g" in spark and b"spark.master=local[1]" in spark for spark in sparks)
        newcomer.types("headrace pause shop --wait")
        until(lambda: paused(newcomer, "shop"), "that capture has heard it")
        (before,) = connection.execute(WRITTEN).fetchone() or (0,)
        connection.execute("update shop.orders set total = 8 where id = 1")
        connection.execute("update billing.orders set total = 8 where id = 1")
        # The other one, which is not paused, shows that there was time enough.
        until(lambda: newcomer.rows("billing").get(1) == "8.00", "the other's change", 120)
        assert newcomer.rows("shop")[1] == "7.00"
        newcomer.types("headrace resume shop --wait")
        until(lambda: newcomer.rows("shop")[1] == "8.00", "the change", 120)
        # A table shows it before the frontier does, and a page is up to a second old.
        until(lambda: frontier(newcomer, "shop") > before, "the frontier", 30)
        assert newcomer.shows("shop")["tables"] == {"REPLICATING": 1}
        earlier = frontier(newcomer, "shop")
        assert "source = target" in newcomer.types("headrace verify shop")
        # Within minutes, though nobody told the replicator of the table.
        connection.execute("create table shop.late (id int primary key)")
        connection.execute("insert into shop.late values (1), (2)")
        until(lambda: newcomer.ids("shop", "late") == {1, 2}, "a new table", 120)

        newcomer.types("headrace stop shop --wait")
        connection.execute("update shop.orders set total = 9 where id = 1")
        told = json.loads(newcomer.types(f"headrace rewind shop --to {earlier} --json"))
        assert told["scn"] == earlier
        assert newcomer.rows("shop")[1] == "8.00"
        assert newcomer.ids("shop", "late") == set()
        newcomer.types("headrace start shop --wait")
        until(lambda: newcomer.rows("shop")[1] == "9.00", "what came meanwhile", 180)
        until(lambda: newcomer.ids("shop", "late") == {1, 2}, "the new table again", 120)

        assert slots(connection) == {"headrace_shop", "headrace_billing"}
        nothing_tells_the_secret(newcomer)
        newcomer.types("headrace delete shop --target drop --wait")
        assert slots(connection) == {"headrace_billing"}
        newcomer.types("headrace delete billing --wait")
        assert slots(connection) == set()
    assert not (newcomer.folder / "lake" / "shop" / "orders").exists()
    assert newcomer.rows("billing")[1] == "8.00"
    assert list((newcomer.state() / "replicators").iterdir()) == []
    audited = newcomer.types("headrace audit")
    assert "delete" in audited
    assert SECRET not in newcomer.said + newcomer.served.read_text()


def frontier(newcomer: Newcomer, name: str) -> int:
    return int(newcomer.shows(name)["positions"]["frontier_scn"])


def drivers(newcomer: Newcomer) -> Iterator[list[bytes]]:
    """Yield the arguments of each JVM that runs for a replicator, with the cores and the memory that it has."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().split(b"\0")
        except OSError:
            continue
        ours = any(os.fsencode(newcomer.folder) in word for word in words)
        if ours and b"org.apache.spark.deploy.SparkSubmit" in words:
            yield words


def paused(newcomer: Newcomer, name: str) -> bool:
    """Whether a capture stands still since it was told to."""
    status = newcomer.state() / f"replicators/default/{name}/1/state/status/capture.json"
    return bool(json.loads(status.read_text())["detail"]["doing"] == "log paused")


def nothing_tells_the_secret(newcomer: Newcomer) -> None:
    """Look where a secret could be seen: files, command lines, answers."""
    secret = SECRET.encode()
    for file, held in contents(newcomer.folder):
        assert secret not in held, file
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert secret not in process.read_bytes(), process
        except OSError:
            continue
    for words in ("replicators shop", "logs shop", "logs shop --process capture", "audit"):
        newcomer.types(f"headrace {words} --json")
    assert SECRET not in newcomer.said


# -- F20 over HTTP --------------------------------------------------------------------------------

DAMAGED = (3, 5, 7, -1)


@pytest.mark.long
@req("F20", "H19", "A-13")
def test_damaged_rows_are_repaired_over_http_by_key_and_no_others_are_written(
    newcomer: Newcomer, tmp_path: Path
) -> None:
    newcomer.types("headrace serve")
    newcomer.types("headrace deploy shop.yaml --start --wait")
    until(partial(copied, newcomer, "shop"), "the rows", 300)
    newcomer.types("headrace stop shop --wait")
    whole = newcomer.rows("shop")
    at = newcomer.folder / "lake" / "shop" / "orders"
    spark = build_session(SessionSettings(driver_memory="512m", scratch=tmp_path / "damage"))
    try:
        for statement in (
            "UPDATE delta.`{}` SET total = 999 WHERE id IN (3, 5)",
            "DELETE FROM delta.`{}` WHERE id = 7",
            "INSERT INTO delta.`{}` (id, total) VALUES (-1, 1)",
        ):
            spark.sql(statement.format(at))
    finally:
        spark.stop()
    damaged = newcomer.rows("shop")
    assert {key for key, _ in damaged.items() ^ whole.items()} == set(DAMAGED)
    state = newcomer.state() / "replicators/default/shop/1/state"
    logged = ChangeLogReader(state / "changelog").tail().covered_scn
    newcomer.types("headrace start shop --wait")

    api = "/v1/contexts/default/replicators/shop/api/v1"
    ask = Asking(newcomer.environment["HEADRACE_SERVER"])
    asked = ask.does(
        "POST",
        f"{api}/requests",
        {
            "scope": "PRIMARY_KEYS",
            "table": {"schemaName": "shop", "tableName": "orders"},
            "primaryKeyLiterals": [str(key) for key in DAMAGED],
            "deleteMissing": True,
        },
        201,
    )["request"]

    def ended() -> bool:
        return bool(ask.one(f"{api}/requests/{asked['requestId']}")["state"] == "COMPLETED")

    until(ended, "the request", 120)
    until(lambda: newcomer.rows("shop") == whole, "the repair", 120)
    shown = ask.one(f"{api}/requests/{asked['requestId']}")
    assert shown["missingPrimaryKeyLiterals"] == ["-1"]
    written = [
        row["id"]
        for block in ChangeLogReader(state / "changelog").blocks(logged)
        for body in block.bodies
        if (body.table.schema, body.table.name) == ("shop", "orders")
        for row in body.batch.to_pylist()
    ]
    assert sorted(written) == sorted(DAMAGED)
