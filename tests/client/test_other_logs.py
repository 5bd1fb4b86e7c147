"""Checkpoints inside a window, and the other change logs of their source."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.client import Consumer, Event, FileCheckpoints, Result, Subscription
from headrace.client.errors import CheckpointUnusable
from headrace.client.windows import Windows
from headrace.model.block import Block, SystemEvent, SystemKind
from headrace.testing.histories import TABLES
from headrace.testing.relay import served
from headrace.wire.place import Inside, Place
from tests.changelog.windows import TABLE
from tests.client.conftest import QUICK
from tests.client.logs import LogFolder, random_blocks, told_by
from tests.client.recording import Told, told_of
from tests.client.test_relays import announced, pieces, whole
from tests.requirements import req

_INSIDE = replace(QUICK, checkpoint_rows=1, retries=0)


class Keeping(Consumer):
    """Keeps what it is told with each checkpoint, and ends at one: what was told behind it is lost."""

    def __init__(self, kept: list[Told], checkpoints: int) -> None:
        self.kept, self._told = kept, list[Told]()
        self._left = checkpoints
        self.subscription: Subscription | None = None

    def on_data_event(self, event: Event) -> None:
        self._told.append(told_of(event))

    def on_system_event(self, event: SystemEvent) -> None:
        self._told.append(told_of(event))

    def on_checkpoint(self, place: Place) -> Result | None:
        if not self._left:
            return Result.SKIP_CHECKPOINT
        self._left -= 1
        self.kept += self._told
        self._told.clear()
        if not self._left and self.subscription:
            self.subscription.stop()
        return None


def consume(
    url: str | Sequence[str], path: Path, kept: list[Told], upto: int, checkpoints: int = 10**6
) -> None:
    """Be one process of a consumer, which ends after so many checkpoints."""
    consumer = Keeping(kept, checkpoints)
    subscription = consumer.subscription = Subscription(
        url,
        "shop",
        consumer,
        path,
        upto=upto,
        settings=_INSIDE,
        on_suspended="raise",
    )
    subscription.run()


def changes(told: list[Told]) -> Counter[tuple[object, ...]]:
    """Return the rows and truncates, without their ordinals."""
    return Counter((scn, *rest) for scn, _, *rest in told if rest[0] != SystemKind.SCHEMA.value)


def log_of(folder: Path, blocks: list[Block]) -> LogFolder:
    log = LogFolder(folder)
    log.register(TABLE, *TABLES)
    log.append(*blocks)
    log.close()
    return log


@req("B-6", "D35", "D49")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (False, False)])
def test_a_checkpoint_inside_a_window_is_gone_on_from_at_another_captures_relay(
    tmp_path, first, second, count
):
    logs = [log_of(tmp_path / str(n), pieces(told)) for n, told in enumerate((first, second))]
    kept: list[Told] = []
    for log, checkpoints in zip(logs, (count, 10**6), strict=True):
        with served({"shop": log.folder}) as relay:
            consume(relay, tmp_path / "place", kept, 10, checkpoints)
    assert changes(kept) == changes(_rows(logs[0].blocks))


def _rows(blocks: list[Block]) -> list[Told]:
    kept: list[Told] = []
    windows = Windows("shop", Place(0), lambda _: TABLE, shapes={}, merge=False)
    for block in blocks:
        for piece in windows.cut(block):
            for part in piece.parts:
                kept += [] if isinstance(part, SystemEvent) else map(told_of, part.events())
    return kept


@req("B-6", "D26", "D35", "D44", "D49")
@pytest.mark.parametrize("seed", range(6))
def test_processes_that_go_on_inside_windows_at_either_capture_lose_and_repeat_nothing(
    tmp_path, seed
):
    rng = random.Random(seed)
    blocks = random_blocks(seed + 300, steps=80)
    first = log_of(tmp_path / "one", announced(blocks, rng))
    second = log_of(tmp_path / "two", announced(blocks if seed % 2 else whole(blocks), rng))
    kept: list[Told] = []
    upto = blocks[-1].covered_scn
    with served({"shop": first.folder}) as one, served({"shop": second.folder}) as two:
        for _ in range(60):
            urls = [one, two]
            rng.shuffle(urls)
            consume(urls, tmp_path / "place", kept, upto, rng.randrange(1, 6))
        consume([two, one], tmp_path / "place", kept, upto)
    assert changes(kept) == changes(told_by(blocks))


def test_a_checkpoint_that_does_not_say_how_much_was_processed_is_refused_at_another_log(tmp_path):
    log = log_of(tmp_path / "log", pieces(told=True))
    path = tmp_path / "place"
    FileCheckpoints(path).store(Inside(10, 3, "aaaaaa"))
    kept: list[Told] = []
    with (
        served({"shop": log.folder}) as relay,
        pytest.raises(CheckpointUnusable, match="another change log") as refused,
    ):
        consume(relay, path, kept, 10)
    assert "rewind to 9" in refused.value.next_step
    assert kept == []


@pytest.mark.parametrize("with_identity", [True, False])
def test_a_checkpoint_of_before_is_one_of_the_log_that_answers(tmp_path, with_identity):
    log = log_of(tmp_path / "log", pieces(told=True))
    if not with_identity:
        (log.folder / "identity").unlink()
    path = tmp_path / "place"
    FileCheckpoints(path).store(Place(10, 3))
    kept: list[Told] = []
    with served({"shop": log.folder}) as relay:
        consume(relay, path, kept, 10)
    assert [scn_ord[1] for scn_ord in kept] == list(range(4, 10))


def test_places_say_whose_they_are_and_are_equal_all_the_same():
    for text in ("81", "81:3", "81:3@k3f9a2", "81:3@k3f9a2.4", "81:3@.4"):
        assert str(Place.parse(text)) == text
    place = Place.parse("81:3@k3f9a2.4")
    assert place == Place(81, 3) < Place(81)
    assert (place.log, place.changes) == ("k3f9a2", 4)
    assert str(Place(*place)) == "81:3"
    for text in ("81@k3f9a2", "81:3@", "81:3@K", "81:3@k3f9a2.", "81:"):
        with pytest.raises(ValueError, match="not a place"):
            Place.parse(text)
