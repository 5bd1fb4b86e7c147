"""A feed of blocks: the bytes of a change log come to the changes that its lines come to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError, SlotLost
from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.change import change_schema
from headrace.wire.block import encode_block
from tests.requirements import req
from tests.sources.files.test_files import SCHEMA, Feed, T, end, feed, insert, scns

__all__ = ["feed"]


def block(*scns: int, last: bool = True, begins: bool = True) -> bytes:
    """Return a block with a row for each transaction, and a truncate before the first."""
    rows = [
        {"_scn": scn, "_ord": 1, "_op": "+I", "_missing": None, "id": scn, "v": f"b{scn}"}
        for scn in scns
    ]
    body = Body(SCHEMA.schema_id, T, pa.RecordBatch.from_pylist(rows, change_schema(SCHEMA)))
    events = (SystemEvent(scns[0], 0, SystemKind.TRUNCATE, T, {}),) if begins else ()
    index = transaction_index(
        (
            scn,
            1_000_000 * scn,
            scn,
            1 + (begins and not at),
            ORIGIN_LOG,
            int(last or scn != scns[-1]),
        )
        for at, scn in enumerate(scns)
    )
    return encode_block(Block(index, (body,), events, scns[-1] if last else scns[-1] - 1))


@req("D131", "N17")
def test_blocks_and_lines_are_one_feed(feed: Feed) -> None:
    feed.write("1.blocks", block(3, 4), block(6))
    feed.write("2.ndjson", insert(8, 0, 80), end(8))
    feed.write("3.blocks", block(9))
    feed.open()
    found = feed.collect(acknowledge=True)
    assert found.changes("shop.t") == [
        *[("+I", n, f"b{n}") for n in (3, 4, 6)],
        ("+I", 80, "x"),
        ("+I", 9, "b9"),
    ]
    assert scns(found) == [3, 4, 6, 8, 9]
    kinds = [e.kind for e in found.events if e.kind is not SystemKind.SCHEMA]
    assert kinds == [SystemKind.TRUNCATE] * 3
    assert feed.source.end_scn() == found.items[-1].block.covered_scn
    feed.write("3.blocks", block(10, begins=False))
    assert feed.collect(acknowledge=True).changes("shop.t") == [("+I", 10, "b10")]
    feed.open()
    feed.write("3.blocks", block(11, begins=False))
    assert feed.collect().changes("shop.t") == [("+I", 11, "b11")]


@req("D131")
def test_a_block_counts_when_all_of_it_is_there_and_its_transaction_when_it_ends(
    feed: Feed,
) -> None:
    whole = block(5)
    for cut in (10, 100, len(whole) - 1):
        (feed.folder / "1.blocks").write_bytes(whole[:cut])
        feed.open()
        assert feed.collect().items == []
        assert feed.source.end_scn() == 0
    (feed.folder / "1.blocks").write_bytes(whole + block(6, last=False))
    feed.open()
    assert scns(feed.collect()) == [5]
    feed.write("1.blocks", block(7))
    with pytest.raises(ProtocolError, match=r"1\.blocks"):
        feed.collect()


@req("D131")
@pytest.mark.parametrize("behind", ["2.blocks", "2.ndjson"])
def test_a_file_that_ends_amid_a_block_has_none_behind_it(feed: Feed, behind: str) -> None:
    feed.write("1.blocks", block(5), block(6)[:-64])
    feed.write(behind, block(7) if behind.endswith("s") else insert(7, 0, 7), b"")
    feed.open()
    with pytest.raises(ProtocolError, match=r"1\.blocks"):
        feed.collect()


@req("D131", "P42")
def test_damage_is_named_with_its_file_and_nothing_behind_it_is_read(feed: Feed) -> None:
    damaged = bytearray(block(6))
    damaged[-70] ^= 1
    feed.write("1.blocks", block(5), bytes(damaged), block(7))
    feed.open()
    with pytest.raises(ProtocolError, match=r"1\.blocks.*checksum") as raised:
        feed.collect()
    assert "block_format" in (raised.value.next_step or "")
    (feed.folder / "1.blocks").write_bytes(b"no block of any kind" * 10)
    with pytest.raises(ProtocolError, match="magic"):
        feed.source.end_scn()


@req("D131", "H14")
def test_blocks_that_are_gone_are_a_loss_that_is_named(feed: Feed, tmp_path: Path) -> None:
    feed.write("1.blocks", block(5))
    feed.open()
    feed.collect(acknowledge=True)
    feed.close()
    (feed.folder / "1.blocks").unlink()
    feed.write("2.blocks", block(8))
    with pytest.raises(SlotLost, match="begins at SCN 8"):
        feed.open()
