"""What a warehouse shows of the source's rows, and how its tables differ, without a server: a DuckDB file."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.fold import fold
from headrace.lake.copies import Copy
from headrace.lake.frontier import TableEntry
from headrace.lake.modes import Mode, shaped
from headrace.lake.policies import Dropped, Incompatible, Policies
from headrace.lake.settings import TableSettings
from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import Column, Shape, TableSchema
from headrace.replicator.schema_diff import schema_diff
from headrace.replicator.warehouse_replicas import WarehouseReplicas
from headrace.testing.lives import Transaction
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.lake.kept_table import logged
from tests.lake.sql.warehouses import STAGES
from tests.requirements import req

SOURCE = replace(table_of(4), numbers={"k": 1, "c1": 2, "c2": 3, "c3": 4})


class Place:
    """A warehouse with one table, asked about as verify and the diff do."""

    def __init__(self, folder: Path, settings: TableSettings) -> None:
        self.folder = folder
        self.warehouse = DuckdbWarehouse(folder / "w.duckdb")
        self.settings = settings
        self.tables = WarehouseTables(self.warehouse, "test")

    def make(self, target: TableSchema, policies: Policies | None = None) -> None:
        with self.warehouse.opened() as session:
            self.tables.evolve(session, target, policies or Policies())

    def apply(self, schema: TableSchema, rows: pa.Table, scn: int) -> None:
        mode = self.settings.mode
        with self.warehouse.opened() as session, session.transaction():
            staged = self.tables.stage(session, schema, rows, STAGES["duckdb"], mode)
            self.tables.apply(session, schema, staged, scn, mode, complete=True)

    @property
    def replicas(self) -> WarehouseReplicas:
        given = (("public.*", self.settings),)
        return WarehouseReplicas(self.warehouse, self.folder, "test", given)

    def shown(self, schema: TableSchema) -> Counter[tuple[Any, ...]]:
        """Return the rows that are compared with the source's."""
        alike = self.replicas.alike(schema)
        with self.replicas.opened() as shown:
            batches = list(shown.rows(alike, 1))
        rows = pa.Table.from_batches(batches).select(alike.names).to_pylist()
        return Counter(tuple(row.values()) for row in rows)

    def uncompared(self) -> str | None:
        with self.replicas.opened() as shown:
            return shown.uncompared(SOURCE.table, 1)

    def changes(self, source: TableSchema) -> list[tuple[str, str]]:
        (found,) = schema_diff([source], self.replicas, lambda _: ())
        return [(one["change"], one["column"]) for one in found.to_json()["changes"]]


def life() -> list[Transaction]:
    one, two = Transaction(10), Transaction(20)
    one.add("+I", (1, "a", "b", "c"))
    one.add("+I", (2, "d", "e", "f"))
    two.add("-D", (1, "?", "?", "?"))
    two.add("=U", (2, "x", "?", "?"))
    return [one, two]


@pytest.mark.parametrize("mode", [Mode.SOFT_DELETE, Mode.HISTORY])
def test_the_live_rows_are_those_of_the_source(tmp_path: Path, mode: Mode) -> None:
    place = Place(tmp_path, TableSettings(mode))
    place.make(shaped(SOURCE, mode))
    place.apply(SOURCE, logged(SOURCE, life()), 20)
    assert place.shown(SOURCE) == {(2, "x", "e", "f"): 1}
    assert place.uncompared() is None
    # A column that changed its name at the source is shown by the name that it has there now.
    columns = (*SOURCE.columns[:3], replace(SOURCE.columns[3], name="label"))
    later = replace(SOURCE, columns=columns, numbers={"k": 1, "c1": 2, "c2": 3, "label": 4})
    assert place.shown(later) == {(2, "x", "e", "f"): 1}
    assert place.changes(SOURCE) == []
    assert place.changes(later) == [("rename", "c3")]


def test_a_table_of_changes_has_no_rows_to_compare(tmp_path: Path) -> None:
    place = Place(tmp_path, TableSettings(Mode.APPEND))
    place.make(shaped(SOURCE, Mode.APPEND))
    assert place.uncompared() == "append"


def test_columns_that_the_target_lacks_makes_or_names_otherwise_are_no_difference(
    tmp_path: Path,
) -> None:
    settings = TableSettings(
        drop=("c1",),
        rename=(("k", "id"), ("c2", "mail"), ("c3", "note")),
        mask=(("c2", "sha2(c2, 256)"),),
        compute=(("loud", "upper(c3)"),),
    )
    place = Place(tmp_path, settings)
    names = settings.renamed(SOURCE)
    own = (names.columns[0], *names.columns[2:], Column("loud", pa.string(), "compute"))
    numbers = {"id": 1, "mail": 3, "note": 4}
    shape = Shape(settings.shape, SOURCE.schema_id)
    target = replace(names, columns=own, numbers=numbers, shape=shape)
    place.make(target)
    rows = parse_history("+I(1,digest,n,N)").rows
    place.apply(target, fold(target, [change_batch(target, rows)]), 10)
    assert place.shown(SOURCE) == {(1, "n"): 1}
    assert place.changes(SOURCE) == []
    assert place.uncompared() is None
    fewer = replace(SOURCE, columns=SOURCE.columns[:3], numbers={"k": 1, "c1": 2, "c2": 3})
    assert place.changes(fewer) == [("drop", "note")]
    place.settings = replace(settings, where="k > 3")
    assert place.uncompared() == "where"


@req("C30")
def test_kept_columns_are_told_ahead_and_passed_over(tmp_path: Path) -> None:
    keeping = Policies(Incompatible.NEW_COLUMN, Dropped.KEEP)
    place = Place(tmp_path, TableSettings(policies=keeping))
    place.make(SOURCE)
    rows = parse_history("+I(1,a,b,c)").rows
    place.apply(SOURCE, fold(SOURCE, [change_batch(SOURCE, rows)]), 10)
    other = replace(SOURCE.columns[1], type=pa.int64(), source_type="int8")
    columns = (SOURCE.columns[0], other, SOURCE.columns[2])
    later = replace(SOURCE, columns=columns, numbers={"k": 1, "c1": 2, "c2": 3})
    assert place.changes(later) == [("aside", "c1"), ("keep", "c3"), ("add", "c1")]
    place.make(later, keeping)
    assert place.changes(later) == []
    assert place.shown(later) == {(1, None, "b"): 1}


@req("C30")
def test_a_table_that_is_copied_again_shows_its_old_rows_at_their_position(tmp_path: Path) -> None:
    place = Place(tmp_path, TableSettings(policies=Policies(Incompatible.RECOPY)))
    place.make(SOURCE)
    place.apply(SOURCE, fold(SOURCE, [change_batch(SOURCE, parse_history("+I(1,a,b,c)").rows)]), 10)
    other = replace(SOURCE.columns[1], type=pa.int64(), source_type="int8")
    later = replace(SOURCE, columns=(SOURCE.columns[0], other, *SOURCE.columns[2:]))
    assert place.changes(later) == [("recopy", "c1")]
    with place.warehouse.opened() as session:
        place.tables.begin_copy(session, later, Copy("asked", 20))
    with place.replicas.opened() as shown:
        assert shown.version(SOURCE.table, TableEntry(0, 0, None, "copying")) == 1
    assert place.shown(SOURCE) == {(1, "a", "b", "c"): 1}
    # It is on its way already.
    assert place.changes(later) == []
