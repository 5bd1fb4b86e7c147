"""What is logged is read back as it was said: by level and table, in the form for people and in that for programs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from headrace.observe.logs import FORM, chosen, entries
from tests.requirements import req

SAYS = """
import logging
from headrace.observe.logs import begin_logging

begin_logging()
log = logging.getLogger("headrace.part")
log.info("shop.orders: 3 rows")
log.warning("shop.orders and shop.order_items wait")
print("java.lang.Strange: shop.orders2", flush=True, file=__import__("sys").stderr)
try:
    raise ValueError("shop.items")
except ValueError:
    log.exception("a turn failed")
"""


def said(form: str) -> list[str]:
    """Return the log of a process."""
    done = subprocess.run(
        [sys.executable, "-c", SAYS],
        env={FORM: form, "PYTHONPATH": ":".join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()


@req("C20")
@pytest.mark.parametrize("form", ["", "json"])
def test_what_a_process_says_is_read_in_either_form(form: str) -> None:
    found = list(entries(said(form)))
    assert [one.level for one in found] == ["INFO", "WARNING", "ERROR"]
    first, second, third = found
    assert first.message == "shop.orders: 3 rows"
    assert {one.logger for one in found} == {"headrace.part"}
    # What knows no form stands below the one before it, and a traceback below its own.
    assert second.message.splitlines()[1] == "java.lang.Strange: shop.orders2"
    assert "ValueError: shop.items" in third.message
    assert all(one.at.endswith("Z") and one.at[10] == "T" for one in found)
    assert [one.at for one in found] == sorted(one.at for one in found)


@req("C20")
def test_every_line_of_the_form_for_programs_is_an_object() -> None:
    lines = [line for line in said("json") if not line.startswith("java")]
    for line in lines:
        told: dict[str, Any] = json.loads(line)
        assert list(told) == ["at", "level", "logger", "message"]
    assert len(lines) == 3


@req("C20")
def test_entries_are_chosen_by_table_and_level() -> None:
    found = list(entries(said("")))

    def messages(table: str = "", level: str = "") -> list[str]:
        return [one.message.splitlines()[0][:20] for one in chosen(found, table, level)]

    assert len(messages()) == 3
    assert messages("shop.orders") == ["shop.orders: 3 rows", "shop.orders and shop"]
    assert messages("shop.order") == []
    assert messages("shop.order_items") == ["shop.orders and shop"]
    assert messages("orders") == []
    assert messages("shop.items") == ["a turn failed"]
    assert messages(level="warning") == ["shop.orders and shop", "a turn failed"]
    assert messages("shop.orders", "error") == []
    # At the end of a sentence a table is one all the same.
    assert messages_of("nothing of public.t.", "public.t")
    assert not messages_of("nothing of public.t.x", "public.t")


def messages_of(line: str, table: str) -> list[str]:
    return [one.message for one in chosen(entries([line]), table)]


@req("C20")
def test_words_without_any_form_are_kept_and_pass_for_errors() -> None:
    lines = ["the JVM could not start", "  for lack of memory", '{"at": broken']
    (one, broken) = entries(lines)
    assert one.text == "\n".join(lines[:2])
    assert broken.text == lines[2]
    assert list(chosen([one, broken], level="error")) == [one, broken]


def test_the_process_of_the_tests_logs_as_before() -> None:
    assert logging.getLogger("headrace").handlers == []
