"""A control plane over simulated replicators as a process of its own, which tests kill.

Arguments: the folder, the URL of its database or ``-``, the address to listen on, seconds of the lease.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path

from headrace.replicator.api.app import application
from headrace.replicator.api.people import Known
from headrace.replicator.api.serve import Listening, listen, serve
from headrace.replicator.control.plane import ControlPlane
from tests.control.planes import settings_of


def main(folder: str, url: str, address: str, lease_s: str) -> None:
    logging.basicConfig(level=logging.INFO)
    settings = settings_of(Path(folder), None if url == "-" else url, lease_s=float(lease_s))
    where = Listening.parse(address, None)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    listening = listen(where)
    with ControlPlane(settings, os.environ) as plane:
        serve(application(plane, Known(())), where, listening, stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
