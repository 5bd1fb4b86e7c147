"""Filters as plain values: one canonical form, and an error that names part and place for all that is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadFilter
from headrace.wire.filters import parse_filter
from headrace.wire.refusals import error_json, error_of, status_of

FULL: dict[str, Any] = {
    "tables": ["public.orders", "sales.*"],
    "columns": {"public.orders": ["id", "total"]},
    "partition": {"by": "hash", "count": 8, "take": [0, 3]},
    "where": {"public.orders": "total > 10 and status = 'paid'"},
}


def test_a_filter_reads_back_as_it_was_written():
    filter_ = parse_filter(FULL)
    assert filter_.to_json() == FULL
    assert parse_filter(json.loads(json.dumps(filter_.to_json()))) == filter_


def test_filters_that_ask_for_the_same_are_equal():
    other = {
        "where": dict(FULL["where"]),
        "partition": {"take": [3, 0, 3], "count": 8, "by": "hash"},
        "columns": {"public.orders": ["total", "id", "id"]},
        "tables": ["sales.*", "public.orders"],
    }
    assert parse_filter(other) == parse_filter(FULL)
    assert hash(parse_filter(other)) == hash(parse_filter(FULL))
    assert parse_filter({}) != parse_filter(FULL)
    assert parse_filter({}).to_json() == {}


def test_ranges_keep_their_ends():
    ranges = {"by": "range", "ranges": [{"below": 1.5}, {"from": 2, "below": "x"}, {}]}
    filter_ = parse_filter({"partition": ranges})
    assert filter_.to_json() == {"partition": ranges}
    assert parse_filter({"partition": {"by": "range", "ranges": [{"from": 2.0}]}}) == parse_filter(
        {"partition": {"by": "range", "ranges": [{"from": 2}]}}
    )


BAD: list[tuple[Any, str]] = [
    ([], "the whole"),
    ({"table": ["a.b"]}, "the whole"),
    ({"tables": "a.b"}, "tables"),
    ({"tables": []}, "tables"),
    ({"tables": [""]}, "tables"),
    ({"tables": [1]}, "tables"),
    ({"columns": ["a"]}, "columns"),
    ({"columns": {"orders": ["a"]}}, "columns"),
    ({"columns": {"public.t": "a"}}, "columns of public.t"),
    ({"columns": {"public.t": []}}, "columns of public.t"),
    ({"where": {"public.t": 1}}, "where of public.t"),
    ({"where": {"public.t": "id ="}}, "where of public.t, character 5"),
    ({"where": "id = 1"}, "where"),
    ({"tables": ["a.*"], "where": {"b.t": "true"}}, "where of b.t"),
    ({"tables": ["a.*"], "columns": {"b.t": ["c"]}}, "columns of b.t"),
    ({"partition": 8}, "partition"),
    ({"partition": {"by": "key"}}, "partition"),
    ({"partition": {"by": "hash", "count": 0, "take": [0]}}, "partition"),
    ({"partition": {"by": "hash", "count": True, "take": [0]}}, "partition"),
    ({"partition": {"by": "hash", "count": 10**6, "take": [0]}}, "partition"),
    ({"partition": {"by": "mod", "count": 4, "take": []}}, "partition"),
    ({"partition": {"by": "mod", "count": 4, "take": [4]}}, "partition"),
    ({"partition": {"by": "mod", "count": 4, "take": [-1]}}, "partition"),
    ({"partition": {"by": "mod", "count": 4, "take": [0], "of": 1}}, "partition"),
    ({"partition": {"by": "range"}}, "partition"),
    ({"partition": {"by": "range", "ranges": []}}, "partition"),
    ({"partition": {"by": "range", "ranges": [{}] * 101}}, "partition"),
    ({"partition": {"by": "range", "ranges": [{"to": 1}]}}, "partition, range 1"),
    ({"partition": {"by": "range", "ranges": [{}, {"from": True}]}}, "partition, range 2"),
    ({"partition": {"by": "range", "ranges": [{"from": float("nan")}]}}, "partition, range 1"),
    ({"partition": {"by": "range", "ranges": [{"from": "\ud800"}]}}, "partition, range 1"),
]


@pytest.mark.parametrize(("value", "place"), BAD)
def test_what_is_no_filter_is_refused_by_part_and_place(value, place):
    with pytest.raises(BadFilter, match=rf": {place}: ") as raised:
        parse_filter(value)
    assert status_of(raised.value) == 400
    assert raised.value.next_step
    told = error_of(json.loads(json.dumps(error_json(raised.value))))
    assert isinstance(told, BadFilter)
    assert str(told) == str(raised.value)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(["tables", "columns", "partition", "where"])
PARTITION = st.fixed_dictionaries(
    {"by": st.sampled_from(["mod", "hash", "range"])},
    optional={"count": PLAIN, "take": PLAIN, "ranges": PLAIN},
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.dictionaries(NAMES, PLAIN | PARTITION))
def test_any_plain_values_are_a_filter_or_refused(value):
    try:
        filter_ = parse_filter(value)
    except BadFilter:
        return
    assert parse_filter(filter_.to_json()) == filter_
    hash(filter_)
