"""Filters at the relay: only what was asked for is sent, the rest moves the checkpoint, nothing is worked out twice."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest

from headrace.changelog import ChangeLogReader, ChangeLogWriter
from headrace.model.block import Block
from headrace.registry.file import FileRegistry
from headrace.relay.server import filtered, supply
from headrace.wire.block import HEADER_BYTES
from headrace.wire.filters import parse_filter
from tests.changelog.played import SMALL
from tests.changelog.windows import OTHER, TABLE, scns, seen, size, synced, window
from tests.relay.server.asking import ask, pulled, stream
from tests.requirements import req

ONE_TABLE = {"tables": ["public.other"]}
HALF = {"partition": {"by": "mod", "count": 2, "take": [1]}}
SOME = {"partition": {"by": "hash", "count": 3, "take": [0, 2]}}
LOW = {"partition": {"by": "range", "ranges": [{"below": 2}]}}
LARGE = {"where": {"public.t": "k > 1"}}


def counted(url: str, name: str = "filters_applied_total") -> int:
    lines = ask(url, "/metrics").body.decode().splitlines()
    found = [line for line in lines if line.startswith(f"headrace_relay_{name}{{")]
    return sum(int(line.rpartition(" ")[2]) for line in found)


@req("D60", "D65", "B-9")
@pytest.mark.parametrize("wanted", [ONE_TABLE, HALF, SOME, LOW, LARGE, {}])
@pytest.mark.parametrize("mode", ["push", "pull"])
def test_a_filter_at_the_relay_is_the_same_filter_as_at_the_client(writer, url, wanted, mode):
    blocks = [window(scn, 4, tables=(TABLE, OTHER), truncate=scn == 3) for scn in range(1, 9)]
    synced(writer, *blocks)
    schemas = {one.schema_id: one for one in (TABLE, OTHER)}
    bound = parse_filter(wanted).bound(schemas.__getitem__)
    with stream(url, after=0, mode=mode, upto=8, filter=json.dumps(wanted)) as frames:
        assert seen(frames.blocks()) == seen(bound.apply(block) for block in blocks)
        assert 0 < len(frames.raw) < sum(map(size, blocks)) + (not wanted)


@req("D60")
def test_bytes_fall_with_what_a_filter_leaves_out(writer, url):
    synced(writer, *(window(scn, 400, text="x" * 100) for scn in range(1, 20)))
    synced(writer, *(window(scn, 2, tables=(OTHER,)) for scn in range(20, 25)))
    with stream(url, after=0, mode="pull") as frames:
        everything = sum(map(size, frames.blocks()))
    whole = counted(url, "bytes_sent_total")
    assert whole >= everything
    with stream(url, after=0, mode="pull", filter=json.dumps(ONE_TABLE)) as frames:
        assert scns(frames.blocks()) == list(range(20, 25))
        assert len(frames.raw) * 40 < everything
    assert (counted(url, "bytes_sent_total") - whole) * 40 < whole


@req("D126")
@pytest.mark.parametrize("by", ["mod", "hash"])
def test_one_partition_of_eight_costs_an_eighth_of_the_bytes(writer, url, by):
    synced(writer, *(window(scn, 800, text="x" * 200) for scn in range(1, 11)))
    with stream(url, after=0, mode="pull") as frames:
        everything = sum(map(size, frames.blocks()))
    parts = []
    for number in range(8):
        wanted = {"partition": {"by": by, "count": 8, "take": [number]}}
        with stream(url, after=0, mode="pull", filter=json.dumps(wanted)) as frames:
            frames.blocks()
            parts.append(len(frames.raw))
    assert max(parts) < everything / 8 * 1.5
    assert sum(parts) < everything * 1.1


@req("D63", "B-8")
def test_a_filter_that_leaves_nothing_still_moves_the_checkpoint(writer, url):
    synced(writer, *(window(scn) for scn in range(1, 20)))
    got = pulled(url, after=0, filter=json.dumps(ONE_TABLE))
    assert scns(got) == []
    assert got[-1].covered_scn == 19
    # Neighbours of which nothing is left come as one.
    assert len(got) < 10
    with stream(url, after=19, filter=json.dumps(ONE_TABLE)) as frames:
        synced(writer, window(20))
        (block,) = frames.until(20)
        assert (len(block.index), block.covered_scn) == (0, 20)
        synced(writer, window(21, tables=(OTHER,)))
        assert scns(frames.until(21)) == [21]


def test_a_filter_is_worked_out_once_per_block_whoever_asks(writer, url):
    synced(writer, *(window(scn, tables=(TABLE, OTHER)) for scn in range(1, 11)))
    for _ in range(3):
        assert scns(pulled(url, after=0, filter=json.dumps(ONE_TABLE))) == list(range(1, 11))
    assert counted(url) == 10
    with ExitStack() as opened:
        said = json.dumps({"tables": ["public.other"]}, indent=1)
        readers = [opened.enter_context(stream(url, after=10, filter=said)) for _ in range(5)]
        synced(writer, *(window(scn, tables=(TABLE, OTHER)) for scn in range(11, 16)))
        for reader in readers:
            assert scns(reader.until(15)) == list(range(11, 16))
    assert counted(url) == 15
    pulled(url, after=0, filter=json.dumps(HALF))
    assert counted(url) == 30


@req("D60")
def test_blocks_of_which_all_is_wanted_go_out_as_they_are(writer, url):
    synced(writer, *(window(scn, tables=(TABLE, OTHER)) for scn in range(1, 11)))
    with stream(url, after=0, mode="pull") as frames:
        frames.blocks()
        stored = frames.raw
    for tables in (["public.*"], ["public.t", "public.other"]):
        with stream(url, after=0, mode="pull", filter=json.dumps({"tables": tables})) as frames:
            assert scns(frames.blocks()) == list(range(1, 11))
            assert frames.raw == stored
    assert counted(url) == 0, "nothing was worked out"


@req("D61")
def test_a_filtered_pull_is_bounded_by_what_is_sent(writer, url):
    synced(writer, *(window(scn, 300, tables=(TABLE, OTHER)) for scn in range(1, 11)))
    whole = pulled(url, after=0, filter=json.dumps(ONE_TABLE))
    one = size(whole[0])
    got = pulled(url, after=0, filter=json.dumps(ONE_TABLE), max_bytes=one * 3)
    assert scns(got) == [1, 2, 3]
    refused = ask(
        url,
        "/stream",
        post={"source": "shop", "after": 0, "mode": "pull", "max_bytes": 64, "filter": ONE_TABLE},
    )
    assert (refused.status, refused.error["needed_bytes"]) == (413, one)


def test_lines_can_be_filtered(writer, url):
    synced(writer, window(1, tables=(TABLE, OTHER)))
    answer = ask(
        url,
        "/stream",
        post={
            "source": "shop",
            "after": 0,
            "mode": "pull",
            "format": "ndjson",
            "filter": ONE_TABLE,
        },
    )
    told = [json.loads(line) for line in answer.body.splitlines()]
    assert {line["table"] for line in told if "row" in line} == {"public.other"}
    assert told[-2]["end"]


@pytest.mark.parametrize("how", [{}, {"wait_ms": 20_000}])
def test_a_pull_of_lines_passes_what_leaves_none(writer, url, how, monkeypatch):
    """Pieces of an open transaction of which a filter leaves nothing have no line at all: no end of the log."""
    monkeypatch.setattr(supply, "ROUND_BYTES", 1)
    pieces = [window(1, first=2 * i, last=i == 5) for i in range(6)]
    synced(writer, *pieces, window(2, tables=(TABLE, OTHER)))
    asked = {"source": "shop", "after": 0, "mode": "pull", "format": "ndjson", "filter": ONE_TABLE}
    began = time.monotonic()
    answer = ask(url, "/stream", post=asked | how)
    told = [json.loads(line) for line in answer.body.splitlines()]
    assert {line["scn"] for line in told if "row" in line} == {2}
    assert told[-1]["reason"] == "drained"
    assert time.monotonic() - began < 10


def test_a_filter_that_does_not_fit_the_tables_ends_the_stream_by_name(writer, url):
    synced(writer, window(1))
    wanted = {"where": {"public.t": "nothing_like_this > 1"}}
    asked = {"source": "shop", "after": 0, "mode": "pull", "filter": wanted}
    answer = ask(url, "/stream", post=asked)
    assert (answer.status, answer.error["type"]) == (400, "BadFilter")
    assert "nothing_like_this" in answer.error["message"]


def test_what_a_filter_left_of_a_log_is_not_told_of_another_one(folder, url):
    for text in ("old", "new"):
        shutil.rmtree(folder, ignore_errors=True)
        with ChangeLogWriter.open(folder, SMALL) as writer:
            registry = FileRegistry(folder / "schemas")
            registry.put(TABLE)
            synced(writer, window(1, text=text))
            with stream(url, after=0, mode="pull", filter=json.dumps(LOW)) as frames:
                (left,) = frames.blocks()
        assert left.bodies[0].batch.column("c1").to_pylist() == [text] * 2


@pytest.mark.parametrize("fault", ["unfit", "damaged"])
def test_what_lies_before_a_block_that_does_not_go_through_a_filter_is_told(
    writer, folder, url, fault
):
    synced(writer, window(1), window(2))
    if fault == "unfit":
        narrow = replace(TABLE, columns=TABLE.columns[:2])
        FileRegistry(folder / "schemas").put(narrow)
        synced(writer, window(3, tables=(narrow,)))
    else:
        synced(writer, window(3))
        (segment,) = folder.glob("*.seg")
        data = bytearray(segment.read_bytes())
        data[next(ChangeLogReader(folder).refs(2)).offset + HEADER_BYTES + 200] ^= 1
        segment.write_bytes(data)
    wanted = json.dumps({"where": {"public.t": "c2 is not null"}})
    for upto in (3, 9):
        with stream(url, after=0, filter=wanted, upto=upto) as frames:
            *blocks, last = frames
        assert isinstance(last, dict)
        assert scns(block for block in blocks if isinstance(block, Block)) == [1, 2]
        assert last["error"]["type"] == {"unfit": "BadFilter", "damaged": "CorruptSegment"}[fault]


def test_what_filters_leave_next_to_nothing_of_is_not_kept_without_a_bound(
    writer, url, monkeypatch
):
    monkeypatch.setattr(filtered, "_KEPT_BYTES", 64 * 1024)
    synced(writer, *(window(scn) for scn in range(1, 201)))
    wanted = json.dumps({"where": {"public.t": "k < 0"}})
    for times in (1, 2):
        assert scns(pulled(url, after=0, filter=wanted)) == []
        assert counted(url) == 200 * times
