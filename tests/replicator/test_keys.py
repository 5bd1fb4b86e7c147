"""Keys as people write them."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigError
from headrace.replicator.keys import parse_keys
from tests.requirements import req

PAIR = ("order_id", "line")


@req("A-14")
@pytest.mark.parametrize(
    ("text", "columns", "key"),
    [
        ("42", None, ("42",)),
        ("42", ("id",), ("42",)),
        ("17,1", PAIR, ("17", "1")),
        ("(17,1)", PAIR, ("17", "1")),
        (" (17,1) ", None, ("17", "1")),
        ("{order_id=17,line=1}", PAIR, ("17", "1")),
        ("{line=1,order_id=17}", PAIR, ("17", "1")),
        ('"a,b",2', PAIR, ("a,b", "2")),
        ('("a,b",2)', PAIR, ("a,b", "2")),
        ('{"order_id=a,b",line=2}', PAIR, ("a,b", "2")),
        ("{order_id=x=y,line=2}", PAIR, ("x=y", "2")),
        ('""', ("id",), ("",)),
        (" lead", ("code",), (" lead",)),
        ("tail  ", None, ("tail  ",)),
        ("  ", ("code",), ("  ",)),
        ("a , b", PAIR, ("a ", " b")),
        (" {order_id= a, line=b } ", PAIR, (" a", "b ")),
        ('" (x)"', ("code",), (" (x)",)),
        ('"say ""hi"""', ("id",), ('say "hi"',)),
    ],
)
def test_every_form_is_read(text: str, columns: tuple[str, ...] | None, key: tuple[str]) -> None:
    assert parse_keys([text], columns) == [key]


@req("A-14")
@pytest.mark.parametrize(
    ("text", "columns", "why"),
    [
        ("", ("id",), "is empty"),
        ("17", PAIR, "has 1 part; the key is (order_id, line)"),
        ("(17,1", PAIR, "does not end with )"),
        ("{order_id=17", PAIR, "does not end with }"),
        ("{order_id=17}", PAIR, "names other columns"),
        ("{order_id=17,lime=1}", PAIR, "names other columns"),
        ("{order_id=17,order_id=1}", PAIR, "is not of the form"),
        ("{17,1}", PAIR, "is not of the form"),
        ("{order_id=17,line=1}", None, "not known before"),
        ('"17', ("id",), "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_number(
    text: str, columns: tuple[str, ...] | None, why: str
) -> None:
    good = "1,2" if columns == PAIR else "1"
    with pytest.raises(ConfigError) as caught:
        parse_keys([good, text], columns)
    assert "key number 2" in caught.value.message
    assert why in caught.value.message
    assert "17" not in caught.value.message
    assert caught.value.next_step
