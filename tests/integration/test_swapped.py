"""One pipeline whose parts are others by configuration alone: source, output, place store, form of the changes."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from headrace.changelog import ChangeLogReader
from headrace.cli.main import app
from headrace.replicator import config_file, runner
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.replicator.relay_config import RelaySourceConfig
from headrace.testing.relay import served
from tests.outputs.receiver import Receiver, receiving
from tests.requirements import req
from tests.waiting import until

FORM = """
from headrace.outputs import NdjsonOutput
from headrace.outputs.formats import Format

class Short(Format):
    def change(self, window, event):
        return [event.op, self.plain(event.row)]
    def system(self, window, event):
        return None
    def end(self, window):
        return None

class Shortly(NdjsonOutput):
    def __init__(self):
        super().__init__("short", form=Short())
"""
Rows = dict[int, str]


def captured(config: Config, paths: StatePaths, stop: threading.Event) -> None:
    if isinstance(config.source, RelaySourceConfig):
        runner.follow(config, config.source, stop, lambda _detail: None)
        return
    with runner.capture(config, paths, stop, lambda _detail: None) as capture:
        capture.run(stop)


@contextmanager
def running(folder: Path, source: str) -> Iterator[str]:
    """Capture as a file says, and give the URL of a relay over what comes."""
    folder.mkdir()
    file = folder / "shop.yaml"
    file.write_text(f"name: shop\nsource: {source}\ntarget: {{type: delta, path: ./lake}}\n")
    config, stop = config_file.load(file), threading.Event()
    paths = StatePaths.of(config)
    paths.create()
    worker = threading.Thread(target=captured, args=(config, paths, stop))
    worker.start()
    try:
        until(lambda: ChangeLogReader(paths.changelog).tail().complete_scn, "the first window")
        with served({"shop": paths.changelog}, heartbeat_s=0.1) as url:
            yield url
    finally:
        stop.set()
        worker.join(60)


@pytest.fixture
def shop(database: str) -> Iterator[psycopg.Connection]:
    """Give a session at a database with a table, of which nothing is left open."""
    with psycopg.connect(database, autocommit=True) as session:
        session.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        session.execute("INSERT INTO t SELECT n, 'first' FROM generate_series(1, 9) n")
        yield session
        free = "SELECT NOT bool_or(active) FROM pg_replication_slots"
        until(lambda: session.execute(free).fetchone() == (True,), "nobody reads the slot")
        session.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


@pytest.fixture
def sources(shop: psycopg.Connection, database: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Give relays over the changes of a database, and over those of a relay."""
    del shop
    first = f"{{type: postgres, url: '{database}', tables: ['public.*']}}"
    with running(tmp_path / "first", first) as url:
        second = f"{{type: relay, urls: ['{url}']}}"
        with running(tmp_path / "second", second) as other:
            yield {"postgres": url, "relay": other}


def folded(changes: Iterator[tuple[str, dict[str, object]]]) -> Rows:
    """Return what changes amount to; here keys never change."""
    held: Rows = {}
    for op, row in changes:
        key = row["id"]
        assert isinstance(key, int)
        if op == "-D":
            held.pop(key, None)
        else:
            held[key] = str(row["v"])
    return held


def lines() -> Rows:
    written = Path("lines").read_text().splitlines()
    assert len(written) == len(set(written)), "its place was kept: nothing came twice"
    told = [json.loads(line) for line in written]
    return folded((one["op"], one["row"]) for one in told if "op" in one)


def short() -> Rows:
    return folded(json.loads(line) for line in Path("short").read_text().splitlines())


def in_sqlite() -> Rows:
    with closing(sqlite3.connect("copy")) as file:
        return dict(file.execute('SELECT id, v FROM "public.t"').fetchall())


def hooked(receiver: Receiver) -> Rows:
    changes = [change for call in receiver.taken for change in call["changes"]]
    return folded((one["op"], one["row"]) for one in changes if "op" in one)


def agrees(url: str, what: str, words: list[str], held: Callable[[], Rows], wanted: Rows) -> bool:
    """Run a consumer as people do, and return whether it delivered what the source has by now."""
    called = ["consume", what, url, *words, "--upto", "newest"]
    done = CliRunner().invoke(app, called, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return held() == wanted


@req("P66")
@pytest.mark.long
def test_source_output_place_and_form_are_others_by_configuration_alone(
    shop: psycopg.Connection,
    sources: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "forms.py").write_text(FORM)
    for source, url in sources.items():
        folder = tmp_path / f"from {source}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(tmp_path)
        with receiving() as receiver:
            outputs: dict[tuple[str, ...], Callable[[], Rows]] = {
                ("ndjson", "--to", "lines", "--checkpoint", "place of lines"): lines,
                ("forms:Shortly", "--checkpoint", "place of short"): short,
                # It keeps its place beside its rows.
                ("sql", "--to", "sqlite:copy"): in_sqlite,
                ("http", "--to", receiver.url, "--checkpoint", "place of calls"): partial(
                    hooked, receiver
                ),
            }
            for change in ("1", "2"):
                shop.execute("UPDATE t SET v = v || %s WHERE id < 5", (change,))
                shop.execute("DELETE FROM t WHERE id = (SELECT max(id) FROM t)")
                wanted: Rows = dict(shop.execute("SELECT id, v FROM t").fetchall())
                for (what, *words), held in outputs.items():
                    asked = partial(agrees, url, what, words, held, wanted)
                    until(asked, f"{what} behind {source} as the source has it")
