"""What the name of an error or of a problem stands for, as data.

In: the classes of errors, the kinds of problems that an assessment finds, the notes of a status, and the page
docs/errors.md, which is packed beside this file. Out: `Explained`. Parts that are not installed are left out.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from headrace.errors import ConfigError, HeadraceError, Retry

__all__ = ["Case", "Explained", "explain", "names"]

_MODULES = (
    "headrace.errors",
    "headrace.client.errors",
    "headrace.outputs.webhook",
    "headrace.lake.errors",
    "headrace.lake.commit",
    "headrace.lake.copies",
    "headrace.spark.jars",
    "headrace.sources.postgres.connection",
)
"""Where classes of errors are that a person may meet."""
_WHO = {
    Retry.TIMED: "headrace tries again by itself",
    Retry.MANUAL: "somebody has to act first; then start it again",
    Retry.NEVER: "trying again would change nothing: correct what it names",
}
_CELLS = 6
"""Of a row of the page: what, error, named, next step, not lost, test."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which an error comes about.

    Attributes:
        what: happens.
        named: what the message tells.
        next_step: what to do.
        not_lost: what stays, or comes again.
    """

    what: str
    named: str
    next_step: str
    not_lost: str


@dataclass(frozen=True, slots=True)
class Explained:
    """What is known of one name.

    Attributes:
        name: as it is spelt.
        sort: of name.
        meaning: in a line or two.
        belongs_to: the more general errors, the nearest first; or the list of an assessment; or where it is told.
        then: who has to act; or what happens when nobody does.
        cases: ways in which the error comes about.
    """

    name: str
    sort: Literal["error", "problem", "note"]
    meaning: str
    belongs_to: tuple[str, ...]
    then: str
    cases: tuple[Case, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


_Cases = Mapping[str, tuple[Case, ...]]


def explain(name: str) -> Explained:
    """Return what a name stands for; large and small letters are the same.

    Raises:
        ConfigError: nobody knows it; the nearest ones are named.
    """
    known = {one.name.lower(): one for one in names()}
    if (found := known.get(name.strip().lower())) is not None:
        return found
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(known[one].name for one in near)}? " if near else ""
    raise ConfigError(
        f"No error and no problem has the name {name}.",
        next_step=f"{hint}`headrace explain` lists all names.",
    )


def names() -> list[Explained]:
    """Return everything that can be explained: errors in their order, then problems and notes in theirs."""
    cases = _cases()
    return [*_errors(cases), *_problems(), *_notes(cases)]


def _errors(cases: _Cases) -> Iterator[Explained]:
    for module in _MODULES:
        found: dict[str, Any] = {}
        with suppress(ModuleNotFoundError):
            found = vars(importlib.import_module(module))
        for name, value in found.items():
            is_error = isinstance(value, type) and issubclass(value, HeadraceError)
            if is_error and value.__module__ == module and not name.startswith("_"):
                yield _error(value, cases.get(name, ()))


def _error(kind: type[HeadraceError], cases: tuple[Case, ...]) -> Explained:
    general = [one.__name__ for one in kind.__mro__[1:] if issubclass(one, HeadraceError)]
    meaning = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    return Explained(kind.__name__, "error", meaning, tuple(general), _WHO[kind.retry], cases)


def _problems() -> Iterator[Explained]:
    try:
        from headrace.replicator.assess.kinds import CATALOGUE
    except ModuleNotFoundError:
        return
    for kind in CATALOGUE.values():
        meaning = f"{kind.meaning[:1].upper()}{kind.meaning[1:]}."
        yield Explained(kind.name, "problem", meaning, (kind.group.value,), kind.impact)


def _notes(cases: _Cases) -> Iterator[Explained]:
    try:
        from headrace.spark.notes import NOTES
    except ModuleNotFoundError:
        return
    for name, note in NOTES.items():
        yield Explained(name, "note", note.meaning, ("status",), note.then, cases.get(name, ()))


def _cases() -> _Cases:
    """Return the rows of the page, by the errors that they name."""
    found: dict[str, tuple[Case, ...]] = {}
    for line in _page().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) != _CELLS:
            continue
        what, error, named, next_step, not_lost, _ = cells
        for name in re.findall(r"`([A-Z]\w+)`", error):
            found[name] = (*found.get(name, ()), Case(what, named, next_step, not_lost))
    return found


def _page() -> str:
    packed = resources.files("headrace.cli") / "errors.md"
    if packed.is_file():
        return packed.read_text(encoding="utf-8")
    # A checkout, which is not packed.
    return (Path(__file__).parents[3] / "docs" / "errors.md").read_text(encoding="utf-8")
