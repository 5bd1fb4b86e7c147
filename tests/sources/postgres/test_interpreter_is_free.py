"""The decoders in C leave the interpreter to others: while they work another thread runs.

While such a test goes on no thread is interrupted, so that another one runs only when the one at work lets the
interpreter go. That the decoders in Python never do shows that it is so.
"""

from __future__ import annotations

import gc
import struct
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.sources.postgres.copy_binary import HEADER
from headrace.sources.postgres.copy_stream import append_copy_data
from headrace.sources.postgres.decoder import ENGINES, NEED, Decoder, PythonDecoder, Rows
from headrace.sources.postgres.types import Form
from headrace.testing.notation import table_of
from tests.sources.postgres import wire

TABLE = table_of(2)
OID = 7
UNINTERRUPTED_S = 1_000.0
ATTEMPTS = 300
"""How often the system may leave the other thread asleep for as long as one piece of work takes."""

native = pytest.mark.skipif("native" not in ENGINES, reason="there was no compiler")


@pytest.fixture(autouse=True)
def uninterrupted() -> Iterator[None]:
    # What other tests left behind is collected before: closing a socket or a file lets the interpreter go, too.
    gc.collect()
    gc.disable()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(UNINTERRUPTED_S)
    yield
    sys.setswitchinterval(interval)
    gc.enable()


def another_runs(work: Callable[[], object], attempts: int) -> bool:
    """Return whether another thread, which waits for nothing but the interpreter, runs during one of the attempts."""
    gate, there, ran = threading.Lock(), threading.Event(), []
    gate.acquire()

    def run() -> None:
        there.set()
        with gate:
            ran.append(True)

    other = threading.Thread(target=run, name="other")
    other.start()
    # From here to the end nothing but the work may let the interpreter go.
    there.wait()
    gate.release()
    for _ in range(attempts):
        work()
        if ran:
            break
    result = bool(ran)
    other.join()
    return result


def stream(rows: int) -> bytearray:
    """Return the frames of an open transaction."""
    inserts = (wire.frame(wire.insert(OID, [b"%d" % n, b"v" * 50])) for n in range(rows))
    return bytearray(wire.frame(wire.begin(20, 5, 2)) + b"".join(inserts))


def walks(make: Callable[[], Decoder], rows: int, count: int) -> Callable[[], None]:
    """Return what walks over so many rows, each time with a decoder that was made before."""
    data = stream(rows)
    fresh: list[tuple[Decoder, Rows]] = []
    for _ in range(count):
        decoder = make()
        collected = decoder.rows_of(TABLE, TABLE.schema_id)
        decoder.set_table(OID, collected)
        fresh.append((decoder, collected))

    def walk() -> None:
        decoder, _ = fresh.pop()
        assert decoder.walk(data, 0, len(data)) == len(data)
        assert (decoder.stop, decoder.rows) == (NEED, rows)

    return walk


def copied(rows: int) -> bytes:
    """Return a binary COPY without its trailer, which no decoder takes for whole once it has read the rows."""
    row = struct.pack(">hiqi50s", 2, 8, 1, 50, b"v" * 50)
    return HEADER + row * rows


def messages(rows: int) -> bytearray:
    return bytearray((b"d" + struct.pack(">I", 14) + b"v" * 10) * rows)


@native
def test_while_the_stream_is_decoded() -> None:
    from headrace.sources.postgres._native import NativeDecoder

    many = 1 << 40
    assert another_runs(walks(lambda: NativeDecoder(100, many, many), 50_000, ATTEMPTS), ATTEMPTS)


@native
def test_while_a_chunk_is_decoded() -> None:
    from headrace.sources.postgres._native import copy_columns

    data, forms = copied(100_000), [Form.PLAIN] * 2
    assert another_runs(lambda: copy_columns(data, len(HEADER), TABLE, forms), ATTEMPTS)


@native
def test_while_a_chunk_is_received() -> None:
    from headrace.sources.postgres import _native

    data = messages(500_000)

    def receive() -> None:
        assert _native.append_copy_data(data, 0, len(data), bytearray(), 1 << 40) == len(data)

    assert another_runs(receive, ATTEMPTS)


def test_python_itself_lets_nobody_else_run() -> None:
    many = 1 << 40
    assert not another_runs(walks(lambda: PythonDecoder(100, many, many), 5_000, 5), 5)
    data = messages(5_000)
    assert not another_runs(lambda: append_copy_data(data, 0, len(data), bytearray(), 1 << 40), 5)
