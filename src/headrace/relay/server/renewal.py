"""Certificates that are renewed on disk while a server uses them: each new connection gets the newest.

They last for weeks, a server for longer. Used from the server's event loop.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from pathlib import Path

__all__ = ["Renewal"]

_LOG = logging.getLogger(__name__)
_LOOK_S = 1.0


class Renewal:
    """Looks after the two files of one server.

    Args:
        context: of the server; None where it speaks no TLS.
        certificate: PEM file of the chain.
        key: PEM file of its key.
    """

    def __init__(
        self, context: ssl.SSLContext | None, certificate: Path | None, key: Path | None
    ) -> None:
        self._context = context
        self._certificate, self._key = certificate, key
        self._look_at = 0.0
        self._loaded = self._seen = self._state()

    def look(self) -> None:
        """Take what lies there now, where that is another pair and fits together; called as often as one likes."""
        now = time.monotonic()
        if self._context is None or self._certificate is None or now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        state = self._state()
        if state in (None, self._loaded) or state != self._seen:
            # The two files come one after the other: nothing is taken while they still change.
            self._seen = state
            return
        self._loaded = state
        try:
            # Into another one first: of a pair that does not fit the context would keep a half.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._context):
                context.load_cert_chain(self._certificate, self._key, password="")
        except OSError as error:
            _LOG.warning(
                "%s is another one now and cannot be used (%s); the one before stays",
                self._certificate,
                error.strerror or type(error).__name__,
            )
        else:
            _LOG.info("%s is another one now: new connections get it", self._certificate)

    def _state(self) -> tuple[tuple[int, int, int], ...] | None:
        """Return what tells the files from others that come in their places; None where one is missing."""
        try:
            found = [os.stat(file) for file in (self._certificate, self._key) if file is not None]
        except OSError:
            return None
        return tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in found)
