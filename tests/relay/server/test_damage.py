"""Damaged logs: never delivered as if they were whole, always named."""

from __future__ import annotations

import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import ProtocolError
from headrace.model.block import Block
from tests.changelog.windows import scns, synced, window
from tests.relay.server.asking import ask, pulled, stream
from tests.requirements import req


def flip(folder, scn: int, at: int) -> None:
    """Change one bit of the block that holds a transaction, ``at`` bytes into it."""
    (ref,) = ChangeLogReader(folder).refs(scn - 1, scn)
    with (folder / ref.segment).open("rb+") as file:
        file.seek(ref.offset + at % ref.length)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 4]))


@req("B-12", "D64")
@pytest.mark.parametrize("at", [0, 5, 9, 33, 60, 126])
@pytest.mark.parametrize("mode", ["push", "pull"])
def test_a_damaged_header_ends_the_stream_before_it_by_name(writer, folder, url, at, mode):
    synced(writer, *(window(scn) for scn in range(1, 12)))
    flip(folder, 8, at)
    with stream(url, after=0, mode=mode) as frames:
        *blocks, last = frames
    assert scns(b for b in blocks if isinstance(b, Block)) == list(range(1, 8))
    assert isinstance(last, dict)
    assert last["error"]["type"] == "CorruptSegment"
    assert last["error"]["next_step"]
    refused = ask(url, "/stream", source="shop", after=7, mode=mode)
    assert (refused.status, refused.error["type"]) == (500, "CorruptSegment")
    # Behind it in the same segment nothing is served; before it everything is.
    assert scns(pulled(url, after=3, upto=6)) == [4, 5, 6]


@req("B-12", "D64")
@pytest.mark.parametrize("query", [{}, {"filter": '{"tables": ["public.t"]}'}])
@pytest.mark.parametrize("at", [260, 400, 900, -70])
def test_a_damaged_body_is_refused_by_whoever_receives_it(writer, folder, url, at, query):
    synced(writer, *(window(scn) for scn in range(1, 12)))
    flip(folder, 8, at)
    with stream(url, after=0, mode="pull", **query) as frames:
        got = [frames.frame() for _ in range(7)]
        with pytest.raises(ProtocolError):
            frames.frame()
    assert scns(block for block in got if isinstance(block, Block)) == list(range(1, 8))


@req("B-12", "D64")
@pytest.mark.parametrize(
    "query", [{"format": "ndjson"}, {"filter": '{"where": {"public.t": "k >= 0"}}'}]
)
def test_a_damaged_body_is_never_shown_in_another_form(writer, folder, url, query):
    synced(writer, *(window(scn) for scn in range(1, 12)))
    flip(folder, 8, 900)
    answer = ask(url, "/stream", source="shop", after=0, mode="pull", **query)
    if answer.status == 200:
        assert b"CorruptSegment" in answer.body
        assert b'"scn":8' not in answer.body
    else:
        assert answer.error["type"] == "CorruptSegment"


def test_a_damaged_tail_is_named(writer, folder, url):
    synced(writer, window(1))
    assert scns(pulled(url, after=0)) == [1]
    (folder / "tail").write_bytes(bytes(4096))
    answer = ask(url, "/stream", source="shop", after=0, mode="pull")
    assert (answer.status, answer.error["type"]) == (500, "CorruptSegment")
    assert "tail" in answer.error["message"]
