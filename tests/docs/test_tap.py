"""docs/tap.md says what the tap says: every kind with its fields."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from headrace.observe.tap.events import CONTRACT, OURS, Event
from headrace.observe.tap.schema import schema_of
from tests.requirements import req

PAGE = (Path(__file__).parents[2] / "docs" / "tap.md").read_text(encoding="utf-8")


def row_of(event: type[Event]) -> str:
    required = schema_of(event)["required"]
    own = [item.name.rstrip("_") for item in fields(event)]
    shown = ", ".join(f"`{name}`" + ("" if name in required else "?") for name in own)
    return f"| `{event.kind}` | {event.__doc__} | {shown} |"


@req("H20")
@pytest.mark.parametrize(
    ("title", "kinds"), [("Kinds of the contract", CONTRACT), ("Our own kinds", OURS)]
)
def test_every_kind_and_no_other_stands_on_the_page(
    title: str, kinds: tuple[type[Event], ...]
) -> None:
    section = PAGE.partition(f"\n### {title}\n")[2].partition("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [row_of(event) for event in kinds]
