"""What a staging table holds: where a row comes from, what it is now, and what is done; a table for each batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.fold import fold
from headrace.lake.modes import Mode, shaped
from headrace.lake.sql.session import Session, Warehouse
from headrace.lake.sql.staged import Staged
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import KeyCheck, TableSchema
from headrace.testing.lives import Transaction
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.lake.kept_table import logged
from tests.lake.sql.warehouses import STAGES, TRANSACTIONAL, content, counted, made
from tests.requirements import req

pytestmark = pytest.mark.postgres


@pytest.fixture(params=TRANSACTIONAL)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return made(request.param, request, tmp_path)


def folded(schema: TableSchema, history: str) -> pa.Table:
    return fold(schema, [change_batch(schema, parse_history(history).rows)])


def columns(session: Session, staged: Staged) -> dict[str, str]:
    """Return the columns of a staging table and their types, in order."""
    rows = session.rows(
        "SELECT column_name, lower(data_type) FROM information_schema.columns "
        f"WHERE table_name = '{staged.name.rpartition('.')[2]}' ORDER BY ordinal_position"
    )
    return {str(name): str(type_) for name, type_ in rows}


def staging_tables(session: Session) -> int:
    ((count,),) = session.rows(
        "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'stage%'"
    )
    return int(str(count))


@req("C39")
def test_a_staging_table_has_the_row_before_and_after_and_the_operation(
    warehouse: Warehouse,
) -> None:
    """Rows are folded before they are staged: of the row before only the key is left, and of a batch one number, which
    the ledger has. The batch is the table itself, which no other batch shares, so nothing has to be partitioned."""
    schema, stage = table_of(3), STAGES[warehouse.dialect.name]
    tables = WarehouseTables(warehouse, "test")
    with warehouse.opened() as session:
        tables.evolve(session, schema)
        history = "+I(1,a,b) +I(2,c,d) +I(3,e,f)"
        with session.transaction():
            staged = tables.stage(session, schema, folded(schema, history), stage)
            assert list(columns(session, staged)) == ["effect", "c0", "c1", "c2"]
            tables.apply(session, schema, staged, 1, complete=True)
            assert staging_tables(session) == 0
        with session.transaction():
            history = "-U(1) +U(9,x,?) | =U(2,y,?) | -D(3) | +I(4,g,.)"
            staged = tables.stage(session, schema, folded(schema, history), stage)
            found = columns(session, staged)
            assert list(found) == ["effect", "asks", "o0", "m2", "c0", "c1", "c2"]
            assert {found[name] for name in ("o0", "c0")} == {"bigint"}
            assert {found[name] for name in ("asks", "m2")} == {"boolean"}
            rows = session.rows(f"SELECT effect, o0, m2, c0, c1, c2 FROM {stage} ORDER BY c0")
            # Before: the key that lends the cell; then what is missing; then the row after.
            assert [tuple(row) for row in rows] == [
                (0, None, False, 1, None, None),
                (1, 2, True, 2, "y", None),
                (0, None, False, 3, None, None),
                (1, None, False, 4, "g", None),
                (1, 1, True, 9, "x", None),
            ]
            entry = tables.apply(session, schema, staged, 5, complete=True)
            assert (entry.applied_scn, staging_tables(session)) == (5, 0)
    assert counted(content(warehouse, schema)) == {
        (2, "y", "d"): 1,
        (4, "g", None): 1,
        (9, "x", "b"): 1,
    }


@req("C39")
def test_a_staging_table_without_key_counts_and_one_of_changes_numbers_them(
    warehouse: Warehouse,
) -> None:
    stage = STAGES[warehouse.dialect.name]
    bag = table_of(2, check=KeyCheck.NONE)
    tables = WarehouseTables(warehouse, "test")
    with warehouse.opened() as session:
        tables.evolve(session, bag)
        with session.transaction():
            effects = folded(bag, "+I(1,a) +I(1,a) +I(2,b) | -D(2,b) | +I(3,c)")
            staged = tables.stage(session, bag, effects, stage)
            assert list(columns(session, staged)) == ["place", "copies", "c0", "c1"]
            rows = session.rows(f"SELECT copies, c0, c1 FROM {stage} ORDER BY c0")
            assert [tuple(row) for row in rows] == [(1, 1, "a"), (1, 1, "a"), (1, 3, "c")]
            tables.apply(session, bag, staged, 3, complete=True)
        schema = table_of(2, name="changes")
        life = [Transaction(10), Transaction(20)]
        life[0].add("+I", (1, "a"))
        life[0].add("+I", (2, "b"))
        life[1].add("-D", (1,))
        target = shaped(schema, Mode.APPEND)
        assert target.names == ["k", "c1", "_op", "_scn", "_ord", "_committed_at", "_missing"]
        tables.evolve(session, target)
        with session.transaction():
            staged = tables.stage(session, schema, logged(schema, life), stage, Mode.APPEND)
            assert list(columns(session, staged)) == [f"c{n}" for n in range(7)]
            rows = session.rows(f"SELECT c2, c3, c4, c0 FROM {stage} ORDER BY c3, c4")
            assert [tuple(row) for row in rows] == [
                ("+I", 10, 0, 1),
                ("+I", 10, 1, 2),
                ("-D", 20, 0, 1),
            ]
            tables.apply(session, schema, staged, 20, Mode.APPEND, complete=True)
