"""Removes the tables of a replicator from its target: those that it says are its own, and no others.

In: where the tables are. Out: nothing of them, nor of what was kept about them. Done again after a crash it goes on
with what is left: what says which tables there are goes last.
"""

from __future__ import annotations

from headrace.lake import FrontierStore
from headrace.lake.ledger import table_path
from headrace.lake.sql.session import Warehouse
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import TableId
from headrace.store.base import store_of
from headrace.store.location import Location

__all__ = ["discard_target"]

_HEART = "_delta_log"


def discard_target(lake: Location, name: str, warehouse: Warehouse | None) -> None:
    """Remove every table that a replicator's newest frontier, or its ledger in a warehouse, names.

    Args:
        lake: where tables and frontiers lie.
        name: of the replicator.
        warehouse: where the tables are, None when they are files.

    Raises:
        TargetError: the target cannot be reached, or refuses.
    """
    if warehouse is not None:
        tables = WarehouseTables(warehouse, name)
        with warehouse.opened() as session:
            for table in tables.entries(session):
                tables.drop(session, table)
        return
    newest = FrontierStore(lake, name).latest()
    store = store_of(lake)
    for named in newest.tables if newest else ():
        store.discard(table_path(lake, TableId.parse(named)), _HEART)
    store.discard(lake / "_headrace" / name, "frontier")
