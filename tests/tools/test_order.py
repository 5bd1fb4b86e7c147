"""The files that the workers of a whole run begin with."""

from __future__ import annotations

from tests.conftest import LONGEST_FIRST, TESTS


def test_what_is_begun_first_is_there() -> None:
    # A file that was renamed would come last, and be waited for alone.
    assert [name for name in LONGEST_FIRST if not (TESTS / name).is_file()] == []
