"""Which column of one version of a table is which of a later one.

Names change and come back; the number that a source gives a column stays with it for life. Numbers are known where a
source could tell them for sure; where they are not, a name stands for itself. A table that was made anew has columns of
its own, even where they have the names of those before: of them, too, a name stands for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["NO_NUMBERS", "Numbers", "column_number", "successors", "told_numbers"]

Numbers = Mapping[str, int]
"""The source's own number of each column, by name, as `column_number` gives it; empty where nobody knows."""
NO_NUMBERS: Numbers = {}
"""What is known where nothing is known."""

_COLUMN_BITS = 16


def column_number(table: int, place: int) -> int:
    """Return the number of a column: no other column of the source ever has it.

    Args:
        table: the source's number of the table.
        place: its number of the column in it, at most 65,535.
    """
    return table << _COLUMN_BITS | place


def _tables(numbers: Numbers) -> set[int]:
    return {number >> _COLUMN_BITS for number in numbers.values()}


def successors(
    old: Sequence[str], new: Sequence[str], was: Numbers, now: Numbers
) -> dict[str, str] | None:
    """Return the later name of each column that lives on; those that are gone have none.

    Args:
        old: names of the columns before.
        new: names of the columns after.
        was: numbers of the columns before.
        now: numbers of the columns after.

    Returns:
        None when nobody knows: a column went and another came, or columns changed places, and that may have been a
        change of names.
    """
    if was and now and not _tables(was) & _tables(now):
        return {name: name for name in old if name in new}
    by_number = {number: name for name, number in now.items() if name in new}
    found = {name: by_number[was[name]] for name in old if was.get(name) in by_number}
    taken = set(found.values())
    by_name = [
        name
        for name in old
        if name not in found
        and name in new
        and name not in taken
        # Two numbers that differ are two columns.
        and not (name in was and name in now)
    ]
    found = {name: found.get(name, name) for name in old if name in found or name in by_name}
    gone = [name for name in old if name not in found]
    came = set(new) - set(found.values())
    if gone and came and not (set(gone) <= was.keys() and came <= now.keys()):
        return None
    places = [new.index(later) for later in found.values()]
    if places != sorted(places) and any((name in was) != (name in now) for name in by_name):
        # Columns that change places have changed names: where they are numbered they stay where they are.
        return None
    return found


def told_numbers(payload: Mapping[str, Any]) -> dict[int, Numbers]:
    """Return the numbers that a schema event knows, by the version they belong to: its own, and the one before."""
    told = (payload.get("was") or {}, payload)
    return {int(one["schema_id"]): one["numbers"] for one in told if one.get("numbers")}
