"""Tells where a run's columns come from: when it begins, when a table takes another shape, and how it ends.

In: pictures as they come. Out: OpenLineage events. The run's id is kept beside the events, so that of a run that ended
without a word the next one says that it did.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from headrace.durable import replace_file
from headrace.replicator.config import Config
from headrace.replicator.lineage.events import EventType, RunOf, event
from headrace.replicator.lineage.known import Known, versions
from headrace.replicator.lineage.outbox import Outbox
from headrace.replicator.paths import StatePaths
from headrace.replicator.picture import Picture

__all__ = ["Publisher"]

_log = logging.getLogger(__name__)


class Publisher:
    """One run of a replicator with a section ``lineage``.

    Args:
        config: of the replicator.
        picture: as it stands when the run begins.
        clock: seconds since 1970 UTC.

    Raises:
        OSError: nothing can be kept in the state folder.
    """

    def __init__(
        self, config: Config, picture: Picture, clock: Callable[[], float] = time.time
    ) -> None:
        assert config.lineage is not None
        self._config, self._clock = config, clock
        folder = StatePaths.of(config).lineage
        folder.mkdir(parents=True, exist_ok=True)
        self._open_run = folder / "run"
        self._outbox = Outbox(config.lineage, folder)
        self._known = Known(config)
        self._error: BaseException | None = None
        self._shown = versions(picture)
        if (before := _run_id(self._open_run)) is not None:
            self._tell(EventType.ABORT, before)
        self._run_id = str(uuid.uuid4())
        replace_file(self._open_run, self._run_id.encode())
        self._tell(EventType.START)

    def take(self, picture: Picture) -> None:
        """Take a picture; tell of it when a table has other columns than in the one before."""
        found = versions(picture)
        # Between two processes of apply nobody says anything of tables, and their columns stay.
        if found and found != self._shown:
            self._shown = found
            self._tell(EventType.RUNNING)

    def fail(self, error: BaseException) -> None:
        """Note what ends the run."""
        self._error = error

    def close(self) -> None:
        """Tell how the run ended."""
        self._tell(EventType.COMPLETE if self._error is None else EventType.FAIL)
        self._open_run.unlink(missing_ok=True)
        self._outbox.close()

    def _tell(self, kind: EventType, run_id: str = "") -> None:
        assert self._config.lineage is not None
        run = RunOf(self._config.lineage.namespace, self._config.name, run_id or self._run_id)
        tables = self._known.tables(self._shown)
        error = self._error if kind is EventType.FAIL else None
        try:
            self._outbox.put(
                event(kind, run, self._config, tables, at_s=self._clock(), error=error)
            )
        except OSError as error_:
            _log.warning("lineage: an event cannot be kept: %s", error_.strerror)


def _run_id(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
