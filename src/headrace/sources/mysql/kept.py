"""How much log the server keeps behind the place that we have acknowledged. It keeps it for a time, not for us."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headrace.errors import HeadraceError, SourceError
from headrace.sources.mysql.connection import QueryFailed, Session, connect
from headrace.sources.mysql.position import Place
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.stream import AcknowledgedPosition

__all__ = ["BinlogWatch", "KeptBinlog"]

WARN_BYTES = 10 << 30


@dataclass(frozen=True, slots=True)
class KeptBinlog:
    """The files of the log, seen from our place.

    Attributes:
        status: ``kept``; ``next`` when the file that the server removes next is one that we need and newer ones
            exist; ``lost`` when it has removed one that we need.
        retained_bytes: of all files.
        unread_bytes: behind our place.
    """

    status: str
    retained_bytes: int
    unread_bytes: int

    @property
    def warning(self) -> str:
        """Why a person should look, empty when there is no reason."""
        if self.status == "lost":
            return "the server has removed log that was not read: RESYNC NEEDED"
        if self.status == "next" or self.unread_bytes >= WARN_BYTES:
            return str(self)
        return ""

    def __str__(self) -> str:
        size = f"the source keeps {self.retained_bytes:,} bytes of log, {self.unread_bytes:,} of them not read"
        return f"{size}, and removes what is not read next" if self.status == "next" else size

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a status file."""
        return {**asdict(self), "warning": self.warning, "text": str(self)}


class BinlogWatch:
    """Looks at the files over a connection of its own, made again when it was lost.

    Args:
        settings: of the source.
        acknowledged: our place.
    """

    def __init__(self, settings: MysqlSettings, acknowledged: AcknowledgedPosition) -> None:
        self._settings = settings
        self._acknowledged = acknowledged
        self._session: Session | None = None

    def look(self, now_s: float) -> KeptBinlog:
        """Look once; see `headrace.sources.database.LogWatch`."""
        del now_s  # Nothing here is a rate.
        try:
            if self._session is None:
                self._session = connect(self._settings)
            rows = self._session.texts("SHOW BINARY LOGS")
        except QueryFailed as error:
            raise SourceError(
                f"The server does not list its log: {error.message}",
                next_step="run `headrace preflight FILE`, which lists what is missing.",
            ) from error
        except HeadraceError:
            self.close()
            raise
        resume = self._acknowledged.read()
        shift = 0 if resume is None else resume.shift
        files = [Place.of(row[0] or "", int(row[1] or 0), shift) for row in rows]
        return seen_from(files, files[-1] if resume is None else resume.place)

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None


def seen_from(files: list[Place], ours: Place) -> KeptBinlog:
    """Return what files are to a reader at a place.

    Args:
        files: the ends of all files, the oldest first.
        ours: behind what was acknowledged.
    """
    unread = sum(end.position for end in files if end.number > ours.number)
    unread += sum(end.position - ours.position for end in files if end.number == ours.number)
    status = "kept"
    if files[0].number > ours.number:
        status = "lost"
    elif files[0].number == ours.number < files[-1].number:
        status = "next"
    return KeptBinlog(status, sum(end.position for end in files), max(0, unread))
