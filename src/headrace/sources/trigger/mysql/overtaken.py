"""Whether a snapshot shows a row's change and not the one before it, as MariaDB's may.

MariaDB lists the open transactions for a snapshot one after the other, while they end. One that is listed may commit
before the list is done, and one that waited for its rows, changed them and committed in the same moment may be missed:
the snapshot shows the second change of a row and not the first. Where there is a binary log that both are in, the
server lets nobody commit meanwhile; where there is none it does not. What was missed is visible to any snapshot that
begins later.

Source: MariaDB, storage/innobase/include/trx0sys.h, ``snapshot_ids``; sql/handler.cc, ``ha_start_consistent_snapshot``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from headrace.sources.mysql.connection import Session
from headrace.sources.trigger.mysql.image import cells_of
from headrace.sources.trigger.mysql.layout import Layout

__all__ = ["is_overtaken"]

_ROWS = 1_000
_MOST = 100_000
"""Keys that are kept to be looked for."""

_LATE = (
    "FROM headrace.txlog_changes FORCE INDEX (scn) "
    "WHERE scn IS NULL AND op IN ('I', 'U', 'D') AND id < {}"
)
_GIVEN = (
    "FROM headrace.txlog_changes FORCE INDEX (scn) WHERE scn = {} AND id > {} AND layout IN ({})"
)
_LAYOUTS = "SELECT id, layout FROM headrace.txlog_layouts"

_Key = tuple[int, tuple[bytes | None, ...]]


def is_overtaken(session: Session, scn: int, last_id: int) -> bool:
    """Return whether a change without a number comes before one of the same row that has been given one.

    It may say so of a snapshot that is sound, when very many changes are committed while it is looked.

    Args:
        session: gave the numbers and has not committed them; sees what is committed now.
        scn: that was given.
        last_id: the highest id that was given it.
    """
    behind = _LATE.format(last_id)
    if not session.rows(f"SELECT 1 {behind} LIMIT 1"):
        return False
    rows = _Rows(session)
    late: dict[_Key, int] = {}
    for id_, key in rows.keys(behind):
        late[key] = min(id_, late.get(key, id_))
        if len(late) > _MOST:
            return True
    if not late:
        return False
    layouts = ", ".join(str(layout) for layout in {layout for layout, _ in late})
    given = rows.keys(_GIVEN.format(scn, min(late.values()), layouts))
    return any(late.get(key, id_) < id_ for id_, key in given)


class _Rows:
    """Reads which rows were changed, by key, or as a whole where a table has none."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._places: dict[int, tuple[int, list[int]]] = {}
        for id_, text in session.rows(_LAYOUTS):
            table = Layout.parse(text or b"").rows
            names = [column[0] for column in table.columns]
            places = [names.index(name) for name in table.key or names]
            self._places[int(id_ or 0)] = len(names), places

    def keys(self, changes: str) -> Iterator[tuple[int, _Key]]:
        """Yield the id of each change with the key before it, and with the one behind it."""
        sql = f"SELECT id, layout, `before`, `after` {changes}"
        with contextlib.closing(self._session.stream(sql, _ROWS)) as pieces:
            for id_, layout, *images in itertools.chain.from_iterable(pieces):
                for image in images:
                    if image is not None:
                        yield int(id_ or 0), self._key(int(layout or 0), image)

    def _key(self, layout: int, image: bytes) -> _Key:
        width, places = self._places[layout]
        cells = cells_of(image, width)
        return layout, tuple(cells[place] for place in places)
