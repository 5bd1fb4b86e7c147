"""The line between relay and client: cut, silent, damaged; blocks of any size; bytes that arrive in any pieces."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import subprocess
import sys
import termios
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from fcntl import ioctl

import pyarrow as pa
import pytest

from headrace.client import HttpSettings, Subscription
from headrace.client.frames import Note, Stream
from headrace.client.http import Connection
from headrace.client.transport import Relay, StreamRequest
from headrace.errors import (
    BlockTooLarge,
    ConfigError,
    NotAllowed,
    NotServed,
    ProtocolError,
    RelayUnavailable,
)
from headrace.model.block import Block, Body, transaction_index
from headrace.relay.server.settings import Role, Token
from headrace.testing.histories import PATCHY
from headrace.testing.line_faults import SOUND, Damage, FaultyLine
from headrace.testing.notation import change_batch
from headrace.testing.relay import served
from headrace.wire import decode_block, encode_block
from headrace.wire.block import MAGIC, BlockFrame, decode_merged
from headrace.wire.notes import encode_note
from headrace.wire.place import Place
from tests.changelog.windows import TABLE, window
from tests.client.conftest import QUICK, running, suspended
from tests.client.logs import commit_us, random_blocks, told_by
from tests.client.recording import Recorder, Told
from tests.requirements import req
from tests.waiting import until


def wide(scn: int, rows: int, width: int = 1000) -> Block:
    """Return one transaction of about ``rows`` × ``width`` bytes that do not compress."""
    text = zlib.crc32(b"%d" % scn)
    cells = [(i, f"{text:08x}" * (width // 8), "") for i in range(rows)]
    batch = change_batch(PATCHY, [(scn, i, "+I", row) for i, row in enumerate(cells)])
    index = transaction_index([(scn, commit_us(scn), scn, rows, 0, 1)])
    return Block(index, (Body(PATCHY.schema_id, PATCHY.table, batch),), (), scn)


def by_place(told: list[Told]) -> list[Told]:
    return sorted(told, key=lambda one: one[:2])


@req("B-6", "D26", "F6")
@pytest.mark.parametrize("seed", range(4))
def test_a_connection_cut_anywhere_changes_nothing_that_is_told(log, relay, seed):
    log.append(*random_blocks(seed + 20))
    rng = random.Random(seed)
    consumer = Recorder()
    with FaultyLine(relay) as line:
        line.rule = lambda n: Damage(cut_at=rng.randrange(200, 12_000)) if n < 25 else SOUND
        Subscription(
            line.url,
            "shop",
            consumer,
            upto=log.blocks[-1].covered_scn,
            settings=QUICK,
        ).run()
        assert line.connections >= 8
    assert by_place(consumer.told) == told_by(log.blocks)
    assert consumer.rollbacks == 0
    assert consumer.windows == sorted(set(consumer.windows))


def only_the_first(damage: Damage) -> Callable[[int], Damage]:
    return lambda number: damage if number == 1 else SOUND


@req("B-12")
@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_is_refused_and_asked_for_again(log, relay, seed):
    log.append(*random_blocks(seed + 40, steps=80))
    end = log.blocks[-1].covered_scn
    length = sum(len(encode_block(block)) for block in log.blocks)
    rng = random.Random(seed)
    settings = replace(QUICK, http=HttpSettings(read_timeout_s=2.0))
    refused = 0
    for _ in range(10):
        consumer = Recorder()
        flip = Damage(flip_at=rng.randrange(500, length))
        with FaultyLine(relay) as line:
            line.rule = only_the_first(flip)
            subscription = Subscription(
                line.url, "shop", consumer, start=Place(0), upto=end, settings=settings
            )
            subscription.run()
        assert by_place(consumer.told) == told_by(log.blocks)
        refused += subscription.status.connections > 1
    assert refused == 10


def bytes_before_blocks(relay: str) -> int:
    """Return how much of an answer comes before the first block of a stream."""
    asked = Connection(relay, HttpSettings())
    asked.ask("POST", "/stream", StreamRequest("shop", Place(0), upto=3).parameters())
    incoming = asked._incoming
    assert incoming is not None
    while incoming.end < 4096:
        incoming.stage()
    asked.close()
    return bytes(incoming.view).index(MAGIC)


@req("B-12", "D64")
@pytest.mark.parametrize("part", ["header", "directory", "index", "rows"])
def test_a_flipped_bit_of_a_large_block_is_refused_and_asked_for_again(log, relay, part):
    """Its checksums are computed as it comes, which changes nothing about what is told of damage."""
    log.append(*(wide(scn, 600) for scn in range(1, 4)))
    first, second = (encode_block(block) for block in log.blocks[:2])
    within = {"header": 40, "directory": 130, "index": 180, "rows": len(second) // 2}[part]
    consumer = Recorder()
    with FaultyLine(relay) as line:
        flip = Damage(flip_at=bytes_before_blocks(relay) + len(first) + within)
        line.rule = only_the_first(flip)
        subscription = Subscription(
            line.url, "shop", consumer, start=Place(0), upto=3, settings=QUICK
        )
        subscription.run()
    assert by_place(consumer.told) == told_by(log.blocks)
    assert subscription.status.connections == 2


@req("B-12")
def test_no_flipped_bit_of_a_frame_is_ever_decoded(log):
    data = encode_block(random_blocks(3, steps=30)[0])
    rng = random.Random(1)
    for _ in range(300):
        bad = bytearray(data)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        with pytest.raises(ProtocolError):
            decode_block(bad)


@req("B-12")
def test_damage_that_stays_suspends_with_its_name(log, relay):
    log.append(wide(10, 50))
    consumer = Recorder()
    with FaultyLine(relay) as line:
        line.rule = lambda _: Damage(flip_at=20_000)
        subscription = Subscription(line.url, "shop", consumer, start=Place(0), settings=QUICK)
        with running(subscription):
            suspended(subscription)
            assert "checksum" in str(subscription.status.error)
            assert consumer.told == []


@req("B-3")
def test_a_block_larger_than_the_buffer_passes_alone(log, relay):
    log.append(*(wide(10 * i, 300) for i in range(1, 12)))
    settings = replace(QUICK, buffer_bytes=50_000)
    consumer = Recorder()
    subscription = Subscription(relay, "shop", consumer, upto=110, settings=settings)
    subscription.run()
    assert by_place(consumer.told) == told_by(log.blocks)
    largest = max(len(encode_block(block)) for block in log.blocks)
    assert largest > settings.buffer_bytes
    assert subscription.status.peak_bytes == largest


@req("B-3")
def test_a_block_larger_than_is_allowed_is_refused_by_name(log, relay):
    log.append(wide(10, 300))
    settings = replace(QUICK, max_block_bytes=50_000)
    subscription = Subscription(relay, "shop", Recorder(), start=Place(0), settings=settings)
    with running(subscription):
        suspended(subscription)
        error = subscription.status.error
        assert isinstance(error, BlockTooLarge)
        assert "max_block_bytes" in str(error)


@req("B-3")
def test_a_block_that_is_too_large_at_every_relay_is_not_asked_for_for_ever(log, relay):
    log.append(wide(10, 3), wide(20, 300))
    settings = replace(QUICK, max_block_bytes=50_000)
    with served({"shop": log.folder}) as second:
        consumer = Recorder()
        subscription = Subscription([relay, second], "shop", consumer, settings=settings)
        with running(subscription):
            suspended(subscription)
            assert isinstance(subscription.status.error, BlockTooLarge)
    assert consumer.windows == [10]
    assert subscription.status.connections == 2


@req("B-3")
def test_a_pull_asks_for_more_when_the_next_block_needs_it(log, relay):
    log.append(wide(10, 300), wide(20, 3))
    settings = replace(QUICK, pull=True, pull_bytes=10_000, pull_wait_ms=10)
    consumer = Recorder()
    subscription = Subscription(relay, "shop", consumer, settings=settings)
    with running(subscription):
        until(lambda: consumer.windows == [10, 20], "both windows")
    assert by_place(consumer.told) == told_by(log.blocks)


def test_a_pull_asks_for_more_when_pieces_of_a_transaction_bring_it_no_further(log, relay):
    """What a filter leaves of them has no place from which to go on, and takes bytes all the same."""
    log.register(TABLE)
    log.append(*(window(10, first=2 * i, last=i == 40) for i in range(41)), window(20, 3))
    settings = replace(QUICK, pull=True, pull_bytes=1_000, pull_wait_ms=10)
    filter_ = {"where": {str(TABLE.table): "k > 1"}}
    consumer = Recorder()
    subscription = Subscription(
        relay, "shop", consumer, filter=filter_, upto=20, settings=settings, on_suspended="raise"
    )
    with running(subscription) as join:
        join()
    assert [told[:2] for told in consumer.told] == [(20, 2)]


def test_pull_tells_the_same_as_push(log, relay):
    log.append(*random_blocks(7))
    settings = replace(QUICK, pull=True, pull_bytes=5_000, pull_wait_ms=10)
    consumer = Recorder()
    subscription = Subscription(
        relay, "shop", consumer, upto=log.blocks[-1].covered_scn, settings=settings
    )
    subscription.run()
    assert by_place(consumer.told) == told_by(log.blocks)
    assert subscription.status.connections > 3


def test_a_line_that_falls_silent_is_left_when_no_heartbeat_comes(log, relay):
    log.append(*random_blocks(8))
    http = HttpSettings(read_timeout_s=0.5)
    settings = replace(QUICK, http=http)
    with FaultyLine(relay) as line:
        line.rule = lambda _: Damage(silent_at=6_000)

        class Begins(Recorder):
            def on_start(self):
                # The place was asked for over the line that falls silent. A sound one is given time: a busy machine
                # may say nothing for as long.
                line.rule = lambda _: SOUND
                object.__setattr__(http, "read_timeout_s", 60.0)
                return super().on_start()

        consumer = Begins()
        # Without an end the relay goes on sending heartbeats, which the line swallows.
        subscription = Subscription(line.url, "shop", consumer, settings=settings)
        with running(subscription):
            end = Place(log.blocks[-1].covered_scn)
            until(lambda: subscription.status.stored == end, "everything", timeout_s=50)
            assert subscription.status.connections == 2
    assert by_place(consumer.told) == told_by(log.blocks)


def test_a_line_that_is_cut_behind_the_length_of_a_note_is_left():
    note = encode_note("end", reason="upto")
    listening = socket.create_server(("127.0.0.1", 0))
    let_go = threading.Event()

    def serve() -> None:
        with listening, listening.accept()[0] as client:
            client.recv(65536)
            client.sendall(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n" % len(note)
            )
            assert let_go.wait(30)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    relay = Relay(f"http://127.0.0.1:{listening.getsockname()[1]}", HttpSettings())
    stream = relay.stream(StreamRequest("shop", after=Place(0)))
    assert stream.next(0.01) is None
    let_go.set()
    thread.join(30)
    with pytest.raises(RelayUnavailable):
        stream.next()
    relay.close()


def test_a_quiet_line_with_heartbeats_is_kept(log, relay):
    log.append(wide(10, 1))
    # Heartbeats come forty times as often: a busy machine may hold up some of them.
    settings = replace(QUICK, http=HttpSettings(read_timeout_s=4.0))
    consumer = Recorder()
    subscription = Subscription(relay, "shop", consumer, settings=settings)
    quiet = threading.Event()
    with running(subscription):
        until(lambda: consumer.windows, "the first window")
        quiet.wait(4.5)
        log.append(wide(20, 1))
        until(lambda: len(consumer.windows) == 2, "the second window")
        assert subscription.status.connections == 1


@pytest.mark.parametrize("seed", range(5))
def test_frames_survive_any_cut_into_chunks_and_packets(seed):
    rng = random.Random(seed)
    blocks = [encode_block(block) for block in random_blocks(seed, steps=40)]
    blocks.insert(1, encode_block(wide(1, 400)))
    body = b"".join(blocks) + encode_note("end", reason="drained")
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nHeadrace-Routes: 3\r\n\r\n"
    at = 0
    while at < len(body):
        size = rng.choice([1, 3, 15, 16, 17, 127, 4096, 200_000])
        chunk = body[at : at + size]
        extension = b";x=1" if rng.random() < 0.2 else b""
        answer += b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk)
        at += size
    answer += b"0\r\n\r\n"
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listening.accept()
        for _ in range(2):
            client.recv(65536)
            sent = 0
            while sent < len(answer):
                size = rng.choice([1, 100, 5000, 300_000])
                client.sendall(answer[sent : sent + size])
                sent += size
        client.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    relay = Relay(f"http://127.0.0.1:{listening.getsockname()[1]}", HttpSettings())
    # Twice over one connection: nothing of the first answer is left for the second.
    for _ in range(2):
        stream = relay.stream(StreamRequest("shop", Place(0)))
        frames = list(stream.frames())
        came = [frame for frame in frames if isinstance(frame, BlockFrame)]
        assert [bytes(frame.data) for frame in came] == blocks
        # The large one's checksums came with it, in whatever pieces.
        assert came[1].crcs
        for frame in came:
            assert [encode_block(block) for block in decode_merged([frame])] == [frame.data]
        assert frames[-1] == Note("end", {"kind": "end", "reason": "drained"})
        assert stream.routes == 3
    relay.close()
    thread.join(10)
    listening.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("sources", b'{"status": "maintenance"}'),
        ("sources", b'{"sources": 7}'),
        ("sources", b'{"sources": ["shop"]}'),
        ("sources", b'{"sources": [{"name": "shop", "error": 1}]}'),
        ("register", b'{"schemas": [7]}'),
    ],
)
def test_an_answer_that_no_relay_gives_is_named(path, body):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(65536)
                head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
                client.sendall(head + body)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        relay = Relay(f"http://127.0.0.1:{listening.getsockname()[1]}", HttpSettings())
        with closing(relay), pytest.raises(ProtocolError, match="answers with"):
            relay.source("shop") if path == "sources" else relay.schemas("shop", [1])
        thread.join(10)


@contextlib.contextmanager
def answered_by_hand() -> Iterator[tuple[socket.socket, Relay, Stream]]:
    """A stream that has begun, and the socket through which a test sends its chunks."""
    listening = socket.create_server(("127.0.0.1", 0))
    served: list[socket.socket] = []

    def begin() -> None:
        client, _ = listening.accept()
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        served.append(client)

    thread = threading.Thread(target=begin, daemon=True)
    thread.start()
    relay = Relay(f"http://127.0.0.1:{listening.getsockname()[1]}", HttpSettings())
    stream = relay.stream(StreamRequest("shop", Place(0)))
    thread.join(10)
    (server,) = served
    with listening, server, closing(relay):
        yield server, relay, stream


def test_a_small_block_that_is_there_is_received_at_once():
    """In one call of the kernel: where forty threads receive, each call is a turn at the interpreter's lock."""
    blocks = [encode_block(wide(scn, 70)) for scn in range(1, 30)]
    with answered_by_hand() as (server, relay, stream):
        for data in blocks:
            chunk = b"%x\r\n%b\r\n" % (len(data), data)
            server.sendall(chunk)
            until(lambda: unread_bytes(relay) == len(chunk), "all of it is there")  # noqa: B023
            with counted_receives() as calls:
                frame = stream.next()
            assert isinstance(frame, BlockFrame)
            assert bytes(frame.data) == data
            assert not stream.has_more
            assert calls == ["recv_into"]
        # A quiet moment is no end, as often as one asks, and takes nothing from what has come in part.
        server.sendall(chunk[:5000])
        assert [stream.next(0.001) for _ in range(3)] == [None] * 3
        server.sendall(chunk[5000:])
        frame = stream.next(5.0)
        assert isinstance(frame, BlockFrame)
        assert bytes(frame.data) == blocks[-1]


def test_a_large_block_goes_on_after_quiet_moments():
    data = encode_block(wide(1, 1000))
    with answered_by_hand() as (server, _, stream):
        chunk = b"%x\r\n%b\r\n" % (len(data), data)
        for at in range(0, len(chunk), 150_001):
            server.sendall(chunk[at : at + 150_001])
            if at + 150_001 < len(chunk):
                assert [stream.next(0.001) for _ in range(2)] == [None] * 2
        frame = stream.next(5.0)
    assert isinstance(frame, BlockFrame)
    assert frame.crcs
    assert [encode_block(block) for block in decode_merged([frame])] == [data]


def unread_bytes(relay: Relay) -> int:
    """Return how many bytes wait in the kernel for a relay's client."""
    taken = relay._connection._socket
    assert taken is not None
    return int.from_bytes(ioctl(taken.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


@contextlib.contextmanager
def counted_receives() -> Iterator[list[str]]:
    """Give the calls of this thread to a socket."""
    calls: list[str] = []

    def seen(_frame: object, event: str, called: object) -> None:
        if event == "c_call" and isinstance(getattr(called, "__self__", None), socket.socket):
            calls.append(called.__name__)  # type: ignore[attr-defined]

    sys.setprofile(seen)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_rows_stay_what_they_are_while_later_blocks_come(log, relay):
    log.append(*(wide(10 * i, 200) for i in range(1, 30)))
    kept = []

    class Keeper(Recorder):
        def on_data_batch(self, batch):
            kept.append(batch.rows)

    Subscription(relay, "shop", Keeper(), upto=290, settings=QUICK).run()
    pa.allocate_buffer(50_000_000)
    assert [rows.column("c1") for rows in kept] == [
        block.bodies[0].batch.column("c1") for block in log.blocks
    ]


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://h:x", "h:1"])
def test_an_address_that_does_not_read_is_refused(url):
    with pytest.raises(ConfigError, match="address"):
        Connection(url, HttpSettings())


def test_an_unknown_source_is_refused_by_name(relay):
    with pytest.raises(NotServed, match="nothing"):
        Subscription(relay, "nothing", Recorder(), settings=QUICK).run()


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + bytes(20),
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" + b"x" * 300_000,
    ],
)
def test_an_answer_that_is_no_relays_is_refused(answer):
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listening.accept()
        with client, contextlib.suppress(OSError):
            client.recv(65536)
            client.sendall(answer)
            client.shutdown(socket.SHUT_WR)
            client.recv(65536)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    relay = Relay(f"http://127.0.0.1:{listening.getsockname()[1]}", HttpSettings())
    with pytest.raises((ProtocolError, RelayUnavailable)):
        list(relay.stream(StreamRequest("shop", Place(0))).frames())
    relay.close()
    thread.join(10)
    listening.close()


def test_a_token_never_shows():
    settings = HttpSettings(token="geheim")
    assert "geheim" not in repr(settings)
    with pytest.raises(RelayUnavailable) as refused:
        Relay("http://127.0.0.1:9", settings).sources()
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("token", ["two\nlines", "a\r\nx: y", "\u20ac", "\0"])
def test_a_token_that_no_header_holds_is_refused_without_a_word_of_it(token):
    with pytest.raises(ConfigError, match="The token for http://h:1 has") as refused:
        Relay("http://h:1", HttpSettings(token=token))
    assert token not in str(refused.value)


def test_what_nobody_expects_of_an_answer_ends_a_subscription():
    """In the thread that receives it would be unseen, and waited for what that would bring for ever."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                with listening.accept()[0] as client:
                    client.recv(65536)
                    odd = b"transfer-encoding: chunked\r\nheadrace-oldest-scn: many\r\n\r\n"
                    client.sendall(b"HTTP/1.1 200 OK\r\n" + odd)

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    subscription = Subscription(url, "shop", Recorder(), start=Place(0), settings=QUICK)
    with listening, running(subscription) as join, pytest.raises(ValueError, match="many"):
        join()


def test_a_token_that_nobody_knows_is_refused_and_a_good_one_is_not(log):
    log.append(wide(10, 1))
    tokens = (Token("me", "right-and-long", Role.READER),)
    with served({"shop": log.folder}, tokens=tokens) as url:
        for token, good in (("right-and-long", True), ("wrong", False), (None, False)):
            consumer = Recorder()
            settings = replace(QUICK, http=HttpSettings(token=token))
            subscription = Subscription(url, "shop", consumer, upto=10, settings=settings)
            if good:
                subscription.run()
                assert consumer.windows == [10]
            else:
                with pytest.raises(NotAllowed):
                    subscription.run()


def test_tls_is_spoken_with_those_whose_certificate_is_known(log, tmp_path):
    log.append(wide(10, 300))
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    names = ["-subj", "/CN=relay", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *made],
        check=True,
        capture_output=True,
    )
    tls = ssl.create_default_context(cafile=str(certificate))
    with served({"shop": log.folder}, certificate=certificate, key=key) as url:
        assert url.startswith("https://")
        consumer = Recorder()
        settings = replace(QUICK, http=HttpSettings(tls=tls))
        Subscription(url, "shop", consumer, upto=10, settings=settings).run()
        assert by_place(consumer.told) == told_by(log.blocks)
        with closing(Relay(url, HttpSettings(tls=tls))) as quiet:
            stream = quiet.stream(StreamRequest("shop", Place(10)))
            assert [stream.next(0.001) for _ in range(3)] == [None] * 3
            log.append(wide(20, 70))
            frame = stream.next()
            assert isinstance(frame, BlockFrame)
            assert frame.header.last_scn == 20
        with pytest.raises(RelayUnavailable, match="certificate"):
            Relay(url, HttpSettings()).sources()
