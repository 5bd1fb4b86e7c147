"""Relays that read from relays: the same stream at each, whatever breaks between them, and never a gap in silence."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader, ChangeLogSettings, ChangeLogWriter, register_job
from headrace.client import HttpSettings, Subscription
from headrace.client.trust import trusting
from headrace.errors import LeaseLost
from headrace.model.block import Block, SystemEvent, SystemKind, transaction_index
from headrace.registry.file import FileRegistry
from headrace.relay.follow import (
    FELL_OFF,
    FOLLOWING,
    REFUSED,
    WAITING_FOR_ROOM,
    WAITING_FOR_UPSTREAM,
)
from headrace.relay.server.settings import Role, Token
from headrace.testing.histories import TABLES
from headrace.testing.line_faults import SOUND, Damage, FaultyLine
from headrace.testing.notation import table_of
from headrace.testing.relay import served
from tests.certificates import Pair, self_signed
from tests.changelog.windows import OTHER, TABLE, commit_us, coverage, joined, scns, window
from tests.client.conftest import QUICK
from tests.client.logs import LogFolder, random_blocks, told_by
from tests.client.recording import Recorder
from tests.faults.test_room import files_at_most
from tests.relay.following import following, held_bytes, told_of_log, windows_of
from tests.relay.server.asking import ask
from tests.requirements import req
from tests.waiting import until


@pytest.fixture
def leader(tmp_path):
    log = LogFolder(tmp_path / "leader")
    log.register(*TABLES, TABLE)
    yield log
    log.close()


@req("D39", "D50", "D53")
@pytest.mark.parametrize("seed", range(3))
def test_a_chain_of_three_relays_delivers_the_same_stream(leader, tmp_path, seed):
    blocks = random_blocks(seed + 20)
    half = len(blocks) // 2
    while not blocks[half - 1].ends_complete:
        half += 1
    leader.append(*blocks[:half])
    end = blocks[-1].covered_scn
    with (
        served({"shop": leader.folder}, heartbeat_s=0.1) as first,
        following(tmp_path / "second", first) as two,
        served({"shop": two.folder}, heartbeat_s=0.1) as second,
        following(tmp_path / "third", second) as three,
        served({"shop": three.folder}, heartbeat_s=0.1) as third,
    ):
        consumer = Recorder()
        three.covers(blocks[half - 1].covered_scn)
        leader.append(*blocks[half:])
        three.covers(end)
        Subscription(third, "shop", consumer, upto=end, settings=QUICK).run()
    for copy in (two.folder, three.folder):
        assert held_bytes(copy) == held_bytes(leader.folder)
        assert windows_of(copy) == windows_of(leader.folder)
        assert told_of_log(copy) == told_by(blocks)
        tails = [ChangeLogReader(folder).tail() for folder in (copy, leader.folder)]
        assert tails[0] == tails[1]
        for schema in TABLES:
            assert FileRegistry(copy / "schemas").get(schema.schema_id) == schema
    assert sorted(consumer.told, key=lambda told: told[:2]) == told_by(blocks)


@req("D39", "D50")
@pytest.mark.parametrize("seed", range(4))
def test_lines_that_break_and_damage_bytes_change_nothing_of_the_copy(leader, tmp_path, seed):
    blocks = random_blocks(seed + 40)
    leader.append(*blocks)
    rng = random.Random(seed)
    with (
        served({"shop": leader.folder}, heartbeat_s=0.1) as first,
        FaultyLine(first) as one,
    ):

        def rule(number: int) -> Damage:
            if number > 40:
                return SOUND
            place = rng.randrange(300, 20_000)
            return Damage(flip_at=place) if number % 3 == 0 else Damage(cut_at=place)

        one.rule = rule
        with following(tmp_path / "copy", one.url) as copy:
            copy.covers(blocks[-1].covered_scn)
        assert one.connections > 5
    assert windows_of(copy.folder) == windows_of(leader.folder)
    assert told_of_log(copy.folder) == told_by(blocks)


@req("D39", "D36")
@pytest.mark.parametrize("seed", range(3))
def test_a_follower_that_starts_again_goes_on_at_its_own_end(leader, tmp_path, seed):
    blocks = random_blocks(seed + 80)
    cuts = sorted(random.Random(seed).sample(range(1, len(blocks)), 3))
    with served({"shop": leader.folder}, heartbeat_s=0.1) as first:
        copied = 0
        for start, end in zip([0, *cuts], [*cuts, len(blocks)], strict=True):
            leader.append(*blocks[start:end])
            with following(tmp_path / "copy", first) as copy:
                copy.covers(leader.writer.tail.covered_scn)
                copied += copy.blocks
    assert told_of_log(copy.folder) == told_by(blocks)
    assert windows_of(copy.folder) == windows_of(leader.folder)
    # Had it begun anew each time, the first part alone would have come four times.
    assert copied <= len(blocks) * 1.5


@req("D39")
@pytest.mark.parametrize("first", [2, 3])
def test_a_block_of_which_a_part_is_held_is_cut(leader, tmp_path, first):
    """The upstream has other block cuts: what is held already is left out, to the row."""
    leader.append(window(1), window(2), window(3))
    other = LogFolder(tmp_path / "other")
    other.register(TABLE)
    other.append(*(window(scn) for scn in range(1, first)))
    other.append(joined([window(scn) for scn in range(first, 5)]), window(5))
    with served({"shop": leader.folder}) as first, following(tmp_path / "copy", first) as copy:
        copy.covers(3)
    with served({"shop": other.folder}) as second, following(tmp_path / "copy", second) as copy:
        copy.covers(5)
    assert windows_of(copy.folder) == windows_of(other.folder)
    assert scns(ChangeLogReader(copy.folder).blocks(0)) == [1, 2, 3, 4, 5]
    other.close()


@req("D39")
def test_coverage_and_events_pass_as_they_are(leader, tmp_path):
    leader.register(OTHER)
    wider = table_of(4, name=TABLE.table.name)
    leader.register(wider)
    payload = {"schema_id": wider.schema_id, "was": {"schema_id": OTHER.schema_id}}
    events = (
        SystemEvent(7, 0, SystemKind.GAP, TABLE.table),
        SystemEvent(7, 1, SystemKind.SCHEMA, TABLE.table, payload),
        SystemEvent(7, 2, SystemKind.DUMP_COMPLETE, TABLE.table, {"request_id": "r"}),
    )
    told = Block(transaction_index([(7, 70, 3, 3, 0, 1)]), (), events, 7)
    leader.append(window(3), told, coverage(50))
    with (
        served({"shop": leader.folder}, heartbeat_s=0.05) as first,
        following(tmp_path / "copy", first) as copy,
    ):
        copy.covers(50)
    found = [event for block in ChangeLogReader(copy.folder).blocks(0) for event in block.system]
    assert tuple(found) == events
    # No row of them has come yet.
    registry = FileRegistry(copy.folder / "schemas")
    assert registry.get(wider.schema_id) == wider
    assert registry.get(OTHER.schema_id) == OTHER


def test_no_block_is_copied_before_the_version_that_it_names(leader, tmp_path):
    """The upstream has lost a version: the follower says so and stops before the block, and goes on when it is back."""
    leader.append(window(1))
    leader.append(window(2, tables=(TABLE, OTHER)))
    with (
        served({"shop": leader.folder}, heartbeat_s=0.1) as first,
        following(tmp_path / "copy", first) as copy,
    ):
        said = copy.said(REFUSED)
        assert f"{OTHER.schema_id:016x}" in said.detail
        copy.covers(1)
        assert scns(ChangeLogReader(copy.folder).blocks(0)) == [1]
        leader.register(OTHER)
        copy.covers(2)
    assert FileRegistry(copy.folder / "schemas").get(OTHER.schema_id) == OTHER


def short_log(folder: Path) -> LogFolder:
    """Return a log that keeps little."""
    log = LogFolder(
        folder, ChangeLogSettings(segment_bytes=4096, budget_bytes=64 * 1024, retain_bytes=4096)
    )
    log.register(TABLE)
    return log


def append(log: LogFolder, first: int, last: int) -> None:
    for scn in range(first, last + 1):
        register_job(log.folder, "somebody", scn - 1)
        log.append(window(scn, 30))


def test_a_follower_begins_where_its_upstream_does_and_says_so(tmp_path):
    log = short_log(tmp_path / "leader")
    append(log, 1, 120)
    oldest = log.writer.tail.oldest_scn
    assert oldest > 1
    with served({"shop": log.folder}) as first, following(tmp_path / "copy", first) as copy:
        copy.covers(120)
    tail = ChangeLogReader(copy.folder).tail()
    assert (tail.oldest_scn, tail.complete_scn) == (oldest, 120)
    assert windows_of(copy.folder, oldest) == windows_of(log.folder, oldest)
    with served({"shop": copy.folder}) as second:
        # What lies before its first window may have been at that time.
        known = commit_us(oldest + 1)
        answers = [
            ask(second, "/stream", source="shop", mode="pull", since_us=since)
            for since in (known - 1, known)
        ]
        assert [answer.status for answer in answers] == [410, 200]
        assert answers[0].error["type"] == "ScnNotFound"
    log.close()


@req("D37", "B-11")
def test_a_follower_that_fell_off_its_upstream_stops_by_name_and_never_skips(tmp_path):
    log = short_log(tmp_path / "leader")
    append(log, 1, 3)
    copy_folder = tmp_path / "copy"
    with served({"shop": log.folder}) as first:
        with following(copy_folder, first) as copy:
            copy.covers(3)
        append(log, 4, 120)
        oldest = log.writer.tail.oldest_scn
        with following(copy_folder, first) as copy:
            said = copy.said(FELL_OFF)
            assert "SCN 3," in said.detail
            assert str(oldest) in said.detail
            assert str(copy_folder) in said.detail
            # It is asked again, and copies nothing.
            count = len(copy.statuses)
            until(lambda: len(copy.statuses) > count + 3, "asked again")
            assert scns(ChangeLogReader(copy_folder).blocks(0)) == [1, 2, 3]
        # The next step that it names:
        shutil.rmtree(copy_folder)
        with following(copy_folder, first) as copy:
            copy.covers(120)
    assert ChangeLogReader(copy_folder).tail().oldest_scn == oldest
    log.close()


@req("D39")
def test_a_follower_goes_on_where_its_upstream_has_just_dropped_all_that_it_holds(tmp_path):
    log = LogFolder(tmp_path / "leader", ChangeLogSettings(segment_bytes=4096, retain_bytes=0))
    log.register(TABLE)
    register_job(log.folder, "somebody", 0)
    log.append(*(window(scn, 200) for scn in (1, 2, 3)))
    with served({"shop": log.folder}, heartbeat_s=0.1) as first:
        with following(tmp_path / "copy", first) as copy:
            copy.covers(3)
        log.append(window(4, 200), window(5, 200))
        register_job(log.folder, "somebody", 3)
        log.writer.retain()
        assert log.writer.tail.oldest_scn == 3
        with following(tmp_path / "copy", first) as copy:
            copy.covers(5)
            assert FELL_OFF not in [status.state for status in copy.statuses]
    assert scns(ChangeLogReader(copy.folder).blocks(0)) == [1, 2, 3, 4, 5]
    log.close()


@req("D39", "D37")
def test_a_follower_goes_on_at_an_upstream_that_begins_behind_its_last_transaction(tmp_path):
    """The copy is covered further than its last transaction, and upstream holds everything from there on."""
    full, short = LogFolder(tmp_path / "full"), LogFolder(tmp_path / "short")
    for log in (full, short):
        log.register(TABLE)
    full.append(window(1), window(50), coverage(65))
    short.writer.begin_at(60, commit_us(50))
    with (
        served({"shop": full.folder}, heartbeat_s=0.1) as first,
        following(tmp_path / "copy", first) as copy,
    ):
        copy.covers(65)
    with served({"shop": short.folder}, heartbeat_s=0.1) as second:
        short.append(window(70))
        with following(tmp_path / "copy", second) as copy:
            copy.covers(70)
            assert FELL_OFF not in [status.state for status in copy.statuses]
    assert scns(ChangeLogReader(copy.folder).blocks(0)) == [1, 50, 70]
    # One that begins behind what the copy covers has lost what lies between.
    late = LogFolder(tmp_path / "late")
    late.register(TABLE)
    late.writer.begin_at(80, commit_us(80))
    with (
        served({"shop": late.folder}, heartbeat_s=0.1) as third,
        following(tmp_path / "copy", third) as copy,
    ):
        assert "SCN 70," in copy.said(FELL_OFF).detail
    for log in (full, short, late):
        log.close()


@req("B-10")
def test_an_upstream_with_another_log_is_refused_by_name(leader, tmp_path):
    """Its log was begun anew: it has nothing of the copy's last transaction, and says of none that it was dropped."""
    leader.append(window(3), window(6))
    anew = LogFolder(tmp_path / "anew")
    anew.register(TABLE)
    anew.append(window(5), window(8), window(9))
    with served({"shop": leader.folder}) as first, following(tmp_path / "copy", first) as copy:
        copy.covers(6)
    with served({"shop": anew.folder}) as second, following(tmp_path / "copy", second) as copy:
        said = copy.said(REFUSED)
        assert "transaction 6" in said.detail
    assert scns(ChangeLogReader(copy.folder).blocks(0)) == [3, 6]
    anew.close()


@req("D39")
def test_a_follower_that_holds_no_transaction_yet_takes_any_upstream_that_reaches_back(tmp_path):
    """Where its copy begins the source had none: nobody can be asked whether it holds that one too."""
    short, full = LogFolder(tmp_path / "short"), LogFolder(tmp_path / "full")
    for log in (short, full):
        log.register(TABLE)
    short.writer.begin_at(60, commit_us(50))
    full.append(window(1), window(50), coverage(65))
    with (
        served({"shop": short.folder}, heartbeat_s=0.1) as first,
        following(tmp_path / "copy", first) as copy,
    ):
        copy.said(FOLLOWING)
    assert ChangeLogReader(copy.folder).tail().oldest_scn == 60
    with (
        served({"shop": full.folder}, heartbeat_s=0.1) as second,
        following(tmp_path / "copy", second) as copy,
    ):
        full.append(window(70))
        copy.covers(70)
        assert REFUSED not in [status.state for status in copy.statuses]
    assert scns(ChangeLogReader(copy.folder).blocks(60)) == [70]
    for log in (short, full):
        log.close()


@req("D39", "D49")
@pytest.mark.parametrize("behind_at", [3, 6])
def test_another_upstream_takes_over_and_one_that_is_behind_is_waited_for(
    leader, tmp_path, behind_at
):
    leader.append(*(window(scn) for scn in range(1, 6)))
    with served({"shop": leader.folder}, heartbeat_s=0.1) as first:
        with (
            following(tmp_path / "second", first) as second,
            served({"shop": second.folder}, heartbeat_s=0.1) as other,
            FaultyLine(first) as line,
            following(tmp_path / "third", line.url, other) as third,
        ):
            third.covers(5)
            line.rule = lambda _: Damage(cut_at=0)
            line.cut()
            leader.append(window(6), window(7))
            third.covers(7)
        behind = LogFolder(tmp_path / "behind")
        behind.register(TABLE)
        behind.append(*(window(scn) for scn in range(1, behind_at + 1)))
        with (
            served({"shop": behind.folder}, heartbeat_s=0.1) as late,
            following(third.folder, late) as third,
        ):
            third.said(WAITING_FOR_UPSTREAM)
            assert REFUSED not in [status.state for status in third.statuses]
            behind.append(*(window(scn) for scn in range(behind_at + 1, 10)))
            third.covers(9)
        behind.close()
    assert scns(ChangeLogReader(third.folder).blocks(0)) == list(range(1, 10))


def test_two_followers_never_write_one_log(leader, tmp_path):
    leader.append(window(1))
    with (
        served({"shop": leader.folder}, heartbeat_s=0.1) as first,
        following(tmp_path / "copy", first) as one,
    ):
        one.covers(1)
        with following(tmp_path / "copy", first) as other:
            until(lambda: other.error, "refused")
        assert isinstance(other.error, LeaseLost)
        leader.append(window(2))
        one.covers(2)


def test_a_follower_writes_what_is_durable_before_it_is_readable(leader, tmp_path, monkeypatch):
    """Whatever a reader of the copy sees was synced before."""
    leader.append(*(window(scn) for scn in range(1, 30)))
    synced: list[int] = []
    opened = ChangeLogWriter.open

    def watched(folder, settings):
        writer = opened(folder, settings, sync=lambda _: synced.append(writer.appended.covered_scn))
        return writer

    monkeypatch.setattr(ChangeLogWriter, "open", watched)
    with (
        served({"shop": leader.folder}, heartbeat_s=0.1) as first,
        following(tmp_path / "copy", first) as copy,
    ):
        copy.covers(29)
        assert synced
        assert synced[-1] == ChangeLogReader(copy.folder).tail().covered_scn


@req("D39")
def test_a_full_disk_holds_the_copy_up_and_loses_nothing(leader, tmp_path):
    leader.append(*(window(scn, 40) for scn in range(1, 40)))
    with served({"shop": leader.folder}, heartbeat_s=0.1) as first:
        with files_at_most(8192), following(tmp_path / "copy", first) as copy:
            copy.said(WAITING_FOR_ROOM)
        with following(tmp_path / "copy", first) as copy:
            copy.covers(39)
            assert copy.state == FOLLOWING
    assert windows_of(copy.folder) == windows_of(leader.folder)


@req("D45")
def test_a_follower_drops_what_is_old_as_its_own_settings_say(leader, tmp_path):
    leader.append(*(window(scn, 30) for scn in range(1, 100)))
    little = ChangeLogSettings(segment_bytes=8192, retain_bytes=0)
    with (
        served({"shop": leader.folder}, heartbeat_s=0.1) as first,
        following(tmp_path / "copy", first, settings=little) as copy,
    ):
        copy.covers(99)
        until(lambda: ChangeLogReader(copy.folder).tail().oldest_scn > 80, "the old ones are gone")
    assert scns(ChangeLogReader(copy.folder).blocks(98)) == [99]
    assert scns(ChangeLogReader(leader.folder).blocks(0)) == list(range(1, 100))


@req("D39")
def test_a_follower_of_a_log_that_is_still_empty_gets_its_first_block(leader, tmp_path):
    with (
        served({"shop": leader.folder}, heartbeat_s=0.1) as first,
        following(tmp_path / "copy", first) as copy,
    ):
        copy.said(FOLLOWING)
        assert ask(first, "/buffer?source=shop").json["segments"] == []
        leader.append(window(7))
        copy.covers(7)
    assert scns(ChangeLogReader(copy.folder).blocks(0)) == [7]


@req("D39")
def test_a_chain_goes_through_tls_and_tokens_and_waits_for_what_is_not_believed(leader, tmp_path):
    blocks = random_blocks(31)
    leader.append(*blocks)
    end = blocks[-1].covered_scn
    known, other = self_signed(tmp_path / "known"), self_signed(tmp_path / "other")
    tokens = (Token("second", "swordfish-of-second", Role.READER),)

    def http(token: str, pair: Pair = known) -> HttpSettings:
        tls = trusting(pair.certificate, "ca")
        return HttpSettings(read_timeout_s=5.0, token=token, tls=tls)

    with served(
        {"shop": leader.folder},
        heartbeat_s=0.1,
        tokens=tokens,
        certificate=known.certificate,
        key=known.key,
    ) as url:
        copy = tmp_path / "second"
        with following(copy, url, http=http("swordfish-of-nobody")) as two:
            refused = two.said(REFUSED)
            assert "NotAllowed" in refused.detail or "token" in refused.detail
            assert "swordfish" not in refused.detail
        with following(copy, url, http=http("swordfish-of-second", other)) as two:
            assert "not believed" in two.said(WAITING_FOR_UPSTREAM).detail
        assert not list(copy.glob("*.seg"))
        with following(copy, url, http=http("swordfish-of-second")) as two:
            two.covers(end)
    assert held_bytes(copy) == held_bytes(leader.folder)
