"""Recorded runs of our own code that need no database: for ``headrace tap replay``, and to learn the algorithm from.

Each ``.txt`` is a script in the language of `headrace.testing.scenario`, each ``.ndjson`` what the tap told when it was
played.
"""

from pathlib import Path

__all__ = ["SCENES", "recording", "script"]

SCENES = ("chunk42", "showcase")
"""The scenes that ship."""

_FOLDER = Path(__file__).parent


def recording(scene: str) -> Path:
    """Return the file with a scene's lines."""
    return _FOLDER / f"{scene}.ndjson"


def script(scene: str) -> Path:
    """Return the file that says what happens in a scene."""
    return _FOLDER / f"{scene}.txt"
