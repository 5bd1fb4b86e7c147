"""docs/serving.md says what the control plane does: every page of its API, and what each command makes of each state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

from headrace.replicator.api.app import api
from headrace.replicator.api.people import Role
from headrace.replicator.control.lifecycle import PERMITTED, Command, State
from headrace.replicator.control.plane import ControlPlane

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def test_every_page_of_the_api_stands_there_and_no_other() -> None:
    # What is asked for is never called.
    paths = api(cast(ControlPlane, None)).openapi()["paths"]
    served = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    rows = re.findall(r"^\| (GET|PUT|POST|PATCH|DELETE) \| `([^`]+)` \| +(\w*) *\|", PAGE, re.MULTILINE)
    assert {(method, path) for method, path, _ in rows} == served
    assert len(rows) == len(served)
    assert {role for *_, role in rows} == {"", *(role.name.lower() for role in Role)}


def test_what_commands_make_of_states_is_what_the_page_says() -> None:
    head, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.partition("## The life of a replicator")[2].partition("\n- ")[0].splitlines()
        if line.startswith("| ") and "---" not in line
    )
    assert head[1:] == [command.value for command in Command]
    assert [row[0].partition(":")[0] for row in rows] == [state.value for state in State]
    for state, row in zip(State, rows, strict=True):
        for command, cell in zip(Command, row[1:], strict=True):
            found = PERMITTED.get((state, command))
            assert cell == (found[0].value if found else "-"), (state, command)
