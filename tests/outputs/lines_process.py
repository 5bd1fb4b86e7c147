"""A consumer in a process of its own that writes lines and renames its file often; `test_ndjson_kills` kills it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from headrace.client import Event, FileCheckpoints, Result, Subscription
from headrace.outputs import NdjsonOutput
from headrace.wire.place import Place

ROTATE_BYTES = 900


class Told(NdjsonOutput):
    """Says each step before it is done."""

    def on_data_event(self, event: Event) -> Result | None:
        print("row", flush=True)
        return super().on_data_event(event)

    def on_checkpoint(self, place: Place) -> Result | None:
        print("checkpoint", flush=True)
        return super().on_checkpoint(place)


def dying(at: str) -> None:
    """Die at the first rename, before it or behind it."""
    rename = Path.rename

    def renamed(self: Path, target: Any) -> Path:
        if self.suffix == ".ndjson":
            if at == "behind":
                rename(self, target)
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)

    Path.rename = renamed  # type: ignore[assignment, method-assign]


def main() -> None:
    """Consume up to an SCN."""
    relay, folder, upto, at = sys.argv[1:]
    if at != "random":
        dying(at)
    output = Told(Path(folder) / "changes.ndjson", rotate_bytes=ROTATE_BYTES)
    places = FileCheckpoints(Path(folder) / "place")
    Subscription(relay, "shop", output, places, start="oldest", upto=int(upto)).run()


if __name__ == "__main__":
    main()
