"""Folders of this machine, where a location may be a bucket too."""

from __future__ import annotations

from pathlib import Path

from headrace.store import Location


def local(place: Location) -> Path:
    assert isinstance(place, Path)
    return place
