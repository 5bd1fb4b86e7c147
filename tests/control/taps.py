"""Lines of a tap."""

from __future__ import annotations

import json
from typing import Any


def told(seq: int | None, *, run: str = "run", kind: str = "stream.heartbeat", **own: Any) -> str:
    """Return a line, without its end."""
    envelope = {
        "v": 1,
        "seq": seq,
        "ts": "2026-01-01T00:00:00.000000Z",
        "run_id": run,
        "source_id": "shop",
        "kind": kind,
    }
    return json.dumps({**envelope, **own}, separators=(",", ":"))


def row_line(seq: int, kind: str, table: str, op: str, key: str, **own: Any) -> str:
    """Return a line of a row change at the SCN of its number."""
    return told(seq, kind=kind, lsn=str(seq), op=op, table=table, pk=key, **own)
