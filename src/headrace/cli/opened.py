"""What several commands open first; imported late, so that ``--help`` comes at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.replicator.requests import Requests

__all__ = ["requests_of"]


def requests_of(file: Path) -> Requests:
    """Return the requests of the replicator that a file describes; close it.

    Raises:
        ConfigError: the file cannot be used.
    """
    from headrace.replicator import config_file
    from headrace.replicator.requests import Requests

    return Requests(config_file.load(file))
