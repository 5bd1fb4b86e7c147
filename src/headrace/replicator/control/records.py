"""What a control plane keeps, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.replicator.control.lifecycle import Desired, State

__all__ = ["Audited", "Deployed", "Draft", "Lease", "Who", "full_name"]


def full_name(namespace: str, name: str) -> str:
    """Return a replicator's name as no other one of the control plane has it; neither part has two hyphens in a row."""
    return name if namespace == "default" else f"{namespace}--{name}"


@dataclass(frozen=True, slots=True)
class Draft:
    """An unfinished configuration.

    Attributes:
        name: under which it is kept.
        label: for people.
        config: as it was given, references to secrets unresolved.
        created_ms: when it was first put, milliseconds since 1970 UTC.
        updated_ms: when it was last put.
    """

    name: str
    label: str
    config: Mapping[str, Any]
    created_ms: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class Deployed:
    """A replicator.

    Attributes:
        number: of the row; a replicator that was deleted and deployed anew has another.
        namespace: that it belongs to.
        name: of it there.
        generation: rises each time one of this name is deployed after a deletion.
        revision: rises with each configuration of a generation.
        config: as it was given, references to secrets unresolved.
        base: folder at which relative paths of it begin.
        desired: what people want of it.
        state: where it is.
        reason: why, where that is not what was asked for; empty otherwise.
        drop_target: whether the tables go with it when it is deleted.
        leave_source: whether what is its own at the source may stay there when it is deleted.
        version: of this row; each write raises it.
        created_ms: when it was first deployed, milliseconds since 1970 UTC.
        changed_ms: when desired, state or reason last changed.
    """

    number: int
    namespace: str
    name: str
    generation: int
    revision: int
    config: Mapping[str, Any]
    base: str
    desired: Desired
    state: State
    reason: str
    drop_target: bool
    leave_source: bool
    version: int
    created_ms: int
    changed_ms: int

    @property
    def full_name(self) -> str:
        """Name that no other replicator of this control plane has; its slot, publication and frontier have it too."""
        return full_name(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Who:
    """Who asks, for the audit log.

    Attributes:
        name: of the token, or ``local`` where none is asked for.
        what: the command.
        object: what it is about.
    """

    name: str
    what: str
    object: str


@dataclass(frozen=True, slots=True)
class Audited:
    """One line of the audit log.

    Attributes:
        number: rises by one.
        at_ms: when, milliseconds since 1970 UTC.
        who: name of the token.
        what: the command.
        object: what it is about.
        outcome: ``done``, or the error's name.
    """

    number: int
    at_ms: int
    who: str
    what: str
    object: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write.

    Attributes:
        name: of what.
        holder: who has it.
        generation: rises with each new holder; writes of an older one are refused.
        until_s: when it ends unless it is renewed, seconds since 1970 on the database's clock.
    """

    name: str
    holder: str
    generation: int
    until_s: float
