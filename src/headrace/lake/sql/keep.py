"""One batch of a table that is no mirror: from the staging table into the target, inside the caller's transaction.

The rules are those of `headrace.lake.kept`, here as statements: cells that a change left out are taken from live rows
of the target, versions that change nothing go, and what is left ends rows and begins others.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

import datetime as dt

from headrace.lake.modes import (
    CURRENT,
    DELETED,
    DELETED_AT,
    FROM_SCN,
    SCN,
    TO_SCN,
    VALID_FROM,
    VALID_TO,
    Mode,
    shaped,
)
from headrace.lake.sql.cells import Cells
from headrace.lake.sql.dialect import Dialect, literal, quoted, table_name
from headrace.lake.sql.session import Session
from headrace.lake.sql.staged import Staged
from headrace.lake.sql.staged_versions import StagedVersions
from headrace.model.schema import TableId, TableSchema

__all__ = ["append", "keep"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def append(
    session: Session, dialect: Dialect, place: TableId, schema: TableSchema, staged: Staged
) -> None:
    """Add a batch's changes to a table; arguments as of `keep`."""
    if not staged.name:
        return
    cells = Cells(dialect, shaped(schema, Mode.APPEND), staged)
    session.run(
        f"INSERT INTO {table_name(place)} ({', '.join(cells.names)}) "
        f"SELECT {', '.join(cells.staged)} FROM {staged.name} AS s"
    )


def keep(
    session: Session,
    dialect: Dialect,
    place: TableId,
    schema: TableSchema,
    mode: Mode,
    staged: StagedVersions,
    *,
    complete: bool,
) -> None:
    """Bring a table's rows behind a batch.

    Args:
        session: in a transaction.
        dialect: of the warehouse.
        place: of the target table, which has the columns of ``schema`` and those of the mode.
        schema: version of the changes.
        mode: of the table.
        staged: what is staged.
        complete: whether every row of the source is in the table.

    Raises:
        MissingBase: a complete table lacks the row that a change patches.
    """
    work = _Work(session, dialect, place, schema, mode, staged)
    if staged.name:
        work.fill(complete=complete)
        work.leave_idle_out()
    if mode is Mode.HISTORY:
        work.history()
    else:
        work.soft_delete()


class _Work:
    """The statements of one batch; ``t`` is the target's row, ``s`` a staged version, ``p`` the one ahead of it."""

    def __init__(
        self,
        session: Session,
        dialect: Dialect,
        place: TableId,
        schema: TableSchema,
        mode: Mode,
        staged: StagedVersions,
    ) -> None:
        self.session, self.staged, self.stage = session, staged, staged.name
        self.target = table_name(place)
        self.cells = Cells(dialect, schema, staged, exact=True)
        history = mode is Mode.HISTORY
        self.live = f"t.{quoted(CURRENT)}" if history else f"NOT t.{quoted(DELETED)}"
        self.same_key = self.cells.same_key()
        self.may_be_gone = staged.dies

    def fill(self, *, complete: bool) -> None:
        """Fill in the cells that changes left out; a version that lacks some after that leaves no row."""
        staged = self.staged
        if staged.asks:
            self.cells.borrow(self.session, self.target, self.live)
        lost = [f"m{i}" for i in staged.needed]
        if complete and lost:
            unfounded = f"({' OR '.join(lost)}) AND closes AND NOT died"
            self.cells.refuse_lost(self.session, unfounded)
        if not complete and staged.asks:
            # Pieced together from patches alone: cut elsewhere, the first of them would have found no row either.
            lost.append("asks")
        if lost:
            self.session.run(f"UPDATE {self.stage} SET gone = TRUE WHERE {' OR '.join(lost)}")
            self.may_be_gone = True

    def leave_idle_out(self) -> None:
        """Take the versions away that change nothing: a death of nothing, a chunk row that is there already."""
        if not (self.may_be_gone or self.staged.tells):
            return
        asked = "(s.gone OR s.told)"
        ahead = f"FROM {self.stage} AS p WHERE NOT s.opens AND p.place = s.place - 1"
        there = f"FROM {self.target} AS t WHERE s.opens AND s.reaches AND {self.live} AND {self.same_key}"
        mark = f"UPDATE {self.stage} AS s SET"
        self.session.run(f"{mark} held = TRUE {there} AND {asked}")
        self.session.run(f"{mark} held = TRUE {ahead} AND {asked} AND NOT p.gone")
        if self.staged.tells:
            cells, again = self.cells, "AND s.told AND s.held AND NOT s.gone"
            same = cells.same_row(cells.held, cells.staged)
            self.session.run(f"{mark} idle = TRUE {there} {again} AND {same}")
            same = cells.same_row(cells.staged_as("p"), cells.staged)
            self.session.run(f"{mark} idle = TRUE {ahead} {again} AND {same}")
        self.session.run(f"DELETE FROM {self.stage} WHERE idle OR (gone AND NOT held)")

    def history(self) -> None:
        """End what does not hold any more, and begin what does."""
        if self.stage:
            first = self._numbered("ROW_NUMBER() OVER (PARTITION BY code ORDER BY place) AS nth")
            self.session.run(
                f"UPDATE {self.target} AS t SET {self._ended('s.since', 's.scn')} FROM {first} "
                f"WHERE s.nth = 1 AND s.reaches AND {self.live} AND {self.same_key}"
            )
        if self.staged.wiped_scn is not None:
            self.session.run(
                f"UPDATE {self.target} AS t SET {self._ended(self._wiped_at(), self.staged.wiped_scn)} "
                f"WHERE {self.live}"
            )
        if self.stage:
            window = "OVER (PARTITION BY code ORDER BY place)"
            follows = self._numbered(
                f"LEAD(since) {window} AS until, LEAD(scn) {window} AS upto_scn"
            )
            added = (VALID_FROM, VALID_TO, FROM_SCN, TO_SCN, CURRENT)
            cells = "s.since, s.until, s.scn, s.upto_scn, s.upto_scn IS NULL"
            self._insert(added, cells, follows, "NOT s.gone")

    def soft_delete(self) -> None:
        """Put the last version of each key in the place of the row that was there, and say what was deleted."""
        if self.stage:
            self.session.run(
                f"DELETE FROM {self.target} AS t USING {self.stage} AS s WHERE {self.same_key}"
            )
        if self.staged.wiped_scn is not None:
            self.session.run(
                f"UPDATE {self.target} AS t SET {quoted(DELETED)} = TRUE, "
                f"{quoted(DELETED_AT)} = {self._wiped_at()}, {quoted(SCN)} = {self.staged.wiped_scn} "
                f"WHERE {self.live}"
            )
        if self.stage:
            last = self._numbered(
                "ROW_NUMBER() OVER (PARTITION BY code ORDER BY place DESC) AS nth"
            )
            cells = "s.gone, CASE WHEN s.gone THEN s.since END, s.scn"
            self._insert((DELETED, DELETED_AT, SCN), cells, last, "s.nth = 1")

    def _insert(self, added: tuple[str, ...], cells: str, rows: str, chosen: str) -> None:
        names = ", ".join([*self.cells.names, *map(quoted, added)])
        own = ", ".join(self.cells.staged)
        self.session.run(
            f"INSERT INTO {self.target} ({names}) SELECT {own}, {cells} FROM {rows} WHERE {chosen}"
        )

    def _numbered(self, further: str) -> str:
        return f"(SELECT v.*, {further} FROM {self.stage} AS v) AS s"

    def _wiped_at(self) -> str:
        at = _EPOCH + dt.timedelta(microseconds=self.staged.wiped_us)
        return f"CAST({literal(at.isoformat(' '))} AS timestamptz)"

    @staticmethod
    def _ended(at: str, scn: str | int) -> str:
        return f"{quoted(VALID_TO)} = {at}, {quoted(TO_SCN)} = {scn}, {quoted(CURRENT)} = FALSE"
