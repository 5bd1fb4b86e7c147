"""What the members of a group agree on, over random lives of theirs: pure, so thousands of steps are cheap."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from headrace.client.group_state import (
    Claim,
    GroupState,
    begun,
    fair_shares,
    leave,
    resize,
    rewind,
    turn,
)
from headrace.errors import ConfigError
from headrace.wire.place import Place
from tests.requirements import req

LEASE_US = 1000
KEYS = 60
ACTS = [
    *["turn"] * 4,
    *["deliver"] * 3,
    *("stream", "pass", "join", "leave", "kill", "freeze", "wake", "resize", "busy"),
]


class Life:
    """A group, its members, and a stream in which each SCN changes one key.

    A member delivers what it was told to keep until it hears otherwise, frozen ones for ever. Delivering and moving
    the place is one step that the generation fences, as in a consumer's own transaction.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.state: GroupState = begun("{}", self.rng.randrange(1, 9), Place(0))
        self.now_us = 1
        self.claims: dict[str, list[Claim]] = {}
        self.ended: dict[str, list[Claim]] = defaultdict(list)
        self.frozen: set[str] = set()
        self.stream: list[int] = []
        self.processed: dict[int, list[int]] = defaultdict(list)
        self.seen: Counter[str] = Counter()
        self.generations: dict[int, tuple[str, int]] = {}

    def take_turn(self, member: str) -> None:
        told = turn(self.state, member, self.now_us, LEASE_US, self.ended.pop(member, []))
        for claim in told:
            mine = (member, claim.number)
            assert self.generations.setdefault(claim.generation, mine) == mine
            partition = self.state.partitions[claim.number]
            assert (partition.owner, partition.generation) == (member, claim.generation)
        kept = {claim.generation for claim in told}
        self.ended[member] += [c for c in self.claims.get(member, []) if c.generation not in kept]
        self.claims[member] = told

    def deliver(self, claim: Claim) -> None:
        """Deliver some of a partition, as far as its claim still holds."""
        partitions = self.state.partitions
        place = None
        if claim.number < len(partitions):
            partition = partitions[claim.number]
            place = partition.place if partition.generation == claim.generation else None
        if place is None:
            self.seen["refused"] += 1
            return
        begin = place.after_scn
        end = min(len(self.stream), begin + self.rng.randrange(1, 9))
        if claim.upto is not None:
            end = min(end, claim.upto)
        for scn in range(begin + 1, end + 1):
            key = self.stream[scn - 1]
            if key % claim.count == claim.number:
                self.processed[key].append(scn)
        if end > begin:
            # Sometimes a place inside the window, of which nothing was processed yet.
            inside = end < len(self.stream) and claim.upto is None and self.rng.random() < 0.2
            self.state.partitions[claim.number].place = Place(end + 1, 0) if inside else Place(end)

    def step(self) -> None:
        rng = self.rng
        awake = [member for member in self.claims if member not in self.frozen]
        act = rng.choice(ACTS)
        if act == "turn" and awake:
            self.take_turn(rng.choice(awake))
        elif act == "deliver" and self.claims:
            member = rng.choice(list(self.claims))
            if self.claims[member]:
                self.deliver(rng.choice(self.claims[member]))
        elif act == "stream":
            self.stream += [rng.randrange(KEYS) for _ in range(rng.randrange(20))]
        elif act == "pass":
            self.now_us += rng.randrange(LEASE_US)
        elif act == "join" and len(self.claims) < 6:
            self.take_turn(f"m{self.seen['join']}")
        elif act == "leave" and awake and rng.random() < 0.3:
            member = rng.choice(awake)
            del self.claims[member]
            leave(self.state, member)
        elif act == "kill" and self.claims and rng.random() < 0.3:
            member = rng.choice(list(self.claims))
            del self.claims[member]
            self.frozen.discard(member)
        elif act == "freeze" and awake and rng.random() < 0.3:
            self.frozen.add(rng.choice(awake))
        elif act == "wake" and self.frozen:
            self.frozen.discard(rng.choice(sorted(self.frozen)))
        elif act == "resize" and rng.random() < 0.3:
            resize(self.state, rng.randrange(1, 13))
        elif act == "busy":
            for partition in self.state.partitions:
                partition.busy = rng.random() < 0.2
        self.seen[act] += 1

    def settle(self) -> None:
        """Let everybody who is left take turns until nothing moves any more."""
        for partition in self.state.partitions:
            partition.busy = False
        members = [m for m in self.claims if m not in self.frozen] or ["last"]
        self.claims = {member: self.claims.get(member, []) for member in members}
        self.now_us += 2 * LEASE_US
        for _ in range(400):
            self.now_us += 1
            for member in members:
                self.take_turn(member)
                for claim in self.claims[member]:
                    self.deliver(claim)


@req("D10", "D107", "D108", "D109", "D110", "F11")
def test_whatever_happens_to_members_each_change_is_processed_once_and_in_order():
    seen: Counter[str] = Counter()
    for seed in range(40):
        life = Life(seed)
        for _ in range(400):
            life.step()
        life.settle()
        expected: dict[int, list[int]] = defaultdict(list)
        for scn, key in enumerate(life.stream, 1):
            expected[key].append(scn)
        assert life.processed == expected, f"seed {seed}"
        owners = Counter(partition.owner for partition in life.state.partitions)
        held = [owners[member] for member in life.claims]
        assert max(held) - min(held) <= 1, f"seed {seed}: {owners}"
        assert sum(held) == len(life.state.partitions)
        assert life.state.target is None
        seen += life.seen
    assert min(seen[act] for act in ("refused", "leave", "kill", "freeze", "wake", "resize")) > 40


@req("D107")
@pytest.mark.parametrize(("members", "partitions"), [(1, 8), (3, 8), (5, 5), (7, 3), (4, 64)])
def test_shares_are_equal_within_one_and_together_everything(members, partitions):
    rng = random.Random(members * 100 + partitions)
    for _ in range(50):
        held = {f"m{i}": rng.randrange(partitions + 1) for i in range(members)}
        shares = fair_shares(held, partitions)
        assert sum(shares.values()) == partitions
        assert max(shares.values()) - min(shares.values()) <= 1


@req("D107")
def test_who_holds_more_keeps_it_whatever_the_names():
    assert fair_shares({"b": 3, "c": 4}, 7) == {"b": 3, "c": 4}
    assert fair_shares({"b": 4, "c": 3}, 7) == {"b": 4, "c": 3}
    assert fair_shares({"a": 0, "b": 4, "c": 3}, 7) == {"a": 2, "b": 3, "c": 2}


def test_who_leaves_is_told_to_keep_nothing_and_claims_nothing():
    state = begun("{}", 3, Place(0))
    owned = turn(state, "a", 1, LEASE_US)
    assert turn(state, "a", 2, LEASE_US, owned[:1], leaving=True) == []
    assert [p.owner for p in state.partitions] == [None, "a", "a"]
    assert state.members["a"] == 2 + LEASE_US


@req("B-7")
def test_a_partition_whose_place_is_being_stored_neither_moves_nor_is_claimed():
    state = begun("{}", 2, Place(0))
    turn(state, "a", 1, LEASE_US)
    state.partitions[0].busy = True
    assert [claim.number for claim in turn(state, "b", LEASE_US + 1, LEASE_US)] == [1]
    assert state.partitions[0].owner == "a"
    # Given up in the meantime, and still being stored.
    state.partitions[0].owner = None
    assert [claim.number for claim in turn(state, "b", LEASE_US + 1, LEASE_US)] == [1]
    state.partitions[0].busy = False
    told = turn(state, "b", LEASE_US + 1, LEASE_US)
    assert sorted(claim.number for claim in told) == [0, 1]


@req("D109")
def test_a_newcomer_is_given_its_share_and_nothing_else_moves():
    state = begun("{}", 12, Place(0))
    for member in ("a", "b", "a", "b", "a", "b"):
        told = turn(state, member, 1, LEASE_US)
        turn(state, member, 1, LEASE_US, _rest(state, member, told))
    before = {p.number: p.owner for p in state.partitions}
    assert Counter(before.values()) == {"a": 6, "b": 6}
    for member in ("c", "a", "b", "c"):
        told = turn(state, member, 1, LEASE_US)
        turn(state, member, 1, LEASE_US, _rest(state, member, told))
    after = {p.number: p.owner for p in state.partitions}
    assert Counter(after.values()) == {"a": 4, "b": 4, "c": 4}
    assert {after[number] for number in after if after[number] != before[number]} == {"c"}


@req("B-7")
def test_a_partition_is_claimed_only_after_its_owner_said_that_it_ended():
    state = begun("{}", 2, Place(0))
    first = turn(state, "a", 1, LEASE_US)
    assert [claim.number for claim in first] == [0, 1]
    assert turn(state, "b", 1, LEASE_US) == []
    kept = turn(state, "a", 1, LEASE_US)
    assert [claim.number for claim in kept] == [0]
    assert turn(state, "b", 1, LEASE_US) == []
    turn(state, "a", 1, LEASE_US, [first[1]])
    assert [claim.number for claim in turn(state, "b", 1, LEASE_US)] == [1]


@req("D108", "B-7")
def test_a_partition_of_a_silent_member_moves_when_its_lease_is_over_and_not_before():
    state = begun("{}", 1, Place(0))
    (old,) = turn(state, "a", 1, LEASE_US)
    assert turn(state, "b", LEASE_US, LEASE_US) == []
    (new,) = turn(state, "b", LEASE_US + 1, LEASE_US)
    assert new.generation > old.generation
    # Its late word that it ended touches nobody.
    assert turn(state, "a", LEASE_US + 2, LEASE_US, [old]) == []
    assert state.partitions[0].owner == "b"


@req("B-7")
def test_a_late_word_about_a_former_claim_frees_nothing_of_the_present_one():
    state = begun("{}", 1, Place(0))
    (old,) = turn(state, "a", 1, LEASE_US)
    # It lost the partition, and got it back before it was heard of again.
    turn(state, "b", LEASE_US + 1, LEASE_US)
    leave(state, "b")
    (new,) = turn(state, "a", LEASE_US + 1, LEASE_US)
    assert (new.number, new.generation > old.generation) == (old.number, True)
    assert turn(state, "a", LEASE_US + 1, LEASE_US, [old]) == [new]
    assert turn(state, "c", LEASE_US + 1, LEASE_US) == []
    assert turn(state, "a", LEASE_US + 1, LEASE_US, [new])[0].generation > new.generation


@req("D110")
def test_another_count_begins_only_behind_a_place_that_all_partitions_reached():
    state = begun("{}", 2, Place(0))
    one, other = turn(state, "a", 1, LEASE_US)
    state.partitions[0].place, state.partitions[1].place = Place(70, 3), Place(40)
    resize(state, 3)
    assert turn(state, "a", 1, LEASE_US) == []
    assert turn(state, "a", 1, LEASE_US, [one]) == []
    assert state.barrier is None
    levelling = turn(state, "a", 1, LEASE_US, [other])
    assert [(claim.number, claim.upto) for claim in levelling] == [(0, 70), (1, 70)]
    state.partitions[0].place = Place(70)
    (last,) = turn(state, "a", 1, LEASE_US, [levelling[0]])
    assert len(state.partitions) == 2
    state.partitions[1].place = Place(70)
    claims = turn(state, "a", 1, LEASE_US, [last])
    assert [(claim.number, claim.count, claim.upto) for claim in claims] == [
        (number, 3, None) for number in range(3)
    ]
    assert [p.place for p in state.partitions] == [Place(70)] * 3


@req("D110")
def test_on_the_way_to_another_count_no_partition_changes_hands_for_the_balance():
    state = begun("{}", 3, Place(0))
    owned = turn(state, "a", 1, LEASE_US)
    state.partitions[0].place = Place(70)
    resize(state, 5)
    turn(state, "a", 1, LEASE_US, owned)
    levelling = turn(state, "a", 1, LEASE_US)
    assert [(claim.number, claim.upto) for claim in levelling] == [(1, 70), (2, 70)]
    assert turn(state, "b", 1, LEASE_US) == []
    assert turn(state, "a", 1, LEASE_US) == levelling


@req("D110")
def test_the_count_that_there_is_already_stops_nobody():
    state = begun("{}", 3, Place(0))
    owned = turn(state, "a", 1, LEASE_US)
    resize(state, 3)
    assert turn(state, "a", 1, LEASE_US) == owned
    # Back to it from another one, which had begun already.
    resize(state, 5)
    assert turn(state, "a", 1, LEASE_US) == []
    resize(state, 3)
    turn(state, "a", 1, LEASE_US, owned)
    assert len(turn(state, "a", 1, LEASE_US)) == len(state.partitions) == 3


@pytest.mark.parametrize("count", [0, -1, 65_537])
def test_counts_that_no_filter_takes_are_refused(count):
    with pytest.raises(ConfigError, match="partitions"):
        begun("{}", count, Place(0))
    with pytest.raises(ConfigError, match="partitions"):
        resize(begun("{}", 1, Place(0)), count)


def _rest(state: GroupState, member: str, told: list[Claim]) -> list[Claim]:
    """Return what a member owns and was not told to keep."""
    kept = {claim.generation for claim in told}
    return [
        Claim(p.number, len(state.partitions), p.generation)
        for p in state.partitions
        if p.owner == member and p.generation not in kept
    ]


@req("D108")
def test_a_clock_that_was_set_back_makes_no_lease_longer():
    state = begun("{}", 2, Place(0))
    day_us = 86_400_000_000
    turn(state, "dead", day_us, LEASE_US)
    assert turn(state, "other", 1, LEASE_US) == []
    assert len(turn(state, "other", LEASE_US + 1, LEASE_US)) == 2
    # One whose lease is longer than ours keeps it.
    turn(state, "patient", LEASE_US + 1, 100 * LEASE_US)
    turn(state, "other", 1, LEASE_US)
    turn(state, "other", 50 * LEASE_US, LEASE_US)
    assert set(state.members) == {"other", "patient"}
    leave(state, "other")
    assert state.members == {"patient": 1 + 100 * LEASE_US}
    assert state.leases == {"patient": 100 * LEASE_US}


def test_another_place_is_begun_at_when_everybody_stands_still_and_by_all_together():
    state = begun("{}", 2, Place(9))
    one, other = turn(state, "a", 1, LEASE_US)
    rewind(state, 4)
    assert turn(state, "a", 1, LEASE_US) == []
    assert turn(state, "a", 1, LEASE_US, [one]) == []
    assert [p.place for p in state.partitions] == [Place(9), Place(9)]
    state.partitions[0].busy = True
    assert turn(state, "a", 1, LEASE_US, [other]) == []
    state.partitions[0].busy = False
    again = turn(state, "a", 1, LEASE_US)
    assert [p.place for p in state.partitions] == [Place(4), Place(4)]
    assert state.rewind is None
    assert {claim.generation for claim in again}.isdisjoint({one.generation, other.generation})


def test_another_place_and_another_count_are_reached_at_once():
    state = begun("{}", 2, Place(9))
    claims = turn(state, "a", 1, LEASE_US)
    resize(state, 3)
    rewind(state, 4)
    claims = turn(state, "a", 1, LEASE_US, claims)
    assert [claim.upto for claim in claims] == [None] * 3
    assert [p.place for p in state.partitions] == [Place(4)] * 3
    assert (state.target, state.barrier, state.rewind) == (None, None, None)
