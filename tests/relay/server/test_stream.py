"""The stream: what is stored, byte for byte, from any place on, to anybody who asks."""

from __future__ import annotations

import socket
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.changelog import ChangeLogReader, ChangeLogSettings, ChangeLogWriter
from headrace.model.block import Block
from headrace.registry.file import FileRegistry
from headrace.testing.notation import table_of
from headrace.testing.ports import free_port
from headrace.testing.relay import served
from headrace.wire import encode_block
from tests.changelog.played import SMALL, STEPS, last_scn, played
from tests.changelog.windows import (
    OTHER,
    TABLE,
    commit_us,
    coverage,
    joined,
    scns,
    seen,
    size,
    synced,
    window,
)
from tests.relay.server.asking import ask, pulled, stream
from tests.requirements import req
from tests.waiting import until


def rows_above(blocks: list[Block], after: int, upto: int = 2**62) -> list:
    return seen(block.after(after).upto(upto) for block in blocks)


@req("B-1", "D42", "D65")
@settings(max_examples=15)
@given(STEPS, st.data())
def test_any_place_gives_a_whole_suffix_of_windows_or_scn_not_found(history, data):
    with tempfile.TemporaryDirectory() as name, served({"shop": Path(name)}) as url:
        folder = Path(name)

        def asked() -> None:
            ask(url, "/stream", source="shop", mode="pull", after="newest")

        with played(folder, history, asked) as blocks:
            last = last_scn(blocks)
            log = ChangeLogReader(folder)
            tail = log.tail()
            for after in data.draw(st.lists(st.integers(0, last + 2), min_size=3, max_size=3)):
                if not tail.oldest_scn <= after <= tail.covered_scn:
                    error = ask(url, "/stream", source="shop", after=after, mode="pull").error
                    assert (error["type"], error["wanted_scn"]) == ("ScnNotFound", after)
                    assert (error["oldest_scn"], error["newest_scn"]) == (
                        tail.oldest_scn,
                        tail.covered_scn,
                    )
                    continue
                upto = data.draw(st.integers(0, last + 3))
                truth = seen(log.blocks(after, upto))
                if upto <= tail.covered_scn:
                    with stream(url, after=after, upto=upto) as frames:
                        assert rows_above(frames.blocks(), after, upto) == truth
                assert rows_above(pulled(url, after=after, upto=upto), after, upto) == truth
                everything = in_pulls(
                    url, after, data.draw(st.sampled_from([9_000, 20_000, 1 << 24]))
                )
                assert rows_above(everything, after) == seen(log.blocks(after))
                with stream(url, after=after) as frames:
                    assert rows_above(
                        frames.until(tail.covered_scn) if after < tail.covered_scn else [], after
                    ) == seen(log.blocks(after))


def in_pulls(url: str, after: int, most: int) -> list[Block]:
    """Return what one pull after the other gives; a window that is larger than a pull goes on in the next."""
    blocks: list[Block] = []
    place = str(after)
    while True:
        with stream(url, after=place, mode="pull", max_bytes=most) as frames:
            *got, end = frames
        assert isinstance(end, dict)
        whole = [block for block in got if isinstance(block, Block)]
        assert sum(map(size, whole)) <= most
        blocks += whole
        if end["reason"] == "drained":
            return blocks
        assert end["reason"] == "size"
        last = whole[-1]
        if last.ends_complete:
            place = str(last.last_scn)
        else:
            place = (
                f"{last.last_scn}:{max(row[1] for row in seen([last]) if row[0] == last.last_scn)}"
            )


@req("D55")
def test_bytes_sent_are_the_bytes_stored(writer, folder, url):
    synced(writer, *(window(scn, scn, tables=(TABLE, OTHER)) for scn in range(1, 30)), coverage(40))
    stored = b"".join(
        (folder / link.name).read_bytes()[128:] for link in sorted(folder.glob("*.seg"))
    )
    with stream(url, after=0, mode="pull") as frames:
        frames.blocks()
        assert stored.startswith(frames.raw)
        assert not stored[len(frames.raw) :].strip(b"\0")
    assert bytes(frames.raw) == b"".join(
        encode_block(block)
        for block in [*(window(s, s, tables=(TABLE, OTHER)) for s in range(1, 30)), coverage(40)]
    )


@req("D116")
def test_a_new_version_of_a_table_leaves_the_bytes_of_what_came_before(writer, folder, url):
    synced(writer, *(window(scn, scn) for scn in range(1, 20)))
    with stream(url, after=0, mode="pull") as frames:
        frames.blocks()
        before = bytes(frames.raw)
    wider = table_of(4, name=TABLE.table.name)
    FileRegistry(folder / "schemas").put(wider)
    synced(writer, window(20, tables=(wider,)), window(21))
    with stream(url, after=0, mode="pull") as frames:
        blocks = frames.blocks()
        assert bytes(frames.raw).startswith(before)
    assert len(frames.raw) > len(before)
    versions = [body.schema_id for block in blocks for body in block.bodies]
    assert versions == [TABLE.schema_id] * 19 + [wider.schema_id, TABLE.schema_id]


@req("D41")
def test_a_push_brings_each_window_as_it_is_committed(writer, url):
    synced(writer, window(1))
    with stream(url, after=1) as frames:
        for scn in range(2, 60):
            synced(writer, window(scn))
            assert scns(frames.until(scn)) == [scn]


@req("D41", "B-1")
def test_a_window_that_has_not_ended_is_not_sent(writer, url):
    synced(writer, window(1), window(2, 20, last=False))
    assert scns(pulled(url, after=0)) == [1]
    with stream(url, after=1) as frames:
        beat = frames.frame()
        assert isinstance(beat, dict)
        assert beat["covered_scn"] == 1
        synced(writer, window(2, 20, first=20))
        assert scns(frames.until(2)) == [2, 2]


@req("D63")
def test_nothing_new_and_nothing_but_coverage_are_told_apart(writer, url):
    synced(writer, window(1))
    with stream(url, after="newest") as frames:
        beat = frames.frame()
        assert isinstance(beat, dict)
        assert (beat["kind"], beat["covered_scn"]) == ("heartbeat", 1)
        assert beat["time_us"] > 1_700_000_000_000_000
        synced(writer, coverage(9))
        (block,) = frames.until(9)
        assert (len(block.index), block.covered_scn) == (0, 9)


def test_a_place_inside_a_window_passes_over_the_blocks_before_it(writer, url):
    synced(
        writer,
        window(1),
        *(window(2, 5, first=first, last=first == 15) for first in (0, 5, 10, 15)),
        window(3),
    )
    for ord_, blocks in ((0, 4), (3, 4), (4, 3), (8, 3), (9, 2), (14, 1), (18, 1)):
        got = pulled(url, after=f"2:{ord_}")
        assert scns(got) == [2] * blocks + [3]
        wanted = [(2, o, "public.t") for o in range(ord_ + 1, 20)]
        assert [row for row in seen(got) if (2, ord_) < row[:2] < (3, 0)] == wanted
    assert scns(pulled(url, after=2)) == [3]
    assert scns(pulled(url, after="2:19")) in ([3], [2, 3])


def test_oldest_newest_and_a_time_are_places_too(writer, url):
    synced(writer, *(window(scn) for scn in range(10, 20)))
    assert scns(pulled(url, after="oldest")) == list(range(10, 20))
    assert scns(pulled(url, after="newest")) == scns(pulled(url)) == []
    assert scns(pulled(url, since_us=commit_us(15))) == list(range(15, 20))
    assert scns(pulled(url, since_us=commit_us(99))) == []
    with stream(url, after=12, mode="pull") as frames:
        assert frames.headers["headrace-source"] == "shop"
        assert frames.headers["headrace-oldest-scn"] == "0"
        assert frames.headers["headrace-covered-scn"] == "19"
        assert frames.headers["headrace-routes"] == "0"
        assert frames.headers["headrace-protocol"] == "1"
        assert frames.headers["content-type"] == "application/vnd.headrace.blocks"


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_a_stream_with_an_end_ends_there_and_says_so(writer, url, mode):
    synced(writer, *(window(scn) for scn in (2, 4, 6)), coverage(9))
    for after, upto, wanted in (
        (0, 4, [2, 4]),
        (0, 5, [2, 4]),
        (2, 2, []),
        (2, 1, []),
        (4, 9, [6]),
    ):
        with stream(url, after=after, upto=upto, mode=mode) as frames:
            *blocks, end = frames
        assert isinstance(end, dict)
        assert end["reason"] == "upto"
        got = [block for block in blocks if isinstance(block, Block)]
        assert scns(b.after(after).upto(upto) for b in got) == wanted
    with stream(url, after=6, upto=12) as frames:
        frames.until(9)
        synced(writer, window(10), window(14))
        assert scns(block.upto(12) for block in frames.blocks()) == [10]


@req("D61", "B-3")
def test_a_pull_is_bounded_or_says_how_much_it_needs(writer, url):
    synced(writer, *(window(scn) for scn in range(1, 6)), window(6, 400))
    one = size(window(1))
    for most in (one, one * 2, one * 3 - 1, one * 5):
        with stream(url, after=0, mode="pull", max_bytes=most) as frames:
            got = frames.blocks()
            assert one * (most // one) == len(frames.raw) == sum(map(size, got)) <= most
    # All that was asked for, to the byte, is not everything up to there.
    with stream(url, after=0, upto=5, mode="pull", max_bytes=one * 2) as frames:
        *_, last = frames
        assert isinstance(last, dict)
        assert last["reason"] == "size"
        assert frames.raw == b"".join(encode_block(window(scn)) for scn in (1, 2))
    refused = ask(url, "/stream", source="shop", after=0, mode="pull", max_bytes=one - 1)
    assert (refused.status, refused.error["type"]) == (413, "BlockTooLarge")
    assert refused.error["needed_bytes"] == one
    needed = ask(url, "/stream", source="shop", after=5, mode="pull", max_bytes=one).error
    assert scns(pulled(url, after=5, max_bytes=needed["needed_bytes"])) == [6]


def test_a_pull_waits_for_its_first_block_as_long_as_it_was_told(writer, url):
    synced(writer, window(1))
    assert scns(pulled(url, after=1, wait_ms=20)) == []
    late: list[list[int]] = []
    waiting = threading.Thread(
        target=lambda: late.append(scns(pulled(url, after=1, wait_ms=25_000)))
    )
    waiting.start()
    # It waits, or asks only afterwards: both bring the window.
    synced(writer, window(2))
    waiting.join(20)
    assert late == [[2]]


def test_a_request_may_come_as_json(writer, url):
    synced(writer, window(1), window(2))
    asked = {"source": "shop", "after": 1, "mode": "pull", "max_bytes": 1 << 20, "filter": None}
    answer = ask(url, "/stream", post=asked)
    assert answer.status == 200
    assert answer.body == ask(url, "/stream", source="shop", after=1, mode="pull").body


@req("D45", "D59")
def test_retention_moves_the_oldest_place_and_who_fell_off_is_told(writer, url):
    synced(writer, *(window(scn) for scn in range(1, 40)))
    assert scns(pulled(url, after=0)) == list(range(1, 40))
    writer.retain()
    (source,) = ask(url, "/sources").json["sources"]
    oldest = source["oldest_scn"]
    assert 1 < oldest < 39
    refused = ask(url, "/stream", source="shop", after=oldest - 1)
    assert (refused.status, refused.error["type"]) == (410, "ScnNotFound")
    assert (refused.error["oldest_scn"], refused.error["newest_scn"]) == (oldest, 39)
    assert refused.error["next_step"]
    assert scns(pulled(url, after=oldest)) == list(range(oldest + 1, 40))
    assert f'headrace_relay_oldest_scn{{source="shop"}} {oldest}' in metrics(url)


def metrics(url: str) -> str:
    return ask(url, "/metrics").body.decode()


@req("B-1", "D59")
def test_a_segment_dropped_in_mid_stream_ends_it_with_a_named_error(tmp_path):
    big = ChangeLogSettings(segment_bytes=1 << 20, retain_bytes=0)
    with ChangeLogWriter.open(tmp_path, big) as writer, served({"shop": tmp_path}) as url:
        synced(writer, *(window(scn, 300, text="x" * 1000) for scn in range(1, 80)))
        with stream(url, after=0) as frames:
            got = [frames.frame()]
            # The connection holds no more than a few MiB, so that the relay waits far from the end.
            writer.retain()
            oldest = ChangeLogReader(tmp_path).tail().oldest_scn
            assert oldest > 70
            *more, last = frames
        got += more
        assert isinstance(last, dict)
        assert last["error"]["type"] == "ScnNotFound"
        assert last["error"]["oldest_scn"] == oldest
        blocks = [block for block in got if isinstance(block, Block)]
        # What came is what was stored, without a gap; a damaged block would not have been decoded.
        assert scns(blocks) == list(range(1, len(blocks) + 1))
        assert last["error"]["wanted_scn"] == len(blocks) < oldest


@req("D46", "D17")
def test_a_relay_that_starts_anew_serves_the_same_and_knows_nobody(writer, folder):
    synced(writer, *(window(scn) for scn in range(1, 30)))
    port = free_port()
    with served({"shop": folder}, port=port) as url:
        before = ask(url, "/stream", source="shop", after=0, mode="pull").body
        half = scns(pulled(url, after=0, max_bytes=size(window(1)) * 9))
    with served({"shop": folder}, port=port) as again:
        assert again == url
        assert ask(again, "/stream", source="shop", after=0, mode="pull").body == before
        rest = scns(pulled(again, after=half[-1]))
    assert half + rest == list(range(1, 30))


def test_a_relay_that_ends_says_so_to_its_readers(writer, folder):
    synced(writer, window(1))
    ended: list[object] = []
    with served({"shop": folder}) as url:

        def read() -> None:
            with stream(url, after=0) as frames:
                opened.set()
                ended.extend(frames)

        opened = threading.Event()
        reading = threading.Thread(target=read)
        reading.start()
        assert opened.wait(20)
    reading.join(20)
    assert ended[-1] == {"kind": "end", "reason": "shutdown"}
    assert scns([block for block in ended if isinstance(block, Block)]) == [1]


def test_a_log_that_begins_later_is_served_from_its_beginning(folder, url):
    refused = ask(url, "/stream", source="shop", after=0)
    assert (refused.status, refused.error["type"]) == (503, "RelayUnavailable")
    with ChangeLogWriter.open(folder, SMALL) as writer, stream(url, after=0) as frames:
        synced(writer, window(1))
        assert scns(frames.until(1)) == [1]


def test_a_capture_that_starts_anew_is_followed_without_asking_again(writer, url):
    synced(writer, window(1), window(2, 20, last=False))
    with stream(url, after=0) as frames:
        frames.until(1)
        anew = writer.reopened()
        synced(anew, window(2, 3), window(3), joined([window(4), window(5)]))
        got = frames.until(5)
        assert scns(got) == [2, 3, 4, 5]
        assert [row for row in seen(got) if row[0] == 2] == [(2, o, "public.t") for o in range(3)]
        anew.close()


@req("B-11")
def test_a_stream_does_not_go_on_in_another_log(tmp_path):
    """An emptied log begins anew under the same names of files: where blocks began says nothing any more."""
    lies, linked = tmp_path / "log", tmp_path / "next"
    begun = {}
    for name, first in (("before", 1), ("after", 101)):
        log = begun[name] = ChangeLogWriter.open(tmp_path / name, SMALL)
        if name == "after":
            log.begin_at(100, commit_us(100))
        for scn in range(first, first + (3 if name == "before" else 9)):
            synced(log, window(scn))
    lies.symlink_to(tmp_path / "before")
    with served({"shop": lies}) as url, stream(url, after=0) as frames:
        assert scns(frames.until(3)) == [1, 2, 3]
        linked.symlink_to(tmp_path / "after")
        linked.replace(lies)
        told = frames.frame()
        assert isinstance(told, dict)
        assert told["error"]["type"] == "RelayUnavailable"
        assert ask(url, "/stream", source="shop", after=3).error["type"] == "ScnNotFound"
        assert scns(pulled(url, after=100)) == list(range(101, 110))
    for log in begun.values():
        log.close()


def open_streams(url: str) -> int:
    found = [
        line for line in metrics(url).splitlines() if line.startswith("headrace_relay_streams{")
    ]
    return int(found[0].rpartition(" ")[2]) if found else 0


@req("D43")
def test_a_reader_that_goes_away_is_forgotten(writer, url):
    synced(writer, window(1))
    with stream(url, after=0) as frames:
        frames.until(1)
        assert open_streams(url) == 1
    until(lambda: open_streams(url) == 0, "the relay notices that its reader has gone")


def said_to(url: str, request: bytes) -> tuple[bytes, bytes]:
    """Return head and body of what comes for a request, until the relay hangs up."""
    parts = urlsplit(url)
    with closing(socket.create_connection((parts.hostname, parts.port), 30)) as connection:
        connection.sendall(request)
        came = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, body = came.partition(b"\r\n\r\n")
    return head.lower(), body


def test_who_speaks_http_1_0_gets_what_is_stored_without_chunks(writer, url):
    synced(writer, window(1), window(2))
    asked = b"GET /stream?source=shop&after=0&mode=pull%s HTTP/1.0\r\nhost: x\r\n\r\n"
    head, body = said_to(url, asked % b"")
    stored = ask(url, "/stream", source="shop", after=0, mode="pull").body
    assert b"transfer-encoding" not in head
    assert body == stored
    head, body = said_to(url, asked % b"&format=ndjson")
    assert body == ask(url, "/stream", source="shop", after=0, mode="pull", format="ndjson").body
    assert b"drained" in body.splitlines()[-1]
    head, body = said_to(url, asked % b"&max_bytes=1")
    assert head.startswith(b"http/1.1 413")
    assert b"BlockTooLarge" in body
    head, body = said_to(url, b"GET /sources HTTP/1.0\r\nhost: x\r\n\r\n")
    assert body == ask(url, "/sources").body


def test_the_head_of_a_stream_is_told_without_it(writer, url):
    synced(writer, window(1))
    head, body = said_to(
        url, b"HEAD /stream?source=shop HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    assert head.startswith(b"http/1.1 200")
    assert b"headrace-covered-scn: 1" in head
    assert body == b""
    refused, body = said_to(
        url, b"HEAD /stream?source=none HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    assert refused.startswith(b"http/1.1 404")
    assert body == b""
