"""Names under which a status tells of a table that something is the matter with, and that no error stopped."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "AWAITS_ADOPTION",
    "DEAD_LETTERS",
    "NOTES",
    "TABLE_LEFT",
    "TARGET_CHANGED",
    "Note",
]


class Note(NamedTuple):
    """What a name means, and what follows when nobody acts."""

    meaning: str
    then: str


AWAITS_ADOPTION = "AwaitsAdoption"
DEAD_LETTERS = "DeadLetters"
TABLE_LEFT = "TableLeft"
TARGET_CHANGED = "TargetChanged"

NOTES = {
    AWAITS_ADOPTION: Note(
        "A table is filled by a dump that is made elsewhere.",
        "the change log is kept for it until it is adopted: headrace adopt FILE",
    ),
    DEAD_LETTERS: Note(
        "Transactions that a table could not take were put aside, and it goes on without them.",
        "it lacks them until they are replayed or discarded: headrace dead-letters list FILE",
    ),
    TABLE_LEFT: Note(
        "A table is captured no more, and its target keeps its last rows.",
        "it holds nothing back; remove the target when nobody reads it",
    ),
    TARGET_CHANGED: Note(
        "Somebody else changed or removed rows of a target table.",
        "the table goes on; headrace verify FILE finds which rows differ",
    ),
}
"""Everything that can be told so."""
