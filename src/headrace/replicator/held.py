"""What a target holds of a replicator whose state begins anew.

In: where its tables are. Out: how far they are, and a refusal where they hold something: the change log that led there
is not in the state folder, so rows that were deleted since would stay for ever, and nothing would tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import ChangeLogLost
from headrace.lake.frontier import FrontierStore
from headrace.store.location import Location

if TYPE_CHECKING:
    from headrace.lake.sql.session import Warehouse

__all__ = ["held_scn", "refuse_held"]


def held_scn(lake: Location, name: str, warehouse: Warehouse | None) -> int:
    """Return the highest SCN that the target shows of a replicator, 0 where it shows nothing.

    Args:
        lake: where frontiers lie.
        name: of the replicator.
        warehouse: where the tables are, None when they are files.

    Raises:
        TargetError: the target cannot be reached, or does not read.
    """
    newest = FrontierStore(lake, name).latest()
    held = newest.scn if newest else 0
    if warehouse is None:
        return held
    # A capture of files needs none of it.
    from headrace.lake.sql.tables import WarehouseTables

    with warehouse.opened(read_only=True) as session:
        entries = WarehouseTables(warehouse, name).entries(session)
    return max([held, *(entry.applied_scn for entry in entries.values())])


def refuse_held(name: str, scn: int) -> None:
    """Do nothing where the target shows nothing.

    Raises:
        ChangeLogLost: it shows tables up to ``scn``.
    """
    if not scn:
        return
    raise ChangeLogLost(
        f"The target holds tables of replicator {name} up to SCN {scn}, and the state folder has no change log that "
        "led there: what was deleted since would stay in them.",
        next_step="restore the state folder; or run `headrace resync FILE`, with which the next start empties these "
        "tables and copies them again; or give the replicator another name, or another target.",
    )
