"""What the coordinator makes of schema changes, and of dumps that cannot be carried out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.model.block import ORIGIN_LOG, Block, SystemEvent, SystemKind, transaction_index
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.registry.file import FileRegistry
from headrace.sources.base import CatalogEntry, CatalogLook, ReceivedMark
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.state.store import RequestState, Scope, StateStore
from headrace.testing.notation import table_of
from headrace.testing.scripted import InlineExecutor
from headrace.watermark.catalog import Catalog
from headrace.watermark.coordinator import Coordinator
from headrace.watermark.reads import Reads
from headrace.watermark.reconciler import Reconciler
from headrace.watermark.settings import DumpSettings
from headrace.watermark.tasks import TaskQueue
from headrace.watermark.window import Window
from tests.requirements import req

OLD = table_of(2)
NEW = replace(OLD, columns=(*OLD.columns, Column("fresh", OLD.columns[1].type, "text")))


class Stage:
    """A coordinator over a scripted database, and its state."""

    def __init__(
        self, folder: Path, table: TableSchema = OLD, catalog: CatalogLook | None = None
    ) -> None:
        self.registry = FileRegistry(folder / "schemas")
        self.state = StateStore(folder / "state.db")
        self.queue = TaskQueue(self.state, [table.table])
        self.database = ScriptedDatabase([table])
        source = ScriptedSource(self.database)
        chunks = source.chunks()
        if catalog is not None:
            # What every look finds.
            chunks.look = lambda *_: catalog  # type: ignore[attr-defined]
        self.coordinator = Coordinator(
            reads=Reads(chunks, source.watermarks(), "run", folder),
            catalog=None if catalog is None else Catalog(self.state),
            executor=InlineExecutor(),
            queue=self.queue,
            reconciler=Reconciler(self.registry.get),
            registry=self.registry,
            log_blocks=lambda _: iter(()),
            settings=DumpSettings(),
            window=Window("run"),
        )

    def see(self, scn: int, schema: TableSchema, **payload: object) -> None:
        """Let the log show a version of the table, and make what follows durable."""
        facts = {"schema_id": self.registry.put(schema), **payload}
        event = SystemEvent(scn, 0, SystemKind.SCHEMA, schema.table, facts)
        index = transaction_index([(scn, 0, scn, 1, ORIGIN_LOG, 1)])
        self.coordinator.observe(Block(index, (), (event,), scn))
        self.state.write(self.coordinator.take_pending())

    def read(self) -> list[ReceivedMark]:
        """Let the table's dump begin, and its first read be made; return the marks that the log is to bring."""
        self.coordinator.tick()
        self.coordinator.tick()
        self.state.write(self.coordinator.take_pending())
        log = self.database.log
        return [ReceivedMark(t.mark, 1_000 + t.scn, 0) for t in log if t.mark is not None]

    def asked_for(self) -> list[TableId | None]:
        """Return the tables of the waiting requests."""
        return [r.table for r in self.state.requests() if r.scope is Scope.TABLE]


@req("P33")
def test_a_column_filled_at_the_source_asks_for_a_dump(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.see(10, OLD)
    assert stage.asked_for() == []
    stage.see(20, NEW, needs_dump=True)
    assert stage.asked_for() == [OLD.table]


@req("P33")
@pytest.mark.parametrize(("filled", "asked"), [(["fresh"], [OLD.table]), (["c1"], [])])
def test_a_column_filled_while_nobody_watched(
    filled: list[str], asked: list[TableId], tmp_path: Path
) -> None:
    Stage(tmp_path).see(10, OLD)
    restarted = Stage(tmp_path)
    restarted.see(20, NEW, filled=filled)
    assert restarted.asked_for() == asked


@req("N02")
def test_a_request_for_an_unknown_table_fails_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.state.submit("TABLE", TableId("public", "nobody"))
    stage.state.submit("TABLE", OLD.table)
    assert stage.queue.current() is None
    stage.state.write(stage.coordinator.take_pending())
    assert stage.queue.current() is not None
    stage.state.write(stage.coordinator.take_pending())
    states = [(r.state, r.reason) for r in stage.state.requests()]
    assert states[0][0] is RequestState.FAILED
    assert "public.nobody is not captured" in states[0][1]
    assert states[1] == (RequestState.ACTIVE, "")


@pytest.mark.parametrize(
    ("scope", "table", "keys"),
    [
        ("ALL_TABLES", OLD.table, []),
        ("TABLE", None, []),
        ("PRIMARY_KEYS", OLD.table, []),
        ("TABLE", OLD.table, [("1",)]),
    ],
)
def test_a_request_whose_parts_do_not_fit_is_refused(
    scope: str, table: TableId | None, keys: list[tuple[str]], tmp_path: Path
) -> None:
    state = StateStore(tmp_path / "state.db")
    with pytest.raises(ValueError, match="ALL_TABLES takes no table"):
        state.submit(scope, table, keys)
    assert state.requests() == []


NUMBERED = replace(OLD, numbers={"k": 1, "c1": 2})
MADE_ANEW = replace(OLD, numbers={"k": 1, "c1": 3})
KEYLESS = table_of(2, check=KeyCheck.NONE)
SEEN, UNSEEN = 5, 500
"""Transactions that the read surely saw, and did not see."""


@req("A-11", "P49")
@pytest.mark.parametrize("amid", [False, True], ids=["before the read", "amid the read"])
@pytest.mark.parametrize(
    ("read", "told", "by", "void"),
    [
        pytest.param(OLD, NEW, UNSEEN, True, id="left behind"),
        pytest.param(OLD, NEW, SEEN, False, id="ahead of the log"),
        pytest.param(OLD, OLD, UNSEEN, False, id="the same"),
        pytest.param(NUMBERED, MADE_ANEW, UNSEEN, True, id="a column made anew"),
        pytest.param(KEYLESS, replace(KEYLESS, columns=NEW.columns), UNSEEN, True, id="keyless"),
        pytest.param(KEYLESS, replace(KEYLESS, columns=NEW.columns), SEEN, False, id="keyless, ahead"),
    ],
)  # fmt: skip
def test_a_read_is_void_when_the_log_left_its_shape_in_a_transaction_that_it_did_not_see(
    read: TableSchema, told: TableSchema, by: int, void: bool, amid: bool, tmp_path: Path
) -> None:
    """Wherever the log says so: a commit is in the log, and told of, before a select sees it."""
    stage = Stage(tmp_path, read)
    stage.database.load(read.table, [(1, "a"), (2, "b")])
    stage.state.submit("TABLE", read.table)
    if not amid:
        stage.see(by, told, numbers=dict(told.numbers))
    low, high = stage.read()
    assert list(stage.coordinator.receive(low)) == []
    if amid:
        stage.see(by, told, numbers=dict(told.numbers))
    blocks = list(stage.coordinator.receive(high))
    stage.state.write(stage.coordinator.take_pending())
    (progress,) = stage.state.progress()
    assert (progress.rows_voided, progress.rows_read) == ((2, 0) if void else (0, 2))
    assert [body.schema_id for b in blocks for body in b.bodies] == [read.schema_id] * (not void)


@req("P49")
@pytest.mark.parametrize(
    ("kind", "table", "more", "void"),
    [
        (SystemKind.DROP_TABLE, OLD.table, {}, True),
        (SystemKind.RENAME_TABLE, OLD.table, {"to": "public.other"}, True),
        (SystemKind.DROP_TABLE, TableId("public", "other"), {}, False),
    ],
)
def test_nothing_is_said_of_a_table_behind_the_word_that_it_is_gone(
    kind: SystemKind, table: TableId, more: dict[str, object], void: bool, tmp_path: Path
) -> None:
    """An event trigger tells the place of DDL in the log, and a window may be open around it."""
    catalog = CatalogLook({"7": CatalogEntry(OLD.table, "")}, {})
    stage = Stage(tmp_path, catalog=catalog)
    stage.database.load(OLD.table, [(1, "a"), (2, "b")])
    stage.state.submit("TABLE", OLD.table)
    # The catalog is looked at first.
    for _ in range(3):
        stage.read()
    low, high = stage.read()
    assert list(stage.coordinator.receive(low)) == []
    event = SystemEvent(UNSEEN, 0, kind, table, {"identity": "7", **more})
    index = transaction_index([(UNSEEN, 0, UNSEEN, 1, ORIGIN_LOG, 1)])
    stage.coordinator.observe(Block(index, (), (event,), UNSEEN))
    blocks = list(stage.coordinator.receive(high))
    assert [body.table for b in blocks for body in b.bodies] == [OLD.table] * (not void)
