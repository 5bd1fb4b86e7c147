"""Which relays serve which source: the document that clients follow."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from headrace.relay.server.settings import ServedSource

__all__ = ["Routes", "RoutesFile"]

_LOG = logging.getLogger(__name__)


class Routes:
    """The routing document of a relay."""

    def __init__(self, sources: tuple[ServedSource, ...]) -> None:
        self._sources = sources
        self._files = {
            source.name: RoutesFile(source.relays, source.name)
            for source in sources
            if isinstance(source.relays, Path)
        }

    def version(self, name: str) -> int:
        """Return the version of what is said of one source; 0 when the relay names itself alone."""
        return self._of(name)[0]

    def document(self, own_url: str) -> dict[str, Any]:
        """Return the whole document; ``own_url`` stands where nothing was configured."""
        found = {source.name: self._of(source.name) for source in self._sources}
        return {
            "version": max((version for version, _ in found.values()), default=0),
            "sources": {
                name: {"relays": list(urls or (own_url,))} for name, (_, urls) in found.items()
            },
        }

    def _of(self, name: str) -> tuple[int, tuple[str, ...]]:
        if name in self._files:
            return self._files[name].read()
        source = next(one for one in self._sources if one.name == name)
        urls = source.relays if isinstance(source.relays, tuple) else ()
        return (source.routes_version if urls else 0), urls


class RoutesFile:
    """A routing document on disk, read again when the file is another one."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._identity: tuple[int, int, int] | None = None
        self._last: tuple[int, tuple[str, ...]] = (0, ())

    def read(self) -> tuple[int, tuple[str, ...]]:
        """Return version and URLs; those before, when the file cannot be read now."""
        try:
            status = os.stat(self._path)
            identity = status.st_ino, status.st_mtime_ns, status.st_size
            if identity != self._identity:
                document = json.loads(self._path.read_text(encoding="utf-8"))
                urls = document["sources"].get(self._name, {}).get("relays", [])
                self._last = int(document["version"]), tuple(str(url) for url in urls)
                self._identity = identity
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _LOG.warning("routing file %s does not read: %s", self._path, type(error).__name__)
        return self._last
