"""``python -m benchmarks.relay_flight serve FOLDER`` and ``… get ADDRESS``: the same rows by Arrow Flight.

The server holds the log's rows as record batches in memory and sends them to whoever asks; the client takes them as
record batches. Neither checks a checksum.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from pyarrow import flight

from headrace.changelog import ChangeLogReader


class Server(flight.FlightServerBase):  # type: ignore[misc]  # untyped in pyarrow
    """Gives out one stream."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        super().__init__("grpc+tcp://127.0.0.1:0")
        self._batches = batches

    def do_get(
        self,
        context: flight.ServerCallContext,  # noqa: ARG002 - Flight's signature
        ticket: flight.Ticket,  # noqa: ARG002
    ) -> flight.RecordBatchStream:
        """Send everything."""
        reader = pa.RecordBatchReader.from_batches(self._batches[0].schema, self._batches)
        return flight.RecordBatchStream(reader)


def serve(folder: Path) -> None:
    """Serve the rows of a log until the input ends."""
    blocks = ChangeLogReader(folder).blocks(0)
    server = Server([body.batch for block in blocks for body in block.bodies])
    print(f"at grpc+tcp://127.0.0.1:{server.port}", flush=True)
    sys.stdin.read()
    server.shutdown()


def get(address: str) -> None:
    """Take everything once."""
    client = flight.connect(address)
    print("waiting", flush=True)
    sys.stdin.readline()
    began_ns = time.time_ns()
    rows = size = 0
    for chunk in client.do_get(flight.Ticket(b"")):
        rows += chunk.data.num_rows
        size += chunk.data.nbytes
    said = {"rows": [rows], "bytes": size, "began_ns": began_ns, "ended_ns": time.time_ns()}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]))
    else:
        get(sys.argv[2])
