"""Patterns of names."""

from __future__ import annotations

import pytest

from headrace.lake.settings import TableSettings, settings_for
from headrace.model.patterns import matches, may_begin
from headrace.model.schema import TableId
from headrace.wire.filters.tables import is_let_through


@pytest.mark.parametrize(
    ("name", "pattern", "is_meant"),
    [
        ("public.orders", "public.orders", True),
        ("public.orders", "public.order?", True),
        ("public.orders", "*ord*", True),
        ("public.orders", "public.order", False),
        ("public.a[1]", "public.a[1]", True),
        ("public.a1", "public.a[1]", False),
        ("public.a\nb", "public.*", True),
        (r"public.a\b", r"public.a\b", True),
        ("public.Orders", "public.orders", False),
    ],
)
def test_every_character_but_the_two_stands_for_itself(name, pattern, is_meant):
    assert matches(name, pattern) is is_meant
    assert is_let_through(name, [pattern]) is is_meant


def test_a_name_in_brackets_has_the_settings_that_are_meant_for_it():
    masked, table = TableSettings(mask=(("c", "md5(c)"),)), TableId("public", "a[1]")
    assert settings_for(table, [("public.a[1]", masked)]) is masked


@pytest.mark.parametrize(
    ("pattern", "may"),
    [
        ("*", True),
        ("*orders", True),
        ("p*s", True),
        ("public.x", True),
        ("public*", True),
        ("other.*", False),
        ("public2.*", False),
    ],
)
def test_of_a_namespace_is_told_whoever_may_want_a_table_of_it(pattern, may):
    assert may_begin("public.", pattern) is may
    assert is_let_through("public.", [pattern]) is may
