"""Who may ask for what."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import NotAllowed
from headrace.relay.server.settings import Role, Token
from headrace.wire.bearers import Bearers

__all__ = ["Access"]


class Access:
    """The tokens of a relay; without any, everybody may do everything."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._known = Bearers({token.secret: token.role for token in tokens})

    def role(self, authorization: str | None) -> Role | None:
        """Return what the header ``authorization`` allows, None when it has no token that is known."""
        return self._known.find(authorization) if self._known else Role.ADMIN

    @staticmethod
    def unknown() -> NotAllowed:
        """Return the refusal of who has no token."""
        return NotAllowed(
            "The relay asks for a token and was given none that it knows.",
            next_step="send the header Authorization: Bearer TOKEN, with a token of relay.tokens.",
        )

    @staticmethod
    def too_low() -> NotAllowed:
        """Return the refusal of who may read and no more."""
        return NotAllowed(
            "The token's role is reader, and commands need the role admin.",
            next_step="use a token with role: admin in relay.tokens.",
        )
