"""What modes keep of a table's life, told from the truth alone, one transaction after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.testing.lives import Transaction

__all__ = ["ModelVersions", "Version"]

Cells = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one row: its cells, and the commits between which it held; None while it does."""

    cells: Cells
    begun: Transaction
    ended: Transaction | None = None


@dataclass(slots=True)
class ModelVersions:
    """Every version of every row of one table."""

    ended: list[Version] = field(default_factory=list)
    current: dict[int, Version] = field(default_factory=dict)
    gone: dict[int, tuple[Cells, Transaction]] = field(default_factory=dict)

    @classmethod
    def of(cls, life: Iterable[Transaction]) -> ModelVersions:
        """Return the versions of a whole life."""
        model = cls()
        for transaction in life:
            model.take(transaction)
        return model

    def take(self, transaction: Transaction) -> None:
        """Take one transaction: of each key that it touched only what it leaves counts."""
        for key in transaction.touched:
            held, cells = self.current.get(key), transaction.state.get(key)
            if transaction.read and held is not None and held.cells == cells:
                continue
            if held is not None:
                self.ended.append(Version(held.cells, held.begun, transaction))
                del self.current[key]
            if cells is not None:
                self.current[key] = Version(cells, transaction)
                self.gone.pop(key, None)
            elif held is not None:
                self.gone[key] = (transaction.had[key], transaction)

    def history(self) -> Counter[Cells]:
        """Return the rows of a history: cells, begin, end, both as SCN and time, and whether it holds."""
        rows = [*self.ended, *self.current.values()]
        return Counter(
            (
                *version.cells,
                version.begun.commit_us,
                version.ended.commit_us if version.ended else None,
                version.begun.scn,
                version.ended.scn if version.ended else None,
                version.ended is None,
            )
            for version in rows
        )

    def soft(self) -> Counter[Cells]:
        """Return the rows of a table that keeps deleted ones: cells, whether and when deleted, last SCN."""
        live = [
            (*version.cells, False, None, version.begun.scn) for version in self.current.values()
        ]
        gone = [(*cells, True, by.commit_us, by.scn) for cells, by in self.gone.values()]
        return Counter([*live, *gone])
