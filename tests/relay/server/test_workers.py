"""Several processes on one port: killed ones come back, the others go on, and all end together."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from headrace.errors import RelayUnavailable
from headrace.relay.server.settings import RelaySettings
from headrace.relay.server.workers import run_relay
from headrace.testing.relay import served, sources_of
from tests.changelog.windows import scns, synced, window
from tests.relay.server.asking import ask, pulled, stream
from tests.requirements import req
from tests.waiting import until


class Running:
    """A relay of several processes, run by a thread."""

    def __init__(self, settings: RelaySettings) -> None:
        self.stop = threading.Event()
        self.url = ""
        self.pids: dict[int, int] = {}
        self.thread = threading.Thread(target=run_relay, args=(settings, self.stop, self._told))

    def _told(self, url: str, pids: dict[int, int]) -> None:
        self.url, self.pids = url, dict(pids)

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.url) and ask(self.url, "/healthz").status == 200
        return False


@contextlib.contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[Running]:
    found = Running(RelaySettings(sources_of({"shop": folder}), port=0, workers=workers))
    found.thread.start()
    try:
        until(found.answers, "the relay answers")
        yield found
    finally:
        found.stop.set()
        found.thread.join(40)
        assert not found.thread.is_alive()


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def counts_of(url: str, name: str) -> dict[str, int]:
    """Return a count of ``/metrics`` by the worker that counted it."""
    text = ask(url, "/metrics").body.decode()
    lines = re.findall(rf'^headrace_relay_{name}{{source="shop",worker="(\d)"}} (\d+)$', text, re.M)
    assert len(dict(lines)) == len(lines)
    return {worker: int(value) for worker, value in lines}


def all_told(url: str, streams: int) -> dict[str, int]:
    """Return how many streams each worker has begun, once that makes so many."""
    found = counts_of(url, "streams_total")
    return found if sum(found.values()) == streams else {}


def test_a_scrape_tells_of_every_worker_whichever_answers(writer, folder):
    synced(writer, window(1))
    with running(folder, 3) as relay:
        asked, per_worker = 0, dict[str, int]()
        while len(per_worker) < 3:
            # The kernel spreads connections as it likes.
            for _ in range(20):
                assert scns(pulled(relay.url, after=0)) == [1]
            asked += 20
            per_worker = until(partial(all_told, relay.url, asked), "the counts of all workers")
        # What a worker knows of the others may be a second old.
        until(
            lambda: all(counts_of(relay.url, "streams_total") == per_worker for _ in range(20)),
            "the same from whoever answers",
        )
        text = ask(relay.url, "/metrics").body.decode()
        assert text.count("headrace_relay_covered_scn{") == 1
        assert 'headrace_relay_covered_scn{source="shop"} 1' in text
        killed = relay.pids[0]
        os.kill(killed, signal.SIGKILL)
        until(lambda: relay.pids.get(0, killed) != killed, "another process")
        rest = {worker: count for worker, count in per_worker.items() if worker != "0"}
        until(
            lambda: (
                {w: n for w, n in counts_of(relay.url, "streams_total").items() if n} == rest
                if relay.answers()
                else False
            ),
            "the new worker begins at 0",
        )


@req("D17", "D46")
def test_a_killed_worker_comes_back_and_its_readers_go_on_elsewhere(writer, folder):
    synced(writer, *(window(scn) for scn in range(1, 10)))
    with running(folder) as relay:
        assert scns(pulled(relay.url, after=0)) == list(range(1, 10))
        place, last = 0, 9
        for _ in range(3):
            before = dict(relay.pids)
            assert len(before) == 2
            with stream(relay.url, after=place) as frames:
                got = scns(frames.until(last))
                assert got == list(range(place + 1, last + 1))
                for pid in before.values():
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(OSError, AssertionError, http.client.HTTPException):
                    while frames.frame() is not None:
                        pass
            place = last
            last += 1
            synced(writer, window(last))
            until(
                lambda before=before: (
                    len(relay.pids) == 2  # type: ignore[misc]
                    and not set(relay.pids.values()) & set(before.values())
                ),
                "new workers",
            )
            until(relay.answers, "the relay answers again")
        assert scns(pulled(relay.url, after=0)) == list(range(1, last + 1))
        workers = list(relay.pids.values())
    assert not any(exists(pid) for pid in workers)


def test_a_relay_of_several_workers_ends_its_streams_with_a_note(writer, folder):
    synced(writer, window(1))
    with running(folder) as relay, stream(relay.url, after=0) as frames:
        frames.until(1)
        relay.stop.set()
        last = [frame for frame in frames if isinstance(frame, dict)][-1]
    assert last == {"kind": "end", "reason": "shutdown"}


def test_the_command_shutdown_ends_every_worker(writer, folder):
    synced(writer, window(1))
    with running(folder) as relay:
        workers = list(relay.pids.values())
        assert ask(relay.url, "/admin/shutdown", post={}).status == 202
        relay.thread.join(40)
        assert not relay.thread.is_alive()
        assert not any(exists(pid) for pid in workers)


def test_workers_do_not_outlive_whoever_started_them(writer, folder):
    synced(writer, window(1))
    script = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from headrace.relay.server.settings import RelaySettings\n"
        "from headrace.relay.server.workers import run_relay\n"
        "from headrace.testing.relay import sources_of\n"
        "settings = RelaySettings(sources_of({'shop': Path(sys.argv[1])}), port=0, workers=2)\n"
        "run_relay(settings, threading.Event(), lambda url, pids: print(*pids.values(), flush=True))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        pids: list[int] = []
        while len(pids) < 2:
            pids = [int(text) for text in parent.stdout.readline().split()]
        parent.kill()
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()
    until(lambda: not any(exists(pid) for pid in pids), "the workers end")


def test_a_port_that_is_taken_is_named(writer, folder):
    with served({"shop": folder}) as url:
        port = int(url.rpartition(":")[2])
        taken = RelaySettings(sources_of({"shop": folder}), port=port)
        with pytest.raises(RelayUnavailable, match=f"127.0.0.1:{port}"):
            run_relay(taken, threading.Event())
