"""A source of a new kind, made here: capture, change log, relay and consumers take it as it is."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.client import State, Subscription
from tests.client.conftest import QUICK, running
from tests.integration.journal import JournalSource
from tests.integration.relayed import Copy, relayed
from tests.requirements import req
from tests.waiting import until


@req("D25", "D14")
@pytest.mark.parametrize("seed", range(2))
def test_a_text_file_is_captured_dumped_and_consumed_like_any_database(
    tmp_path: Path, seed: int
) -> None:
    source, rng = JournalSource(tmp_path / "journal"), random.Random(seed)
    source.write(*(("+I", key, "first") for key in range(30)))
    shapes = {"public.t": pa.schema([("id", pa.int64()), ("v", pa.string())])}
    copy, stop = Copy(), threading.Event()

    def write() -> None:
        while not stop.wait(0.01):
            held, key = source.rows(), rng.randrange(40)
            value = str(rng.randrange(10**6))
            if key not in held:
                source.write(("+I", key, value), ("-D", min(held), held[min(held)]))
            else:
                source.write(("=U", key, value))

    writing = threading.Thread(target=write)
    writing.start()
    try:
        with relayed(source, tmp_path) as (_, url):
            asked = Subscription(url, "shop", copy, shapes=shapes, settings=QUICK)
            with running(asked):
                until(lambda: len(copy.windows) > 100, "a good deal of it")
                stop.set()
                writing.join(30)
                until(lambda: copy.content("public.t") == sorted(source.rows().items()), "all")
        # What was acknowledged is not read again, also of a file that is opened anew.
        assert source.acknowledged_scn() > 1_000
        source = JournalSource(tmp_path / "journal")
        with relayed(source, tmp_path) as (again, url):
            later = Subscription(url, "shop", copy, start="newest", settings=QUICK)
            with running(later):
                # Before that nobody knows what is the newest: the row might be older.
                until(lambda: later.status.state is State.STARTED, "it has begun")
                source.write(("+I", 1_000, "later"))
                until(lambda: (1_000, "later") in copy.content("public.t"), "what came later")
            assert again.error is None
    finally:
        stop.set()
        writing.join(30)
