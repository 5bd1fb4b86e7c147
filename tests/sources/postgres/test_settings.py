"""Patterns, names, and what is refused before any server is asked."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.lsn import format_lsn, parse_lsn
from headrace.sources.postgres.settings import PostgresSettings, TableFilter

URL = "postgresql://me:p%40ss-w0rd@localhost/shop"


@pytest.mark.parametrize(
    ("include", "exclude", "table", "selected"),
    [
        ("public.*", "", "public.t", True),
        ("public.*", "", "shop.t", False),
        ("*.*", "", "shop.t", True),
        ("t", "", "public.t", True),
        ("t", "", "shop.t", False),
        ("*.order_?", "", "shop.order_1", True),
        ("*.order_?", "", "shop.order_12", False),
        ("public.*", "public.log_*", "public.log_2024", False),
        ("public.a.b", "", "public.a.b", True),
        ("public.[x]*", "", "public.[x]y", True),
        ("public.[x]*", "", "public.x", False),
        ("public.T", "", "public.t", False),
        ("*.*", "", "pg_catalog.pg_class", False),
        ("*.*", "", "information_schema.tables", False),
        ("*.*", "", "headrace.watermarks", False),
    ],
)
def test_patterns(include: str, exclude: str, table: str, selected: bool) -> None:
    chosen = TableFilter((include,), (exclude,) if exclude else ())
    schema, _, name = table.partition(".")
    assert chosen.selects(TableId(schema, name)) is selected


@pytest.mark.parametrize(
    ("include", "schema", "selected"),
    [
        ("shop.orders", "shop", True),
        ("shop.orders", "public", False),
        ("orders", "public", True),
        ("shop.*", "shop", True),
        ("s*.orders", "shop", True),
        ("*.*", "headrace", False),
    ],
)
def test_a_schema_is_looked_at_when_a_table_of_it_may_be_captured(
    include: str, schema: str, selected: bool
) -> None:
    assert TableFilter((include, "other.t"), ()).selects_schema(schema) is selected


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("shop", "headrace_shop"),
        ("a_b", "headrace_a_b"),
        ("headrace", "headrace"),
        ("headrace_shop", "headrace_headrace_shop"),
        ("My Shop!", "headrace_my_shop_22e214a0"),
        ("ärger", "headrace_rger_"),
        ("x" * 100, "headrace_" + "x" * 45 + "_"),
        ("!!!", "headrace_source_"),
    ],
)
def test_our_own_slot_has_a_name_that_the_server_takes(name: str, own: str) -> None:
    found = PostgresSettings(URL, name=name).slot_name
    assert re.fullmatch(r"[a-z0-9_]{1,63}", found)
    assert found[: len(own)] == own
    # Only what had to be changed carries a hash.
    assert len(found) == len(own) + (8 if own.endswith("_") else 0)


def test_no_two_names_share_a_slot() -> None:
    names = ["a-b", "a_b", "a b", "A_B", "a__b", "_a_b", "a_b_", "headrace_a_b", "headrace-a-b"]
    names += ["source", "!!!", "???", "headrace", "Headrace", "x" * 100, "x" * 101, "x" * 54]
    found = {PostgresSettings(URL, name=name).slot_name for name in names}
    assert len(found) == len(names)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"url": "postgresql://me:p@ss@w@rd@ho st/x"}, "source.url"),
        ({"url": "postgresql://me:p@ss@w@rd@host/x"}, "source.url"),
        ({"url": "postgresql://me:sec/ret@localhost/shop"}, "source.url"),
        ({"url": "postgresql://localhost:sec/ret"}, "source.url"),
        ({"url": URL, "watermark": "none"}, "source.watermark"),
        ({"url": URL, "tables": ()}, "source.tables"),
        ({"url": URL, "slot": ""}, "source.slot"),
        ({"url": URL, "publication": "x" * 64}, "source.publication"),
    ],
)
def test_what_cannot_be_used_is_refused_by_field(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field) as caught:
        PostgresSource(**arguments)
    assert caught.value.next_step
    for secret in ("p@ss", "sec", "ret"):
        assert secret not in str(caught.value)


def test_secrets_are_never_shown() -> None:
    source = PostgresSource(URL)
    for shown in (repr(source), str(source), repr(source.settings), repr(source.chunks())):
        assert "w0rd" not in shown


@pytest.mark.parametrize("text", ["0/0", "1/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"])
def test_positions_there_and_back(text: str) -> None:
    assert format_lsn(parse_lsn(text)) == text


@pytest.mark.parametrize("text", ["", "0", "0/", "/0", "0/G", "1/123456789", "0/0 "])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        parse_lsn(text)
