"""Whose certificates of relays are believed, where the system's own authorities do not know them."""

from __future__ import annotations

import ssl
from pathlib import Path

from headrace.errors import ConfigError

__all__ = ["believing", "certificates_of", "trusting"]


def trusting(authority: Path, setting: str) -> ssl.SSLContext:
    """Return what `HttpSettings.tls` takes: certificates of one authority are believed, and no others.

    Args:
        authority: PEM file of its certificate, or of a relay's own that nobody else has signed.
        setting: begins the message: what names the file.

    Raises:
        ConfigError: the file cannot be read, or is none.
    """
    return believing(certificates_of(authority, setting))


def certificates_of(authority: Path, setting: str) -> str:
    """Return the certificates of a file as text, for whoever is to believe them where the file is not.

    Raises:
        ConfigError: as `trusting`.
    """
    try:
        # Beside the certificates there may be remarks in any letters, which nobody reads.
        text = authority.read_bytes().decode("ascii", "ignore")
        believing(text)
    except OSError as error:
        raise ConfigError(
            f"{setting}: {authority} cannot be used ({type(error).__name__}).",
            next_step="name a PEM file with the certificate of the authority.",
        ) from error
    return text


def believing(certificates: str) -> ssl.SSLContext:
    """Return a context that believes what `certificates_of` returned, and nobody else."""
    # Without any text the system's own authorities would be believed.
    return ssl.create_default_context(cadata=certificates or "none")
