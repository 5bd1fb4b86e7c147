"""What a source sends again is compared, transaction by transaction, with what the change log holds."""

from __future__ import annotations

import pytest

from headrace.errors import SourceReplaced
from headrace.model.block import Block, transaction_index
from headrace.relay.again import SentAgain

Entry = tuple[int, int, int, int, int, int]


def entry(scn: int, *, xid: int = 0, commit_us: int = 0, last: bool = True) -> Entry:
    return scn, commit_us or 1_000 + scn, xid or 500 + scn, 1, 0, int(last)


def block(*entries: Entry, covered: int | None = None) -> Block:
    return Block(transaction_index(entries), (), (), covered or entries[-1][0])


def held(*entries: Entry, upto: int = 30, expected: bool = True) -> SentAgain:
    return SentAgain(transaction_index(entries), upto, "shop", lambda _: expected)


HELD = (entry(10), entry(20), entry(30))


def test_the_same_transactions_are_taken_in_any_cut_and_others_behind_them():
    again = held(*HELD)
    again.check(block(entry(10)))
    # The first piece of a transaction is not all of it.
    again.check(block(entry(20, last=False), covered=19))
    again.check(block(entry(20), entry(25), entry(30), entry(40, xid=1)))
    again.check(block(entry(50)))


@pytest.mark.parametrize("other", [entry(20, xid=7), entry(20, commit_us=7)])
def test_another_transaction_at_the_place_of_one_that_is_held_is_named(other):
    again = held(*HELD)
    again.check(block(entry(10)))
    with pytest.raises(SourceReplaced, match="SCN 20"):
        again.check(block(other))


def test_one_that_does_not_come_again_is_named_as_soon_as_its_place_is_covered():
    again = held(*HELD)
    again.check(block(entry(10), covered=19))
    with pytest.raises(SourceReplaced, match="SCN 20"):
        again.check(block(entry(30)))
    with pytest.raises(SourceReplaced, match="SCN 10"):
        held(*HELD).check(Block(transaction_index([]), (), (), 15))


def test_a_transaction_of_which_only_the_beginning_comes_again_is_named():
    again = held(*HELD)
    again.check(block(entry(10), entry(20, last=False), covered=19))
    with pytest.raises(SourceReplaced, match="SCN 20"):
        again.check(block(entry(30)))


def test_one_that_is_not_expected_any_more_may_stay_away():
    again = held(*HELD, expected=False)
    again.check(block(entry(30)))
    again.check(block(entry(40)))


def test_what_is_not_held_whole_is_not_compared():
    again = held(entry(10), entry(20, last=False), entry(40), upto=15)
    again.check(block(entry(10), entry(20, xid=7), entry(40, xid=7)))
