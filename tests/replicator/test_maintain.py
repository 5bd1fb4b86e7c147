"""``headrace maintain``: what it does to tables at once, and what it leaves alone."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import ConfigError, TargetConflict
from headrace.lake.commit import put_commit, transaction
from headrace.lake.data_writer import write_rows
from headrace.lake.delta_log import DeltaTable
from headrace.lake.errors import VersionNotFound
from headrace.lake.evolution import create_actions
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.ledger import app_id, table_path
from headrace.lake.pieces import Sizes
from headrace.lake.settings import TableSettings
from headrace.lake.settle import settle
from headrace.model.schema import TableId, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.registry.file import FileRegistry
from headrace.replicator import config_file
from headrace.replicator.maintain import Maintainer
from headrace.replicator.paths import StatePaths
from headrace.testing.notation import table_of
from tests.places import local

TABLE = table_of(2)
ROWS = 1_000
SIZES = Sizes(64 * 1024, 32 * 1024, 0.1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(
        "name: shop\n"
        "source: {type: postgres, tables: ['public.*'], url: 'postgresql://user:swordfish@127.0.0.1:1/db'}\n"
        "target: {type: delta, path: ./lake, maintenance: {target_file: 64KiB, small_file: 32KiB}}\n"
    )
    return path


class Lake:
    """A table of six small files, and the frontier of it."""

    def __init__(self, file: Path, schema: TableSchema = TABLE) -> None:
        config = config_file.load(file)
        self.schema = schema
        self.folder = table_path(local(config.lake), schema.table)
        self.registry = StatePaths.of(config).registry
        FileRegistry(self.registry).put(schema)
        put_commit(self.folder, 0, create_actions(schema, vectors=True))
        self.table = DeltaTable(self.folder)
        for number in range(6):
            self.commit(range(number * ROWS, (number + 1) * ROWS), 10 * (number + 1))
        entry = TableEntry(6, 60, 10, "live")
        FrontierStore(config.lake, "shop").write(Manifest(60, 60, {str(schema.table): entry}, 60))

    def commit(self, keys: range, scn: int) -> None:
        held = self.table.snapshot()
        rows = pa.table({"k": list(keys), "c1": ["x"] * len(keys)}).cast(held.schema)
        position = transaction(app_id("shop", self.schema.table), scn)
        adds = [{"add": add} for add in write_rows(self.folder, rows, ["k"])]
        put_commit(self.folder, held.version + 1, [position, *adds])

    def rows(self) -> Counter[tuple[object, ...]]:
        rows = self.table.snapshot().to_table()
        return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def call(*words: str) -> str:
    shown = CliRunner().invoke(app, ["maintain", *words], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def test_it_says_what_it_did_and_no_row_changes(file: Path) -> None:
    lake = Lake(file)
    rows = lake.rows()
    (done,) = json.loads(call(str(file), "--json"))
    assert lake.rows() == rows
    assert lake.table.snapshot().transactions == {app_id("shop", TABLE.table): 60}
    assert (done["table"], done["pieces"], done["files_before"]) == ("public.t", 1, 6)
    files = lake.table.snapshot().files
    assert done["files_after"] == len(files) < 6
    assert done["bytes_after"] == sum(file.size for file in files)
    assert done["seconds"] > 0
    assert not done["gave_way"]
    # And now there is nothing left to do.
    assert json.loads(call(str(file), "--table", "public.t", "--json"))[0]["pieces"] == 0
    assert "public.t" in call(str(file))


def test_what_a_frontier_promises_stays_and_what_nobody_does_goes(file: Path) -> None:
    lake = Lake(file)
    call(str(file))
    for path in lake.folder.rglob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= 2 * 3_600_000
        path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    rows = lake.table.snapshot(6).to_table()
    assert json.loads(call(str(file), "--json"))[0]["files_removed"] == 0
    assert lake.table.snapshot(6).to_table() == rows
    store = FrontierStore(config_file.load(file).lake, "shop", keep=1)
    store.write(Manifest(70, 70, {"public.t": TableEntry(7, 60, 10, "live")}, 70))
    assert json.loads(call(str(file), "--json"))[0]["files_removed"] == 6
    assert lake.table.snapshot().to_table().num_rows == rows.num_rows


def test_without_any_table_there_is_nothing_to_do(file: Path) -> None:
    assert "nothing to do" in call(str(file))
    assert json.loads(call(str(file), "--json")) == []


def maintainer(file: Path, **settings: object) -> Maintainer:
    config = config_file.load(file)
    given = (("public.*", TableSettings(**settings)),)  # type: ignore[arg-type]
    return Maintainer(config.lake, "shop", StatePaths.of(config).registry, given, SIZES)


def test_a_table_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(VersionNotFound, match=r"public\.other"):
        maintainer(file).maintain(TableId("public", "other"))


def test_a_table_that_somebody_else_made_is_left_alone(file: Path) -> None:
    lake = Lake(file)
    strange = table_path(local(config_file.load(file).lake), TableId("public", "strange"))
    os.rename(lake.folder, strange)
    files = set(strange.rglob("*"))
    with pytest.raises(TargetConflict, match=r"public\.strange .*shop"):
        maintainer(file).maintain(TableId("public", "strange"))
    assert set(strange.rglob("*")) == files
    # It is in no frontier, either.
    assert maintainer(file).tables() == []


@pytest.mark.parametrize(
    "target",
    [
        "{type: delta, path: ./lake, merge: true}",
        "{type: duckdb, path: ./shop.duckdb}",
        "{type: parquet, path: ./changes}",
    ],
)
def test_tables_that_others_write_are_refused(file: Path, target: str) -> None:
    text = file.read_text()
    file.write_text(text[: text.index("target:")] + f"target: {target}\n")
    shown = CliRunner().invoke(app, ["maintain", str(file)])
    assert shown.exit_code == 2
    assert "the target has no files that headrace writes anew" in " ".join(shown.output.split())


def test_a_name_that_is_none_is_refused(file: Path) -> None:
    from headrace.replicator import runner

    with pytest.raises(ConfigError, match=r"schema\.table"):
        runner.maintain(config_file.load(file), "orders")


def test_files_are_sorted_by_the_names_that_the_target_has(file: Path) -> None:
    """The source's table has another name for its key."""
    lake = Lake(file)
    named = table_of(2)
    columns = tuple(
        c if c.name != "k" else type(c)("id", c.type, c.source_type) for c in named.columns
    )
    source = TableSchema(named.table, columns, ("id",), named.key_check)
    source_id = FileRegistry(lake.registry).put(source)
    held = lake.table.snapshot()
    properties = {**held.properties, "headrace.schema_id": str(source_id)}
    put_commit(lake.folder, 7, [{"metaData": {**held.metadata, "configuration": properties}}])
    rows = lake.rows()
    with pytest.raises(TargetConflict, match="columns"):
        maintainer(file).maintain(named.table)
    assert maintainer(file, rename=(("id", "k"),)).maintain(named.table).pieces == 1
    assert lake.rows() == rows


def test_it_gives_way_to_a_replicator_that_keeps_writing_the_same_files(file: Path) -> None:
    lake = Lake(file)

    def touch() -> None:
        held = lake.table.snapshot()
        gone = {
            place: np.array([len(held.files[place].deleted())]) for place in range(len(held.files))
        }
        put_commit(
            lake.folder, held.version + 1, settle(held, gone, held.schema.empty_table(), ["k"])
        )

    arm("maintenance.files_written", touch)
    try:
        done = maintainer(file).maintain(TABLE.table)
    finally:
        disarm()
    assert (done.pieces, done.gave_way) == (0, True)
    assert sum(lake.rows().values()) == 6 * ROWS - 6 * 10
    # Nothing lies about that nobody wants.
    names = {file.path for file in lake.table.snapshot().files}
    assert set(lake.folder.glob("part-*")) == names
