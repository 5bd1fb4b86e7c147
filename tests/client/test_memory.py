"""Memory for large blocks is used again, and never while somebody still looks at a block in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from headrace.client import Batch, Consumer, Subscription
from headrace.client.frames import Note
from headrace.client.http import HttpSettings
from headrace.client.memory import BlockMemory
from headrace.client.transport import Relay, StreamRequest
from headrace.wire.block import ALIGNMENT, BlockFrame
from headrace.wire.place import Place
from tests.client.conftest import QUICK
from tests.client.logs import LogFolder
from tests.client.test_transport import wide
from tests.requirements import req

MIB = 2**20


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_what_nobody_looks_at_any_more_is_lent_again():
    memory = BlockMemory()
    first = memory.lend(10 * MIB)
    assert len(first) == 10 * MIB
    assert address(first) % ALIGNMENT == 0
    at = address(first)
    del first
    assert address(memory.lend(9 * MIB)) == at


@pytest.mark.parametrize(
    "look",
    [
        lambda view: view[5:6],
        lambda view: np.frombuffer(view, np.int32),
        lambda view: pa.py_buffer(view).slice(8),
    ],
    ids=["view", "numpy", "arrow"],
)
def test_what_somebody_looks_at_is_lent_to_nobody_else(look):
    memory = BlockMemory()
    first = memory.lend(MIB)
    at = address(first)
    seen = look(first)
    del first
    others = [memory.lend(MIB) for _ in range(3)]
    assert at not in map(address, others)
    del seen
    assert address(memory.lend(MIB)) == at


def test_a_small_block_keeps_no_large_memory():
    memory = BlockMemory()
    large = memory.lend(10 * MIB)
    at = address(large)
    del large
    small = memory.lend(2 * MIB)
    assert address(small) != at
    # It is there for the next large one all the same.
    assert address(memory.lend(10 * MIB)) == at


def test_what_is_kept_is_bounded_and_forgotten():
    memory = BlockMemory()
    held = [memory.lend(20 * MIB) for _ in range(10)]
    addresses = list(map(address, held))
    held.clear()
    again = [memory.lend(20 * MIB) for _ in range(10)]
    assert 2 <= len(set(map(address, again)) & set(addresses)) <= 3
    again.clear()
    memory.forget()
    assert memory.kept_bytes == 0


def test_a_stream_of_large_blocks_takes_the_memory_of_two(log: LogFolder, relay: str):
    log.append(*(wide(scn, 700) for scn in range(1, 31)))
    asked = Relay(relay, HttpSettings())
    stream = asked.stream(StreamRequest("shop", Place(0), upto=30))
    seen = []
    while (frame := stream.next()) is not None:
        if isinstance(frame, BlockFrame):
            assert frame.crcs is not None
            seen.append(address(frame.data))
    asked.close()
    assert len(seen) == 30
    assert len(set(seen)) <= 2


def test_nothing_is_kept_for_blocks_once_none_is_coming(log: LogFolder, relay: str):
    log.append(*(wide(scn, 700) for scn in range(1, 4)))
    asked = Relay(relay, HttpSettings())
    stream = asked.stream(StreamRequest("shop", Place(0)))
    for _ in range(3):
        assert isinstance(stream.next(), BlockFrame)
    assert asked._memory.kept_bytes > 700_000
    assert isinstance(stream.next(), Note)
    assert asked._memory.kept_bytes == 0
    asked.close()


def test_a_consumer_that_keeps_nothing_is_given_the_same_memory(log: LogFolder, relay: str):
    class Looker(Consumer):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def on_data_batch(self, batch: Batch) -> None:
            self.seen.append(batch.rows.column("_scn").buffers()[1].address)

    log.append(*(wide(scn, 700) for scn in range(1, 41)))
    looker = Looker()
    settings = replace(QUICK, buffer_bytes=1)
    Subscription(relay, "shop", looker, start=Place(0), upto=40, settings=settings).run()
    assert len(looker.seen) == 40
    # One that is looked at, one that waits for it, one that is coming.
    assert len(set(looker.seen)) <= 3


@req("D64")
def test_rows_that_a_consumer_keeps_stay_as_they_came(log: LogFolder, relay: str):
    class Keeper(Consumer):
        def __init__(self) -> None:
            self.kept: list[pa.RecordBatch] = []

        def on_data_batch(self, batch: Batch) -> None:
            # Some are let go, so that memory comes back between those that are kept.
            if batch.rows.column("_scn")[0].as_py() % 3:
                self.kept.append(batch.rows)

    blocks = [wide(scn, 300 + scn % 7) for scn in range(1, 41)]
    log.append(*blocks)
    keeper = Keeper()
    Subscription(relay, "shop", keeper, start=Place(0), upto=40, settings=QUICK).run()
    expected = [block.bodies[0].batch for block in blocks if block.first_scn % 3]
    assert len(keeper.kept) == len(expected)
    for kept, sent in zip(keeper.kept, expected, strict=True):
        assert kept.equals(sent)
