"""What verify found, as values: counts, versions and digests of keys, never a row's value."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

__all__ = ["TableReport", "Uncompared", "VerifyReport", "VerifyState"]

Uncompared = Literal["append", "where", "ignore"]
"""Why a table is not compared. ``append``: its target keeps changes, which are no rows. ``where``: its target has the
rows of a condition in Spark's SQL, which the source cannot be asked for. ``ignore``: operations of the source do not
reach its target."""

VerifyState = Literal["equal", "different", "copying", "behind"] | Uncompared
"""``copying``: the table's dump is not complete. ``behind``: change log or target did not reach, in
time, a point that could be compared with the source's snapshot."""


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table.

    Attributes:
        table: ``schema.table``.
        source_rows: rows that the snapshot sees.
        target_rows: rows of the target, brought to the same transactions.
        missing: rows the target lacks.
        extra: rows the source does not have.
        different: keys that both have, with unequal rows.
        equal: whether both hold the same rows, each as often.
        target_version: version of the target table that was read, None when none was.
        frontier_scn: position that this version reflects, None when none was read.
        seconds: time this table took.
        state: the verdict.
        key_hashes: some of the differing keys, as MD5 of their text, for `--json`.
        left_out: columns of the source that were not compared, because the target lacks or masks them.
    """

    table: str
    source_rows: int
    target_rows: int
    missing: int
    extra: int
    different: int
    equal: bool
    target_version: int | None
    frontier_scn: int | None
    seconds: float
    state: VerifyState
    key_hashes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def comparable(self) -> bool:
        """Whether the target has rows that should be the source's."""
        return self.state not in get_args(Uncompared)

    @property
    def differing_keys(self) -> int:
        """Rows and keys on which source and target disagree."""
        return self.missing + self.extra + self.different

    @classmethod
    def unread(cls, table: str, state: VerifyState) -> TableReport:
        """Return the report of a table that could not be compared."""
        return cls(table, 0, 0, 0, 0, 0, False, None, None, 0.0, state)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All tables under one snapshot of the source.

    Attributes:
        tables: one report per table, in the order asked for.
        snapshot: the source's snapshot as the server writes it.
        frontier_scn: the frontier that the target was read at, None when there was none.
    """

    tables: tuple[TableReport, ...]
    snapshot: str
    frontier_scn: int | None

    @property
    def equal(self) -> bool:
        """Whether every table is equal that can be compared."""
        return all(table.equal for table in self.tables if table.comparable)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for machines."""
        return {
            "equal": self.equal,
            "snapshot": self.snapshot,
            "frontier_scn": self.frontier_scn,
            "tables": [
                {
                    **asdict(table),
                    "key_hashes": list(table.key_hashes),
                    "left_out": list(table.left_out),
                }
                for table in self.tables
            ],
        }
