"""``adopt`` on a real server: dumps made elsewhere, under a snapshot of their own, while everybody writes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg.pq import ExecStatus, PGconn

from tests.e2e.pipeline import HEADRACE, Pipeline
from tests.requirements import req

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]

SCHEMA = """
create schema shop;
create table shop.orders (id int primary key, note text, amount numeric(10,2), at timestamptz not null, doc jsonb);
alter table shop.orders alter column note set storage external;
create table shop.clicks (n int, what text);
alter table shop.clicks replica identity full;
create table shop.late (n int, what text);
alter table shop.late replica identity full;
create table shop.early (n int, what text);
alter table shop.early replica identity full;
create table shop.other (id int primary key);
insert into shop.orders select n, repeat(md5(n::text), 200), n, now(), '{"n": 1}' from generate_series(1, 500) n;
insert into shop.clicks select n % 7, 'x' from generate_series(1, 200) n;
insert into shop.late values (1, 'x');
insert into shop.early values (1, 'x');
insert into shop.other select generate_series(1, 50);
"""
WRITES = (
    "update shop.orders set amount = amount + 1 where id % 40 = {n} % 40",
    "update shop.orders set id = 1000000 + {n} where id = {n}",
    "update shop.orders set note = repeat(md5('{n}'), 200) where id = {n} + 7",
    "delete from shop.orders where id = {n} + 100",
    "insert into shop.orders values (2000000 + {n}, null, 0.5, now(), '[]')",
    "insert into shop.clicks values ({n} % 7, 'x'), ({n} % 7, 'x')",
    "delete from shop.clicks where ctid = (select ctid from shop.clicks where n = {n} % 7 limit 1)",
    "update shop.clicks set what = 'y' where ctid = (select ctid from shop.clicks limit 1)",
)
TYPES = {
    "orders": pa.schema(
        [
            ("id", pa.int32()),
            ("note", pa.string()),
            ("amount", pa.decimal128(10, 2)),
            ("at", pa.timestamp("us", tz="UTC")),
            ("doc", pa.string()),
        ]
    ),
    "clicks": pa.schema([("n", pa.int32()), ("what", pa.string())]),
}
STEPS = ("adopt.files_written", "adopt.after_commit", "adopt.after_request")


@pytest.fixture
def tables() -> Sequence[str]:
    return ("shop.*",)


@pytest.fixture
def pipeline(tmp_path: Path, url: str) -> Iterator[Pipeline]:
    adopted = ", ".join(
        f'"shop.{name}": {{first_copy: adopted}}' for name in ("orders", "clicks", "late", "early")
    )
    made = Pipeline(tmp_path, url, more=f"tables: {{{adopted}}}\n")
    yield made
    made.close()


@contextmanager
def writing(url: str, begin: int = 0) -> Iterator[None]:
    """Write to the two exact tables, a transaction of one to three statements after the other; each number once."""
    stop, failed = threading.Event(), list[BaseException]()

    def work() -> None:
        rng, n = random.Random(begin), begin
        try:
            with psycopg.connect(url) as connection:
                while not stop.wait(0.01):
                    for statement in rng.sample(WRITES, rng.randrange(1, 4)):
                        n += 1
                        connection.execute(statement.format(n=n).encode())
                    connection.commit()
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed, failed


@contextmanager
def snapshot(url: str) -> Iterator[tuple[str, str]]:
    """Give a position of the log and the name of the snapshot that belongs to it."""
    connection = PGconn.connect(f"{url}{'&' if '?' in url else '?'}replication=database".encode())
    try:
        made = connection.exec_(
            b"CREATE_REPLICATION_SLOT elsewhere TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
        )
        assert made.status == ExecStatus.TUPLES_OK, connection.error_message
        position, name = made.get_value(0, 1), made.get_value(0, 2)
        assert position is not None
        assert name is not None
        yield position.decode(), name.decode()
    finally:
        connection.finish()


def dumped(url: str, name: str, table: str, folder: Path) -> Path:
    """Copy a table under a snapshot into a Parquet file."""
    types = TYPES.get(table, TYPES["clicks"])
    columns = ", ".join("doc::text" if column == "doc" else column for column in types.names)
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute(f"set transaction snapshot '{name}'".encode())
        rows = connection.execute(f"select {columns} from shop.{table}".encode()).fetchall()
    arrays = [pa.array([r[at] for r in rows], f.type) for at, f in enumerate(types)]
    folder.mkdir()
    pq.write_table(pa.table(arrays, schema=types), folder / "all.parquet")
    return folder


def one(url: str, statement: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(statement.encode())
        return str(found.fetchone()[0]) if found.description else ""  # type: ignore[index]


@req("D34", "D79")
def test_a_dump_made_elsewhere_joins_the_stream_while_everybody_writes(
    url: str, pipeline: Pipeline, tmp_path: Path
) -> None:
    def adopted(table: str, files: Path, at: str, dies_at: str = "") -> int:
        words = [*HEADRACE, "adopt", str(pipeline.file), "--table", f"shop.{table}"]
        done = subprocess.run(
            [*words, "--files", str(files), "--at", at],
            env={**os.environ, "HEADRACE_FAILPOINT": dies_at},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert dies_at or done.returncode == 0, done.stdout + done.stderr + pipeline.logs()
        return done.returncode

    one(url, SCHEMA)
    pipeline.start()
    pipeline.running("the other table is live", lambda: pipeline.all_live(1))
    before_all = one(url, "select pg_current_wal_insert_lsn()")
    with writing(url):
        one(url, "insert into shop.early values (2, 'before')")
        with snapshot(url) as (position, name):
            files = {
                t: dumped(url, name, t, tmp_path / t) for t in ("orders", "clicks", "late", "early")
            }
        one(url, "insert into shop.late values (2, 'behind')")
        behind = one(url, "select pg_current_wal_insert_lsn()")
        phases = {t["name"]: (t["phase"], t["error"]) for t in pipeline.status()["tables"]}
        assert phases["shop.other"][0] == "live"
        assert phases["shop.orders"][0] == "waiting"
        assert "headrace adopt" in phases["shop.orders"][1]
        for step in STEPS:
            assert adopted("orders", files["orders"], position, step) == -9
        adopted("orders", files["orders"], position)
        adopted("clicks", files["clicks"], position)
        # One transaction too many in each of these, and one too few.
        adopted("late", files["late"], behind)
        adopted("early", files["early"], before_all)
        pipeline.running("all tables are live", lambda: pipeline.all_live(5))
    report = json.loads(pipeline.command("verify", "--json").stdout)
    equal = {table["table"]: table["equal"] for table in report["tables"]}
    assert equal == {
        "shop.orders": True,
        "shop.clicks": True,
        "shop.other": True,
        "shop.late": False,
        "shop.early": False,
    }
    # Nothing was read of the adopted tables, and a restart goes on where they are.
    dumps = {r["table"]: r for r in json.loads(pipeline.succeed("dump list", "--all", "--json"))}
    assert dumps["shop.orders"]["cause"] == "ADOPTED"
    assert pipeline.stop() == 0
    with writing(url, 500_000):
        pipeline.start()
        pipeline.running("applied something", lambda: pipeline.status()["lag_changes"] == 0)
    pipeline.running("idle", lambda: pipeline.status()["lag_changes"] == 0)
    report = json.loads(pipeline.command("verify", "--json").stdout)
    assert {t["table"] for t in report["tables"] if not t["equal"]} == {"shop.late", "shop.early"}
