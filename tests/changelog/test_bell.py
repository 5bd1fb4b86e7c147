"""Whoever waits is woken by the process that writes, and by nothing that he has heard before."""

from __future__ import annotations

import mmap
import sys
import threading
import time
from dataclasses import replace

import pytest

from headrace.changelog import bell as bell_module
from headrace.changelog.bell import Bell
from headrace.changelog.segment import SegmentName
from headrace.changelog.tail import Tail, TailFile, TailRecord, TailView
from tests.changelog.processes import run

LONG_S = 60.0
RECORD = TailRecord(3, 8, SegmentName(2, 17), 4096, 15, Tail(100, 200, 210, 999))

kernel_wakes = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a waiter looks")

_RING = """
import mmap, os, sys
from headrace.changelog.bell import Bell
file = os.open(sys.argv[1], os.O_RDWR)
Bell(mmap.mmap(file, 4096), 4092).ring()
"""


@pytest.fixture
def pages(tmp_path):
    """Return one page twice: as its writer has mapped it, and as a reader has."""
    path = tmp_path / "page"
    path.write_bytes(bytes(4096))
    with path.open("r+b") as file:
        yield (
            mmap.mmap(file.fileno(), 4096),
            mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ),
        )


def took_s(bell: Bell, rung: int, timeout_s: float) -> float:
    begun = time.monotonic()
    bell.wait(rung, timeout_s)
    return time.monotonic() - begun


@kernel_wakes
def test_what_rang_since_the_last_look_is_not_waited_for(pages):
    writing, reading = (Bell(page, 4092) for page in pages)
    rung = reading.rung
    writing.ring()
    assert reading.rung == rung + 1
    assert took_s(reading, rung, LONG_S) < LONG_S / 2
    assert took_s(reading, reading.rung, 0.05) >= 0.05


@kernel_wakes
def test_a_waiter_is_woken(pages):
    writing, reading = (Bell(page, 4092) for page in pages)
    waited: list[float] = []
    waiters = [
        threading.Thread(target=lambda: waited.append(took_s(reading, 0, LONG_S))) for _ in range(3)
    ]
    for waiter in waiters:
        waiter.start()
    writing.ring()
    for waiter in waiters:
        waiter.join(LONG_S)
    assert len(waited) == 3
    assert max(waited) < LONG_S / 2


@kernel_wakes
def test_another_process_wakes(pages, tmp_path):
    reading = Bell(pages[1], 4092)
    ringing = threading.Thread(target=run, args=(_RING, str(tmp_path / "page")))
    ringing.start()
    assert took_s(reading, 0, LONG_S) < LONG_S / 2
    ringing.join(LONG_S)
    assert reading.rung == 1


def test_the_count_begins_anew(pages):
    pages[0][4092:4096] = b"\xff" * 4
    bell = Bell(pages[0], 4092)
    bell.ring()
    assert bell.rung == 0


def test_where_nobody_is_woken_a_waiter_looks_often(pages, monkeypatch):
    monkeypatch.setattr(bell_module, "_NUMBER", 0)
    bell = Bell(pages[0], 4092)
    bell.ring()
    assert bell.rung == 1
    assert took_s(bell, 1, LONG_S) < LONG_S / 2


@kernel_wakes
def test_each_publication_wakes_a_reader_of_the_tail(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.changelog.tail._HEARD_S", LONG_S)
    page, view = TailFile(tmp_path, RECORD), TailView(tmp_path)
    for length in range(5000, 5003):
        assert view.read() is not None
        publishing = threading.Thread(target=page.publish, args=(replace(RECORD, length=length),))
        begun = time.monotonic()
        publishing.start()
        view.wait(LONG_S)
        publishing.join()
        assert time.monotonic() - begun < LONG_S / 2
        found = view.read()
        assert found is not None
        assert found.length == length
    page.close()


def test_a_reader_does_not_wait_long_for_a_page_that_was_succeeded(tmp_path):
    first, view = TailFile(tmp_path, RECORD), TailView(tmp_path)
    assert view.read() is not None
    TailFile(tmp_path, replace(RECORD, generation=4)).close()
    begun = time.monotonic()
    view.wait(LONG_S)
    assert time.monotonic() - begun < LONG_S / 2
    found = view.read()
    assert found is not None
    assert found.generation == 4
    first.close()
