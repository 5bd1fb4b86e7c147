"""One request that succeeds for each operation of the API, with what has to be there before it.

A new operation needs a line here; `tests.control.contracts.test_contracts` finds one that has none. From this one
request all requests that are refused are made by changing one thing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.replicator.api.people import Role
from tests.control.asking import Asking

__all__ = ["CALLS", "CONFLICTS", "UNFIT", "Call"]

NS = "/v1/contexts/default"
ONE = f"{NS}/replicators/{{name}}"
API = f"{ONE}/api/v1"
LETTER = f"{ONE}/dead-letters/{{letter}}"
DRAFT = f"{NS}/drafts/{{draft}}"

Before = Callable[[Asking, dict[str, Any]], None]


def nothing(_: Asking, __: dict[str, Any]) -> None:
    pass


@dataclass(frozen=True)
class Call:
    """A request.

    Attributes:
        path: with names of the world in braces.
        body: likewise, by ``config`` alone.
        status: of the answer.
        role: that it takes.
        before: what is done before it.
        streams: whether the answer has no end.
        elsewhere: the file that shows its success, where that takes more than this world has.
    """

    path: str
    body: dict[str, Any] | None = None
    status: int = 200
    role: Role = Role.VIEWER
    before: Before = field(default=nothing)
    streams: bool = False
    elsewhere: str = ""

    def filled(self, world: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """Return path and body with the names of a world."""
        body = None
        if self.body is not None:
            body = {k: world["config"] if v == "CONFIG" else v for k, v in self.body.items()}
        return self.path.format(**world), body


def started(ask: Asking, world: dict[str, Any]) -> None:
    ask.does("POST", f"{ONE}/start".format(**world))


def in_sales(ask: Asking, _: dict[str, Any]) -> None:
    ask("PUT", "/v1/contexts/sales")


OPERATOR, ADMIN = Role.OPERATOR, Role.ADMIN
TABLE = {"table": "orders", "schema": "public"}

CALLS: dict[str, Call] = {
    "healthz": Call("/healthz"),
    "list_namespaces": Call("/v1/contexts"),
    "put_namespace": Call("/v1/contexts/sales", status=201, role=ADMIN),
    "delete_namespace": Call("/v1/contexts/sales", status=204, role=ADMIN, before=in_sales),
    "audit": Call("/v1/audit?limit=5", role=ADMIN),
    "list_drafts": Call(f"{NS}/drafts"),
    "put_draft": Call(DRAFT, {"label": "a", "config": "CONFIG"}, role=OPERATOR),
    "get_draft": Call(DRAFT),
    "delete_draft": Call(DRAFT, status=204, role=OPERATOR),
    "tables_of_draft": Call(f"{DRAFT}/listTables", role=OPERATOR),
    "describe": Call(f"{DRAFT}/describeTable", TABLE, role=OPERATOR),
    "assess_draft": Call(f"{DRAFT}/assessPipeline", role=OPERATOR),
    "assess_table_of_draft": Call(f"{DRAFT}/assessTable", TABLE, role=OPERATOR),
    "assess": Call(f"{NS}/assessPipeline", {"config": "CONFIG"}, role=OPERATOR),
    "assess_one": Call(
        f"{NS}/assessTable", {"dBTable": TABLE, "deltaConfig": "CONFIG"}, role=OPERATOR
    ),
    "list_replicators": Call(f"{NS}/replicators"),
    "deploy": Call(ONE, {"config": "CONFIG"}, role=OPERATOR),
    "get_replicator": Call(ONE),
    "delete_replicator": Call(f"{ONE}?source=leave", status=202, role=OPERATOR),
    "start_replicator": Call(f"{ONE}/start", status=202, role=OPERATOR),
    "stop_replicator": Call(f"{ONE}/stop", status=202, role=OPERATOR),
    "pause_replicator": Call(f"{ONE}/pause", status=202, role=OPERATOR, before=started),
    "resume_replicator": Call(f"{ONE}/resume", status=202, role=OPERATOR, before=started),
    # Tables to bring back take Spark.
    "rewind_replicator": Call(
        f"{ONE}/rewind", {"to": "1"}, role=OPERATOR, elsewhere="tests/spark/test_rewind.py"
    ),
    "get_logs": Call(f"{ONE}/logs?lines=3"),
    "download_log": Call(f"{ONE}/logs/run"),
    "metrics": Call(f"{ONE}/metrics"),
    "activity": Call(f"{ONE}/activity?minutes=5"),
    "get_lineage": Call(f"{ONE}/lineage"),
    "list_letters": Call(f"{ONE}/dead-letters?limit=5"),
    "get_letter": Call(LETTER),
    "rows": Call(f"{LETTER}/rows", role=OPERATOR),
    "replay_dead_letter": Call(f"{LETTER}/replay", role=OPERATOR),
    "discard_dead_letter": Call(f"{LETTER}/discard", role=OPERATOR),
    "get_state": Call(f"{NS}/getState", {"name": "contract"}),
    "list_requests": Call(f"{API}/requests?limit=5"),
    "submit": Call(f"{API}/requests", {"scope": "ALL_TABLES"}, status=201, role=OPERATOR),
    "get_request": Call(f"{API}/requests/{{request}}"),
    "steer_request": Call(f"{API}/requests/{{request}}", {"chunk_rows": 10}, role=OPERATOR),
    "pause_request": Call(f"{API}/requests/{{request}}/pause", role=OPERATOR),
    "resume_request": Call(f"{API}/requests/{{request}}/resume", role=OPERATOR),
    "cancel_request": Call(f"{API}/requests/{{request}}/cancel", role=OPERATOR),
    "get_pace": Call(f"{API}/pace"),
    "set_pace": Call(f"{API}/pace", {"load": 0.5}, role=OPERATOR),
    "get_runtime": Call(f"{API}/runtime"),
    "health": Call(f"{API}/runtime/health"),
    "status": Call(f"{API}/runtime/status"),
    "schemas": Call(f"{API}/runtime/schemas"),
    "issues": Call(f"{API}/runtime/schema-issues"),
    "runtime_metrics": Call(f"{API}/metrics"),
    "summary": Call(f"{API}/events/summary"),
    "recent": Call(f"{API}/events/recent"),
    "of_table": Call(f"{API}/events/tables/public.orders"),
    "get_tap": Call(f"{API}/tap"),
    # The world's tap teaches.
    "stream": Call(f"{API}/tap/stream?last=1", role=OPERATOR, streams=True),
    "take": Call(f"{API}/tap/taken", {"runId": "r", "seq": 1}, status=204, role=OPERATOR),
}


def cancelled(ask: Asking, world: dict[str, Any]) -> None:
    ask.does("POST", f"{API}/requests/{{request}}/cancel".format(**world), status=200)


def replayed(ask: Asking, world: dict[str, Any]) -> None:
    ask.does("POST", f"{LETTER}/replay".format(**world), status=200)


def discarded(ask: Asking, world: dict[str, Any]) -> None:
    ask.does("POST", f"{LETTER}/discard".format(**world), status=200)


def completed(_: Asking, world: dict[str, Any]) -> None:
    world["complete"]()


def silent(ask: Asking, world: dict[str, Any]) -> None:
    config = {name: part for name, part in world["config"].items() if name != "tap"}
    ask.does("PUT", ONE.format(**world), {"config": config}, 200)


def deleting(ask: Asking, world: dict[str, Any]) -> None:
    """Leave one in the state DELETING: its source is not to be reached."""
    gone = {**world["config"]["source"], "url": "postgresql://u@127.0.0.1:1/d?connect_timeout=1"}
    ask.does("PUT", ONE.format(**world), {"config": {**world["config"], "source": gone}}, 200)
    started(ask, world)
    ask.reaches("RUNNING", world["name"])
    ask.does("DELETE", ONE.format(**world))


def filled(ask: Asking, world: dict[str, Any]) -> None:
    in_sales(ask, world)
    ask("PUT", "/v1/contexts/sales/replicators/one", {"config": world["config"]})


CONFLICTS: dict[str, Before] = {
    "delete_namespace": filled,
    "deploy": deleting,
    "submit": deleting,
    "set_pace": deleting,
    "start_replicator": deleting,
    "stop_replicator": deleting,
    # Never started.
    "pause_replicator": nothing,
    "resume_replicator": nothing,
    "steer_request": cancelled,
    "pause_request": cancelled,
    "resume_request": cancelled,
    "cancel_request": completed,
    "take": silent,
    # It has no table yet.
    "rewind_replicator": nothing,
    "replay_dead_letter": discarded,
    "discard_dead_letter": replayed,
}
"""What makes an operation one that the state does not allow."""

UNFIT: dict[str, dict[str, Any]] = {
    "deploy": {},
    "submit": {"scope": "TABLE"},
}
"""Bodies whose parts do not go together."""
