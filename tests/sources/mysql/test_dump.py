"""The log itself: packets, events, checksums, heartbeats, and what a server says when it refuses."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import (
    HeadraceError,
    ProtocolError,
    SlotLost,
    SourceError,
    SourceUnavailable,
)
from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import read_collations
from headrace.sources.mysql.charsets import Collations
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.dump import Dump, dump_error
from headrace.sources.mysql.events import (
    ROWS,
    Begin,
    Event,
    EventType,
    parse_event,
    parse_format,
    parse_gtid,
    parse_gtid_list,
    parse_prepared,
    parse_query,
    parse_rotate,
    parse_rows_header,
)
from headrace.sources.mysql.gtids import DomainGtids, GtidSet
from headrace.sources.mysql.packets import PacketReader
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.source_events import (
    parse_source_gtid,
    parse_tagged_gtid,
    unpacked,
)
from headrace.sources.mysql.table_map import parse_table_map
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.binlog_servers import is_mysql, make_user, purge_log
from tests.fixtures_binlog import MARIADB, MYSQL, Sql
from tests.requirements import req
from tests.sources.mysql.support import SERVER_ID, changes, decoded, events, here, settings


def opened(
    server: MysqlProtocolServer, start: str | tuple[str, int], server_id: int = SERVER_ID
) -> Dump:
    known = MysqlSettings(server.url(), heartbeat_s=0.2)
    return Dump(connect(known), known, server_id, start)


def taken(log: Dump, type_: EventType) -> Event:
    """Return the next event of a type."""
    while True:
        event = log.next(30)
        assert event is not None
        if event.type == type_:
            return event


_BEGINS: dict[int, Callable[[Event], Begin]] = {
    EventType.GTID: parse_gtid,
    EventType.SOURCE_GTID: parse_source_gtid,
    EventType.TAGGED_GTID: parse_tagged_gtid,
}


def ids(server: MysqlProtocolServer) -> str:
    """Return the ids of all that is in the log now."""
    name = "@@GLOBAL.gtid_executed" if is_mysql(server) else "@@gtid_binlog_pos"
    found: str = server.query(f"SELECT {name}")[0][0]
    return found


def to_its_end(log: Dump) -> None:
    while not log.ended:
        log.next(30)


@req("C33")
def test_the_log_goes_on_behind_an_id(server: MysqlProtocolServer, database: str, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    before = ids(server)
    sql("INSERT INTO t VALUES (1)")
    found = list(events(server, before))
    begun = [_BEGINS[event.type](event) for event in found if event.type in _BEGINS]
    known = GtidSet if is_mysql(server) else DomainGtids
    assert len(begun) == 1
    assert (
        known.parse(before).behind(begun[0].gtid) == known.parse(ids(server)) != known.parse(before)
    )
    assert not begun[0].standalone
    assert abs(begun[0].commit_us / 1e6 - time.time()) < 600
    assert {event.type for event in found} >= {EventType.TABLE_MAP, EventType.XID}
    assert sum(event.type in ROWS for event in found) == 1


def test_what_comes_later_comes_and_silence_is_a_heartbeat(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    log = opened(server, here(server))
    try:
        taken(log, EventType.HEARTBEAT)
        sql("INSERT INTO t VALUES (1)")
        taken(log, EventType.WRITE_ROWS if is_mysql(server) else EventType.WRITE_ROWS_V1)
        taken(log, EventType.XID)
    finally:
        log.close()


@req("C34")
def test_a_rotation_says_where_the_log_goes_on(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql("FLUSH BINARY LOGS", "CREATE TABLE t (id int PRIMARY KEY)")
    found = [parse_rotate(e) for e in events(server, start) if e.type == EventType.ROTATE]
    files = [one.file for one in found]
    assert files[0] == start[0]
    assert files[-1] == here(server)[0]
    assert files == sorted(files)
    assert found[-1].position == 4


def test_a_server_without_checksums_is_read_as_well(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    sql("SET GLOBAL binlog_checksum = NONE")
    try:
        sql("INSERT INTO t VALUES (2, 'b')")
        formats = [
            parse_format(event).checksum
            for event in events(server, start)
            if event.type == EventType.FORMAT_DESCRIPTION
        ]
        assert formats[0] is True
        assert formats[-1] is False
        rows = changes(decoded(server, TableId(database, "t"), start).rows)
        assert rows == [("+I", 1, "a"), ("+I", 2, "b")]
    finally:
        sql("SET GLOBAL binlog_checksum = CRC32")


def test_a_purged_log_is_lost_and_says_so(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    gtid = ids(server)
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    purge_log(server)
    for begin in (start, gtid):
        with pytest.raises(SlotLost, match=r"no longer has the log") as caught:
            list(events(server, begin))
        assert "headrace resync" in caught.value.next_step


@pytest.mark.parametrize(
    ("server", "start"),
    [
        pytest.param(*MARIADB.values, "0-1-999999999", marks=MARIADB.marks),
        pytest.param(*MARIADB.values, "7-1-5", marks=MARIADB.marks),
        pytest.param(*MYSQL.values, "{}:1-999999999", marks=MYSQL.marks),
    ],
    indirect=["server"],
)
def test_a_position_of_another_log_is_lost_too(server: MysqlProtocolServer, start: str) -> None:
    # A log that goes back to the server's first day may be read behind ids of which it never heard.
    server.execute("CREATE DATABASE IF NOT EXISTS some")
    purge_log(server)
    if is_mysql(server):
        start = start.format(server.query("SELECT @@server_uuid")[0][0])
    with pytest.raises(SlotLost):
        list(events(server, start))


def test_a_position_inside_an_event_is_refused(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    file, position = here(server)
    with pytest.raises((SlotLost, SourceError)):
        list(events(server, (file, position - 7)))


def test_who_takes_our_server_id_ends_our_log_by_name(server: MysqlProtocolServer) -> None:
    first = opened(server, here(server))
    taken(first, EventType.HEARTBEAT)
    second = opened(server, here(server))
    try:
        taken(second, EventType.HEARTBEAT)
        with pytest.raises((SourceUnavailable, SourceError), match=r"server id|ended|gone"):
            to_its_end(first)
    finally:
        first.close()
        second.close()


def test_a_role_without_the_right_is_told_so(server: MysqlProtocolServer) -> None:
    make_user(server, "plain")
    known = MysqlSettings(server.url(user="plain"))
    log = Dump(connect(known), known, SERVER_ID, "", follow=False)
    with pytest.raises(SourceError, match=r"REPLICATION SLAVE"):
        log.next(30)
    log.close()


def test_a_wrong_password_is_refused_without_showing_it(server: MysqlProtocolServer) -> None:
    url = server.url().replace(MysqlProtocolServer.PASSWORD, "s3cret")
    with pytest.raises(SourceError) as caught:
        connect(MysqlSettings(url))
    assert "s3cret" not in str(caught.value) + repr(caught.value) + repr(MysqlSettings(url))


def test_a_server_that_is_away_is_tried_again() -> None:
    with pytest.raises(SourceUnavailable):
        connect(MysqlSettings("mysql://a:b@127.0.0.1:1/", connect_timeout_s=2))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Could not find first log file name in binary log index file", SlotLost),
        ("Error: connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog", SlotLost),
        ("binlog truncated in the middle of event; consider out of disk space on master", SlotLost),
        ("A slave with the same server_uuid/server_id as this slave has connected", SourceUnavailable),
        ("something that nobody has seen yet", SourceError),
    ],
)  # fmt: skip
def test_one_number_of_the_server_has_many_meanings(text: str, kind: type[HeadraceError]) -> None:
    assert type(dump_error(1236, text)) is kind


# -- packets --------------------------------------------------------------------------------------


def packet(payload: bytes) -> bytes:
    """Return a payload as it travels."""
    most = (1 << 24) - 1
    parts = [payload[i : i + most] for i in range(0, len(payload) + 1, most)]
    return b"".join(
        struct.pack("<I", len(part))[:3] + bytes([n & 255]) + part for n, part in enumerate(parts)
    )


@pytest.mark.parametrize("seed", range(5))
def test_packets_are_whole_however_they_arrive(seed: int) -> None:
    rng = random.Random(seed)
    payloads = [
        rng.randbytes(rng.choice((0, 1, 5, 300, 70_000, 400_000)))
        for _ in range(rng.randint(1, 30))
    ]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = PacketReader(ours)
        stream = b"".join(packet(payload) for payload in payloads)
        found: list[bytes] = []
        while len(found) < len(payloads):
            theirs.sendall(stream[: (size := rng.choice((1, 3, 7, 90_000)))])
            stream = stream[size:]
            while rng.random() < 0.7 and reader.read_ahead():
                pass
            while (payload := reader.next(0.0)) is not None:
                found.append(payload)
        assert found == payloads
        assert not reader.ahead
        assert reader.next(0.01) is None
        theirs.close()
        with pytest.raises(SourceUnavailable):
            reader.next(1)


def test_more_is_read_without_waiting_where_there_is_room() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = PacketReader(ours, 100)
        assert not reader.read_ahead()
        theirs.sendall(packet(b"a" * 76)[:50])
        assert not reader.ready(0.0)
        assert not reader.read_ahead()
        theirs.sendall(packet(b"a" * 76)[50:] + packet(b"b" * 56))
        assert [reader.read_ahead(), reader.read_ahead()] == [True, False], "it is full"
        assert reader.next(0.0) == b"a" * 76
        # What is held moves to the front.
        assert [reader.read_ahead(), reader.read_ahead()] == [True, False]
        assert reader.next(0.0) == b"b" * 56


class _Moved(bytearray):
    """Counts what is written into it but by the socket."""

    written = 0

    def __setitem__(self, place: Any, value: Any) -> None:
        self.written += len(value)
        super().__setitem__(place, value)


@pytest.mark.parametrize("room", [1_000, 1 << 16])
def test_whoever_reads_ahead_at_each_small_packet_of_a_backlog_moves_no_byte_twice(
    room: int,
) -> None:
    """Else a backlog that fills the room is moved at each event of it, and grows faster than it is read."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        reader = PacketReader(ours, room)
        reader._data = moved = _Moved(room)
        backlog = packet(b"a small event of a transaction") * (1 << 14)
        sent = memoryview(backlog)
        for _ in range(1 << 14):
            # What there is room for is always there.
            with contextlib.suppress(BlockingIOError):
                while sent:
                    sent = sent[theirs.send(sent) :]
            reader.read_ahead()
            assert reader.next(1.0) == b"a small event of a transaction"
        assert not reader.ahead
        assert moved.written <= len(backlog)


# -- malformed events -----------------------------------------------------------------------------


def look_into(event: Event, collations: Collations) -> None:
    """Read all that can be read of an event."""
    if event.type == EventType.FORMAT_DESCRIPTION:
        parse_format(event)
    elif event.type == EventType.ROTATE:
        parse_rotate(event)
    elif event.type in (EventType.SOURCE_GTID, EventType.TAGGED_GTID):
        _BEGINS[event.type](event)
    elif event.type == EventType.PAYLOAD:
        list(unpacked(event))
    elif event.type == EventType.XA_PREPARE:
        parse_prepared(event)
    elif event.type == EventType.GTID:
        parse_gtid(event)
    elif event.type == EventType.GTID_LIST:
        parse_gtid_list(event)
    elif event.type in (EventType.QUERY, EventType.QUERY_COMPRESSED):
        parse_query(event)
    elif event.type == EventType.TABLE_MAP:
        parse_table_map(event, collations)
    elif event.type in ROWS:
        parse_rows_header(event)


def test_one_wrong_bit_is_seen(server: MysqlProtocolServer, database: str, sql: Sql) -> None:
    start = here(server)
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    rng = random.Random(3)
    checked = 0
    for event in events(server, start):
        # Of a made-up rotation it depends on what was asked for whether it has a checksum.
        if event.type == EventType.ROTATE:
            continue
        for _ in range(20):
            data = bytearray(event.data)
            place = rng.randrange(len(data))
            data[place] ^= 1 << rng.randrange(8)
            if place == 4 or place == len(data) - 5:
                continue  # the type decides how the rest is read
            with pytest.raises(ProtocolError):
                parse_event(bytes(data), checksum=True)
            checked += 1
    assert checked > 80


@pytest.mark.parametrize(
    "least",
    [pytest.param(2_000, id="some"), pytest.param(10**6, id="a million", marks=pytest.mark.long)],
)
@req("P17", "H14")
def test_malformed_events_are_protocol_errors_and_nothing_else(
    least: int, server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, a varchar(10), e enum('a', 'b'), s set('x'), d decimal(9,2))",
        "INSERT INTO t VALUES (1, 'a', 'b', 'x', 1.5)",
        "UPDATE t SET a = 'b'",
        "XA START 'x'", "DELETE FROM t", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'",
        "FLUSH BINARY LOGS",
    )  # fmt: skip
    with connect(settings(server)) as session:
        collations = read_collations(session)
    rng = random.Random(4)
    seen = tried = 0
    whole = list(events(server, start))
    for event in whole:
        for _ in range(least // len(whole) + 1):
            data = bytearray(event.data[: event.end])
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(19, len(data))] = rng.getrandbits(8)
            data = data[: rng.randint(19, len(data))]
            damaged = Event(event.type, 0, 0, 0, bytes(data), len(data))
            tried += 1
            try:
                look_into(damaged, collations)
            except HeadraceError:
                seen += 1
    assert tried >= least
    assert seen > tried / 20
