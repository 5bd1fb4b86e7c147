"""Certificates for relays of a test, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

__all__ = ["Pair", "self_signed"]


class Pair(NamedTuple):
    """A certificate that is its own authority, and its key."""

    certificate: Path
    key: Path


def self_signed(folder: Path, names: str = "IP:127.0.0.1") -> Pair:
    """Return a certificate for some names, 127.0.0.1 by default, in a folder that is made."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = Pair(folder / "relay.pem", folder / "relay.key")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    said = ["-days", "2", "-subj", "/CN=relay", "-addext", f"subjectAltName={names}"]
    made = ["-keyout", str(pair.key), "-out", str(pair.certificate)]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, *said, *made], check=True, capture_output=True
    )
    return pair
