"""``python -m benchmarks.relay_server NAME=FOLDER …``: a relay; says its address, ends with its input."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from headrace.relay.server.settings import RelaySettings
from headrace.relay.server.workers import run_relay
from headrace.testing.relay import sources_of


def main() -> int:
    """Serve until the input ends."""
    logs = dict(pair.split("=", 1) for pair in sys.argv[1:])
    settings = RelaySettings(sources_of({name: Path(log) for name, log in logs.items()}), port=0)
    stop = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    run_relay(settings, stop, lambda url, _pids: print(f"at {url}", flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
