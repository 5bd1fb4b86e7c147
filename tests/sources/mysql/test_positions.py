"""Places, ids and numbers of a log: they compare, belong together for ever, and survive storing; without a server."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import ConfigError, ProtocolError
from headrace.sources.mysql.assembler import Assembler
from headrace.sources.mysql.events import Event, EventType
from headrace.sources.mysql.gtids import DomainGtids, GtidSet, SourceGtid
from headrace.sources.mysql.numbers import GtidNumbers
from headrace.sources.mysql.position import Place, Resume
from headrace.sources.mysql.prepared import HeldTransactions
from headrace.sources.mysql.stream import AcknowledgedPosition
from headrace.sources.mysql.tables import LoggedTables
from tests.requirements import req


@req("C34", "D29")
def test_a_place_is_counted_over_events_that_do_not_say_where_they_end(tmp_path: Path) -> None:
    """As MariaDB writes a transaction from 11.4 on; this one is larger than what an event could say."""
    resume = Resume(Place.of("binlog.000007", 500), 0, DomainGtids(), {})
    held = HeldTransactions(tmp_path, lambda *_: False)
    assembler = Assembler(LoggedTables.__new__(LoggedTables), resume, "p", 10, 10, held)
    large = bytes(1 << 20)

    def add(type_: int, end_pos: int, data: bytes) -> None:
        assembler.add(Event(type_, 0, end_pos, 0, data, len(data)))

    begin = bytes(19) + struct.pack("<QIB", 5, 0, 0) + bytes(6)
    add(EventType.ROTATE, 0, bytes(19) + struct.pack("<Q", 500) + b"binlog.000007")
    add(EventType.GTID, 538, begin)
    for _ in range(2 * 4096 + 7):
        add(EventType.ANNOTATE, 0, large)
    add(EventType.XID, 538 + (7 << 20) + 31, bytes(31))
    assert assembler.resume.place.position == 538 + (2 << 32) + (7 << 20) + 31


def test_places_compare_by_file_and_then_by_position() -> None:
    places = [
        Place.of("binlog.000009", 4_000_000_000),
        Place.of("binlog.000010", 4),
        Place.of("binlog.000010", 5),
        Place.of("binlog.000010", (1 << 36) - 1),
        Place.of("binlog.1000000", 4),
        Place.of("binlog.1000001", 4),
    ]
    assert places == sorted(places)
    scns = [place.scn for place in places]
    assert scns == sorted(set(scns))
    assert scns[-1] < 1 << 63
    for bad in (("binlog", 4), ("binlog.x", 4), ("binlog.134217728", 4), ("binlog.1", 1 << 36)):
        with pytest.raises(ProtocolError):
            Place.of(*bad)


_SERVER = "de6d90de-e8b6-11f1-b254-02fc00000001"


def test_a_number_belongs_to_one_id_for_ever(tmp_path: Path) -> None:
    names = [_SERVER, f"{_SERVER}:tag", "00000000-0000-0000-0000-000000000001"]
    kept = GtidNumbers(tmp_path / "names.json")
    kept.begin()
    given = {
        (name, number): kept.number(SourceGtid(name, number))
        for name in names
        for number in (1, 5, 6, 1 << 40)
    }
    again = GtidNumbers(tmp_path / "names.json")
    again.check()
    assert given == {pair: again.number(SourceGtid(*pair)) for pair in reversed(given)}
    assert len(set(given.values())) == len(given)
    seen = GtidSet.parse(f"{_SERVER}:2-5,{_SERVER}:tag:6:{1 << 40},{names[2]}:7")
    numbers = np.array(list(given.values()), np.int64)
    assert [pair for pair, saw in zip(given, again.among(numbers, seen), strict=True) if saw] == [
        (_SERVER, 5), (f"{_SERVER}:tag", 6), (f"{_SERVER}:tag", 1 << 40),
    ]  # fmt: skip
    with pytest.raises(ProtocolError, match="beyond what is counted"):
        again.number(SourceGtid(_SERVER, 1 << 48))


@req("C33")
@pytest.mark.parametrize(
    ("gtids", "text"),
    [
        (DomainGtids.parse("2-1-9,0-4-17"), "0-4-17,2-1-9"),
        (
            GtidSet.parse(f"{_SERVER}:1-3:5:tag:2:1:3"),
            f"{_SERVER}:1-3:5-5,{_SERVER}:tag:1-3",
        ),
        (DomainGtids(), ""),
        (GtidSet(), ""),
    ],
)
def test_a_position_survives_storing(
    tmp_path: Path, gtids: DomainGtids | GtidSet, text: str
) -> None:
    place = Place.of("binlog.000003", 77, 3)
    resume = Resume(place, 5, gtids, {"d.t": 5, "d.u": 0}, "mysql x", 3, {"X'61',X'',1": 7}, "a")
    kept = AcknowledgedPosition(tmp_path / "position.json")
    assert kept.read() is None
    kept.write(resume.render())
    assert kept.read() == resume
    assert resume.gtids.text == text
    (tmp_path / "position.json").write_text("{}")
    with pytest.raises(ConfigError):
        kept.read()
