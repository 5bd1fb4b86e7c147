"""The effect of changes on rows: one associative function that everything which interprets changes calls."""

from headrace.fold.combine import combine
from headrace.fold.effects import fold
from headrace.fold.form import ALL_DEAD, DEAD, NET, ROW, folded_schema, origin_name
from headrace.fold.promote import cells_as, promote, renamed

__all__ = [
    "ALL_DEAD",
    "DEAD",
    "NET",
    "ROW",
    "cells_as",
    "combine",
    "fold",
    "folded_schema",
    "origin_name",
    "promote",
    "renamed",
]
