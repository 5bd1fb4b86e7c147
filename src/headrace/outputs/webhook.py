"""How a webhook is called: one signed POST after the other over one connection, tried again while that may help."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit

from headrace.errors import ConfigError, Retry, TargetError

__all__ = ["Webhook", "WebhookRefused", "WebhookSettings", "WebhookUnavailable", "signature"]

_PASSING = frozenset({408, 425, 429})
"""Answers below 500 that say "later"."""
_MOST_ANSWER = 65_536
_VISIBLE = "".join(map(chr, range(0x20, 0x7F)))
"""What a header takes as it is, whatever the server in between."""


class WebhookUnavailable(TargetError):
    """A webhook gave no answer, or said that it cannot now; what was sent may have been taken."""

    retry = Retry.TIMED


class WebhookRefused(TargetError):
    """A webhook will not take what was sent, however often it comes."""

    retry = Retry.NEVER


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where a webhook is, and how patient we are.

    Attributes:
        url: ``http`` or ``https``; never shown beyond its host.
        secret: signs what is sent; None for no signature.
        headers: sent with each call, for example an authorization.
        timeout_s: for connecting, and for each piece of an answer.
        retries: after the first try.
        pause_s: before the first of them; doubled each time, up to ``most_pause_s``.
        most_pause_s: the longest pause.
        most_asked_s: the longest pause that an answer may ask for by ``retry-after``.
    """

    url: str = field(repr=False)
    secret: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 10.0
    retries: int = 5
    pause_s: float = 0.2
    most_pause_s: float = 10.0
    most_asked_s: float = 30.0

    def validate(self) -> None:
        """Check each field.

        Raises:
            ConfigError: names the first field that cannot be used.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _unusable("url", "is no http or https address", "https://host/path")
        if parts.username or parts.password:
            raise _unusable("url", "holds a user or a password", "headers with an authorization")
        if self.secret is not None and not self.secret:
            raise _unusable("secret", "is empty", "None, or the bytes that both sides know")
        least = min(self.pause_s, self.most_pause_s, self.most_asked_s, self.retries)
        if self.timeout_s <= 0 or least < 0:
            raise _unusable("a time or number", "is negative", "0 or more; timeout_s above 0")


def signature(secret: bytes, body: bytes) -> str:
    """Return the header ``headrace-signature`` of a body: ``sha256=`` and its HMAC-SHA256 in hex.

    Source: RFC 2104.
    """
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


class Webhook:
    """One webhook and the connection to it. Used from one thread.

    Args:
        settings: where it is.
        sleep: waits some seconds.

    Raises:
        ConfigError: the settings cannot be used.
    """

    def __init__(
        self, settings: WebhookSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        settings.validate()
        self._settings, self._sleep = settings, sleep
        parts = urlsplit(settings.url)
        self.host = parts.hostname or ""
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secure, self._port = parts.scheme == "https", parts.port
        self._connection: http.client.HTTPConnection | None = None
        self._asked_s = 0.0
        self.tries = 0

    def post(self, body: bytes, key: str) -> None:
        """Send a body until it is taken.

        Args:
            body: JSON.
            key: says which body this is, however often it comes: the header ``idempotency-key``,
                in which every byte of its UTF-8 that is no visible ASCII stands as ``%XX``.

        Raises:
            WebhookUnavailable: it was not taken in as many tries as there are.
            WebhookRefused: it will never be.
        """
        pause_s = self._settings.pause_s
        for _ in range(self._settings.retries):
            if self._try(body, key) is None:
                return
            self._sleep(max(min(pause_s, self._settings.most_pause_s), self._asked_s))
            pause_s *= 2
        what = self._try(body, key)
        if what is not None:
            raise WebhookUnavailable(
                f"The webhook at {self.host} did not take a call in {self._settings.retries + 1} tries: {what}.",
                next_step="look at the webhook's own log; the same call comes again.",
            )

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _try(self, body: bytes, key: str) -> str | None:
        """Send once; return why it was not taken and may be next time, None when it was."""
        self.tries += 1
        self._asked_s = 0.0
        try:
            status = self._send(body, self._headers(body, key))
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return type(error).__name__
        if 200 <= status < 300:
            return None
        if status >= 500 or status in _PASSING:
            return f"status {status}"
        raise WebhookRefused(
            f"The webhook at {self.host} refused a call: status {status}.",
            next_step=(
                "correct its address, its secret or what it expects; then start the output again: "
                "nothing was passed over."
            ),
        )

    def _send(self, body: bytes, headers: dict[str, str]) -> int:
        connection = self._connected()
        connection.request("POST", self._target, body, headers)
        answer = connection.getresponse()
        self._asked_s = min(_seconds(answer.getheader("retry-after")), self._settings.most_asked_s)
        answer.read(_MOST_ANSWER)
        if not answer.isclosed():
            # More than anybody has to say to a call: not worth reading to its end.
            self.close()
        return answer.status

    def _headers(self, body: bytes, key: str) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "idempotency-key": quote(key, _VISIBLE),
            **self._settings.headers,
        }
        if self._settings.secret is not None:
            headers["headrace-signature"] = signature(self._settings.secret, body)
        return headers

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            timeout = self._settings.timeout_s
            self._connection = (
                http.client.HTTPSConnection(
                    self.host, self._port, timeout=timeout, context=ssl.create_default_context()
                )
                if self._secure
                else http.client.HTTPConnection(self.host, self._port, timeout=timeout)
            )
        return self._connection


def _seconds(text: str | None) -> float:
    """Return what ``retry-after`` asks for, 0 for nothing: a number of seconds, or a time of HTTP."""
    if text is None:
        return 0.0
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _unusable(name: str, what: str, wanted: str) -> ConfigError:
    return ConfigError(f"{name} of the webhook {what}.", next_step=f"set it to {wanted}.")
