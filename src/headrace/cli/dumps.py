"""The dump requests and the pace that a command means: those of a file, or of a control plane's replicator."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote

from rich.text import Text

from headrace.cli.output import notes
from headrace.cli.server import Server, replicator_named
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from headrace.model.schema import TableId
    from headrace.replicator.config import ChangeLogConfig, DumpConfig
    from headrace.replicator.requests import Shown
    from headrace.state.pace import Pace
    from headrace.state.records import DumpRequest

__all__ = ["Dumps", "HeldUp", "configured", "dumps_of", "figure"]

S = TypeVar("S", bound="BaseModel")

_LOOK_S = 2.0
_MOST = 1000
"""Requests that a control plane gives in one answer."""


class Dumps(Protocol):
    """What the commands do with requests and pace; refusals as of `headrace.replicator.requests.Requests`."""

    def start(
        self,
        table: str,
        *,
        keys: Sequence[str] = (),
        where: str = "",
        delete_missing: bool = False,
        priority: int = 0,
    ) -> str:
        """Queue a request and return its name."""
        ...

    def all(self, *, ended: bool = True) -> list[Shown]:
        """Return the requests in order of submission, with or without those that have ended."""
        ...

    def show(self, request: str) -> Shown:
        """Return one request."""
        ...

    def held_up(self) -> str:
        """Return why nobody carries requests out at present, and what to do; empty where somebody does."""
        ...

    def wait(self, request: str, *, look: Callable[[], None]) -> Shown:
        """Return a request once it is completed, looking again and again meanwhile."""
        ...

    def pause(self, request: str) -> DumpRequest:
        """Let a request rest after its present chunk."""
        ...

    def resume(self, request: str) -> DumpRequest:
        """Let it go on."""
        ...

    def cancel(self, request: str) -> DumpRequest:
        """Give it up after its present chunk."""
        ...

    def steer(self, request: str, *, priority: int | None = None, **pace: Any) -> DumpRequest:
        """Change its priority, or settings of its own."""
        ...

    def incomplete(self) -> list[TableId]:
        """Return the tables whose copy was cancelled."""
        ...

    def pace(self) -> Pace:
        """Return what was set while running."""
        ...

    def set_pace(self, **settings: float | bool | None) -> Pace:
        """Change settings; None gives one back to the configuration."""
        ...


def dumps_of(given: str, server: Server) -> contextlib.AbstractContextManager[Dumps]:
    """Open what a command's argument means.

    Args:
        given: a file, or the name of a replicator.
        server: where its control plane is.

    Raises:
        ConfigError: the file cannot be used.
    """
    name = replicator_named(given)
    if name is not None:
        return contextlib.nullcontext(_AtServer(server, name))
    from headrace.replicator import config_file
    from headrace.replicator.requests import Requests

    return Requests(config_file.load(Path(given)))


class HeldUp:
    """Says on the standard error why nobody carries requests out, once for as long as it is so.

    Args:
        dumps: whose requests.
    """

    def __init__(self, dumps: Dumps) -> None:
        self._dumps = dumps
        self._said = False
        self._again_at = 0.0

    def look(self) -> None:
        """Look, but not more often than every other second, and say what is found."""
        now = time.monotonic()
        if now < self._again_at:
            return
        self._again_at = now + _LOOK_S
        # What was asked for is kept, whether or not anybody says how it stands.
        with contextlib.suppress(HeadraceError):
            self._say(self._dumps.held_up())

    def _say(self, why: str) -> None:
        if why and not self._said:
            notes.print(Text(why, style="yellow"), soft_wrap=True)
        self._said = bool(why)


def configured(given: str, server: Server) -> tuple[DumpConfig, ChangeLogConfig]:
    """Return what the configuration says where nothing was set; arguments and errors as of `dumps_of`.

    To be asked before anything is set: a command that fails afterwards looks as if it had done nothing. Of a control
    plane's replicator what is looked up over there stays as it is written.
    """
    from headrace.replicator import config_file
    from headrace.replicator.config import ChangeLogConfig, DumpConfig

    name = replicator_named(given)
    if name is None:
        config = config_file.load(Path(given))
        return config.dump, config.changelog
    held = server.replicator(name)["config"]
    return _written(DumpConfig, held.get("dump")), _written(ChangeLogConfig, held.get("changelog"))


def _written(section: type[S], given: Mapping[str, Any] | None) -> S:
    """Return a section in which references are as they are written, since only the control plane can look them up."""
    given = given or {}
    references = {name: value for name, value in given.items() if "${" in str(value)}
    plain = {name: value for name, value in given.items() if name not in references}
    return section.model_validate(plain).model_copy(update=references)


def figure(value: float | str, form: str = ",") -> str:
    """Return a setting of `configured` as it is shown: a number in a form, or a reference as it is written."""
    return value if isinstance(value, str) else f"{value:{form}}"


class _AtServer:
    """Those of a control plane's replicator."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name
        self._path = f"replicators/{quote(name)}/api/v1"

    def start(
        self,
        table: str,
        *,
        keys: Sequence[str] = (),
        where: str = "",
        delete_missing: bool = False,
        priority: int = 0,
    ) -> str:
        from headrace.model.schema import TableId
        from headrace.replicator.requests import ALL, scope_of

        scope = scope_of(table, keys=keys, where=where, delete_missing=delete_missing)
        body: dict[str, Any] = {"scope": scope.value, "priority": priority}
        if table != ALL:
            named = TableId.parse(table)
            body["table"] = {"schemaName": named.schema, "tableName": named.name}
        if keys:
            body |= {"primaryKeyLiterals": list(keys), "deleteMissing": delete_missing}
        if where:
            body["where"] = where
        asked = self._server.within("POST", f"{self._path}/requests", body)
        return str(asked["request"]["requestId"])

    def all(self, *, ended: bool = True) -> list[Shown]:
        from headrace.state.records import OPEN

        told = self._server.within("GET", f"{self._path}/requests", limit=_MOST)["requests"]
        found = [_shown(one) for one in reversed(told)]
        return [one for one in found if ended or one.request.state in OPEN]

    def show(self, request: str) -> Shown:
        return _shown(self._server.within("GET", self._of(request)))

    def held_up(self) -> str:
        from headrace.replicator.requests import LOG_PAUSED

        shown = self._server.replicator(self._name)
        if shown["state"] == "PAUSED" or shown["log_paused"]:
            return f"{LOG_PAUSED}: headrace resume {self._name}"
        if shown["desired"] != "RUNNING" or shown["state"] == "FAILED":
            return f"{self._name} does not run, so no request is carried out: headrace start {self._name}"
        why = shown["unheard"]
        return f"{why}: headrace status {self._name}" if why else ""

    def wait(self, request: str, *, look: Callable[[], None]) -> Shown:
        from headrace.replicator.requests import wait_for

        return wait_for(self.show, request, look)

    def pause(self, request: str) -> DumpRequest:
        return self._moved(request, "pause")

    def resume(self, request: str) -> DumpRequest:
        return self._moved(request, "resume")

    def cancel(self, request: str) -> DumpRequest:
        return self._moved(request, "cancel")

    def steer(self, request: str, *, priority: int | None = None, **pace: Any) -> DumpRequest:
        body = pace if priority is None else {**pace, "priority": priority}
        return _shown(self._server.within("PATCH", self._of(request), body)).request

    def incomplete(self) -> list[TableId]:
        from headrace.model.schema import TableId

        tables = self._server.replicator(self._name)["table_list"]
        return [TableId.parse(one["name"]) for one in tables if one["phase"] == "incomplete"]

    def pace(self) -> Pace:
        return _pace(self._server.within("GET", f"{self._path}/pace"))

    def set_pace(self, **settings: float | bool | None) -> Pace:
        paused = settings.pop("log_paused", None)
        if paused is not None:
            # Asked before: an answer that does not come behind it would look as if nothing had been done.
            now = self.pace()
            # It is the replicator's own word there, and outlives a restart of its process.
            verb = "pause" if paused else "resume"
            self._server.within("POST", f"replicators/{quote(self._name)}/{verb}")
            if not settings:
                return replace(now, log_paused=bool(paused))
        return _pace(self._server.within("PUT", f"{self._path}/pace", settings))

    def _of(self, request: str) -> str:
        return f"{self._path}/requests/{quote(request, safe='')}"

    def _moved(self, request: str, verb: str) -> DumpRequest:
        return _shown(self._server.within("POST", f"{self._of(request)}/{verb}")).request


def _pace(told: dict[str, Any]) -> Pace:
    from headrace.state.pace import Pace

    return Pace(**told)


def _shown(told: dict[str, Any]) -> Shown:
    """Return a request as the API tells of it."""
    from headrace.model.schema import TableId
    from headrace.replicator.requests import Shown
    from headrace.state.pace import OwnPace
    from headrace.state.records import Cause, DumpProgress, DumpRequest, RequestState, Scope

    name, table = told["requestId"], told["table"]
    request = DumpRequest(
        name,
        Scope(told["scope"]),
        TableId(table["schemaName"], table["tableName"]) if table else None,
        tuple((key,) for key in told["primaryKeyLiterals"]),
        tuple((key,) for key in told["missingPrimaryKeyLiterals"]),
        RequestState(told["state"]),
        told["failureReason"] or "",
        told["priority"],
        Cause(told["cause"]),
        told["where"],
        told["deleteMissing"],
        _seconds(told["createdAt"]),
        _seconds(told["updatedAt"]),
        OwnPace(**told["pace"]),
    )
    progress = (
        DumpProgress(
            name,
            TableId.parse(one["table"]),
            one["state"],
            chunks=one["chunks"],
            rows_read=one["rowsRead"],
            rows_emitted=one["rowsEmitted"],
            rows_voided=one["rowsVoided"],
            rows_estimated=one["rowsEstimated"],
            rows_per_s=one["rowsPerSecond"],
        )
        for one in told["tables"]
    )
    return Shown(request, tuple(progress))


def _seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()
