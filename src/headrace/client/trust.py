"""Whose certificates of relays are believed, where the system's own authorities do not know them."""

from __future__ import annotations

import ssl
from pathlib import Path

from headrace.errors import ConfigError

__all__ = ["trusting"]


def trusting(authority: Path, setting: str) -> ssl.SSLContext:
    """Return what `HttpSettings.tls` takes: certificates of one authority are believed, and no others.

    Args:
        authority: PEM file of its certificate, or of a relay's own that nobody else has signed.
        setting: begins the message: what names the file.

    Raises:
        ConfigError: the file cannot be read, or is none.
    """
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise ConfigError(
            f"{setting}: {authority} cannot be used ({type(error).__name__}).",
            next_step="name a PEM file with the certificate of the authority.",
        ) from error
