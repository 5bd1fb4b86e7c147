"""``python -m benchmarks.relay_server NAME=FOLDER …``: a relay; says its address, ends with its input."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from headrace.relay.server.serve import bound, serve
from headrace.relay.server.settings import RelaySettings
from headrace.testing.relay import sources_of


def main() -> int:
    """Serve until the input ends."""
    logs = dict(pair.split("=", 1) for pair in sys.argv[1:])
    settings = RelaySettings(sources_of({name: Path(log) for name, log in logs.items()}), port=0)
    listening = bound(settings)
    stop = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    port = listening.getsockname()[1]
    serve(
        settings, listening, stop, started=lambda: print(f"at http://127.0.0.1:{port}", flush=True)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
