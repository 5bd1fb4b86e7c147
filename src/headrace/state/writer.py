"""The writes of one transaction of the state database."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update
from sqlalchemy.dialects.sqlite import Insert
from sqlalchemy.dialects.sqlite import insert as upsert

from headrace.model.schema import TableId
from headrace.state import tables as t
from headrace.state.records import Certificate, DumpProgress, RequestState

__all__ = ["GAP", "SINCE", "StateWriter", "key_text"]

Key = tuple[str, ...]

GAP = "gap."
"""What the names of values begin with that say that a table lacks changes."""
SINCE = "since."
"""What the names of values begin with that say from where on the log lacks no change of a table."""


def _put(table: Table, *key: str) -> Insert:
    """Return the statement that writes a row over the one of the same key; put together once, run often."""
    statement = upsert(table)
    return statement.on_conflict_do_update(
        index_elements=list(key), set_={c.name: statement.excluded[c.name] for c in table.c}
    )


_SET = _put(t.meta, "name")
_PUT_PROGRESS = _put(t.progress, "request_id", "table")
_ADD_REREAD = upsert(t.reread).on_conflict_do_nothing()
_ADD_CERTIFICATE = insert(t.certificates)


def key_text(key: Sequence[str] | None) -> str:
    """Return a key as it is stored; empty for none."""
    return "" if key is None else json.dumps(list(key))


class StateWriter:
    """Writes inside one transaction of `headrace.state.store.StateStore.write`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def set(self, name: str, value: str) -> None:
        """Keep a single value."""
        self._connection.execute(_SET, {"name": name, "value": value})

    def set_gap(self, table: TableId, *, open_: bool) -> None:
        """Say that changes of a table are missing, or that they are made up for."""
        self.set(f"{GAP}{table}", "open" if open_ else "")

    def set_since(self, table: TableId, scn: int) -> None:
        """Say that the log lacks no change of a table above an SCN."""
        self.set(f"{SINCE}{table}", str(scn))

    def request_state(
        self,
        request_id: str,
        state: RequestState,
        *,
        since: Sequence[RequestState],
        reason: str = "",
    ) -> bool:
        """Move a request to a state, unless somebody moved it elsewhere meanwhile.

        Args:
            request_id: which.
            state: where to.
            since: the states that it may be in now.
            reason: why, for people.

        Returns:
            whether it was moved.
        """
        values: dict[str, Any] = {"state": state.value, "reason": reason, "updated_s": time.time()}
        done = self._connection.execute(
            update(t.requests)
            .where(
                t.requests.c.request_id == request_id,
                t.requests.c.state.in_([one.value for one in since]),
            )
            .values(values)
        )
        return bool(done.rowcount)

    def end_cancelled(self) -> None:
        """Say of tables of cancelled requests that were under way, or waited, that nobody reads them any more."""
        cancelled = select(t.requests.c.request_id).where(
            t.requests.c.state == RequestState.CANCELLED.value
        )
        self._connection.execute(
            update(t.progress)
            .where(
                t.progress.c.request_id.in_(cancelled),
                t.progress.c.state.in_(("waiting", "copying")),
            )
            .values(state="cancelled")
        )

    def request_missing(self, request_id: str, missing: Sequence[Key]) -> None:
        """Keep the requested keys that do not exist at the source."""
        value = json.dumps([list(key) for key in missing])
        self._connection.execute(
            update(t.requests).where(t.requests.c.request_id == request_id).values(missing=value)
        )

    def put_progress(self, progress: DumpProgress, position: int) -> None:
        """Keep a table's progress."""
        row = {
            "request_id": progress.request_id,
            "table": str(progress.table),
            "position": position,
            "state": progress.state,
            "until": key_text(progress.until),
            "after": key_text(progress.after),
            "chunks": progress.chunks,
            "rows_read": progress.rows_read,
            "rows_emitted": progress.rows_emitted,
            "rows_voided": progress.rows_voided,
            "rows_estimated": progress.rows_estimated,
            "completed_scn": progress.completed_scn,
            "keys_done": progress.keys_done,
            "rows_per_s": progress.rows_per_s,
            "first_scn": progress.first_scn,
            "key_order": progress.key_order,
        }
        self._connection.execute(_PUT_PROGRESS, row)

    def add_reread(self, table: TableId, keys: Sequence[Key]) -> None:
        """Put keys on a table's re-read list."""
        rows = [{"table": str(table), "key": key_text(key)} for key in keys]
        if rows:
            self._connection.execute(_ADD_REREAD, rows)

    def remove_reread(self, table: TableId, keys: Sequence[Key]) -> None:
        """Take keys off a table's re-read list."""
        for key in keys:
            self._connection.execute(
                delete(t.reread).where(
                    t.reread.c.table == str(table), t.reread.c.key == key_text(key)
                )
            )

    def add_certificate(self, c: Certificate) -> None:
        """Keep what a chunk vouches for."""
        row = {
            "request_id": c.request_id,
            "table": str(c.table),
            "after": key_text(c.after),
            "last": key_text(c.last),
            "low_scn": c.low_scn,
            "high_scn": c.high_scn,
            "snapshot": c.snapshot,
            "rows": c.rows,
            "emitted": c.emitted,
            "digest": c.digest,
            "schema_id": f"{c.schema_id:016x}",
        }
        self._connection.execute(_ADD_CERTIFICATE, row)
