"""Who asks a control plane, and what each role may do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from starlette.requests import Request

from headrace.errors import NotAllowed
from headrace.replicator.control.records import Who
from headrace.wire.bearers import Bearers

__all__ = ["LOCAL", "Known", "Person", "Role", "Token", "changes", "looks", "person_of", "who_of"]

_PERSON = "headrace.person"
_WHO = "headrace.who"


class Role(IntEnum):
    """What somebody may do; each may do what the ones before it may."""

    VIEWER = 1
    """Look: replicators, their states and logs, drafts."""
    OPERATOR = 2
    """Draft, assess, deploy, start, stop, pause, resume, delete."""
    ADMIN = 3
    """Make and delete namespaces, see who did what."""


@dataclass(frozen=True, slots=True)
class Person:
    """One who asks.

    Attributes:
        name: for people, and for the audit log.
        role: what they may do.
    """

    name: str
    role: Role


LOCAL = Person("local", Role.ADMIN)
"""Everybody who gets through to a control plane that asks for no token."""


@dataclass(frozen=True, slots=True)
class Token:
    """What one who may ask carries.

    Attributes:
        person: whom it stands for.
        secret: what a request carries.
    """

    person: Person
    secret: str = field(repr=False)


class Known:
    """The people of a control plane; without tokens, everybody who gets through to it."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._known = Bearers({token.secret: token.person for token in tokens})

    @property
    def anybody(self) -> bool:
        """Whether no token is asked for."""
        return not self._known

    def person(self, authorization: str | None) -> Person | None:
        """Return who carries the token of a header ``authorization``, None where nobody is known by it."""
        return LOCAL if self.anybody else self._known.find(authorization)

    @staticmethod
    def unknown() -> NotAllowed:
        """Return the refusal of who has no token."""
        return NotAllowed(
            "The control plane asks for a token and was given none that it knows.",
            next_step="send the header Authorization: Bearer TOKEN; the commands of headrace take HEADRACE_TOKEN.",
        )


def person_of(request: Request) -> Person:
    """Return who asks; the guard has looked."""
    person: Person = request.scope[_PERSON]
    return person


def set_person(scope: dict[str, object], person: Person) -> None:
    """Note who asks."""
    scope[_PERSON] = person


def who_of(request: Request) -> Who | None:
    """Return what the audit log says of a request, None where it only looks."""
    found: Who | None = request.scope.get(_WHO)
    return found


def looks(request: Request) -> Person:
    """Return who asks for something that everybody may see."""
    return person_of(request)


def changes(what: str, role: Role = Role.OPERATOR) -> Callable[[Request], Who]:
    """Return what lets those with a role through, and has the audit log say that they did ``what``."""

    def let_through(request: Request) -> Who:
        person = person_of(request)
        parts = request.path_params
        named = "/".join(str(parts[n]) for n in ("namespace", "name", "draft") if n in parts)
        who = Who(person.name, what, named)
        request.scope[_WHO] = who
        if person.role < role:
            raise NotAllowed(
                f"{what} needs the role {role.name.lower()}, and {person.name} has {person.role.name.lower()}.",
                next_step="ask somebody who has it, or for a token that has it.",
            )
        return who

    return let_through
