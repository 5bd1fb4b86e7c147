"""``headrace explain``: every name that a person may meet is explained, in the words of the documents."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace
from headrace.cli.explained import explain, names
from headrace.cli.main import app
from headrace.errors import ConfigError, HeadraceError
from headrace.replicator.assess.kinds import CATALOGUE
from headrace.spark.notes import NOTES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/errors.md").read_text(encoding="utf-8")


def test_every_error_and_every_problem_is_explained() -> None:
    for module in pkgutil.walk_packages(headrace.__path__, "headrace."):
        if "__main__" not in module.name and "_native" not in module.name:
            importlib.import_module(module.name)
    raised = {HeadraceError}
    waiting = [HeadraceError]
    while waiting:
        below = waiting.pop().__subclasses__()
        raised |= set(below)
        waiting += below
    wanted = {
        kind.__name__
        for kind in raised
        if kind.__module__.startswith("headrace.") and not kind.__name__.startswith("_")
    }
    found = names()
    assert wanted | set(CATALOGUE) <= {one.name for one in found}
    assert len({one.name.lower() for one in found}) == len(found)
    assert all(
        one.meaning and one.then and one.belongs_to for one in found if one.name != "HeadraceError"
    )


def test_every_row_of_the_page_is_told_under_the_errors_that_it_names() -> None:
    told = {one.name: {case.what for case in one.cases} for one in names()}
    rows = [line for line in PAGE.splitlines() if re.match(r"\| (?!what |---)", line)]
    assert len(rows) > 100
    for row in rows:
        what, error = row.split(" | ")[:2]
        for name in re.findall(r"`([A-Z]\w+)`", error):
            assert what.removeprefix("| ").strip() in told[name], row


def test_an_error_comes_with_its_cases_whatever_its_letters() -> None:
    found = explain("slotlost")
    assert (found.name, found.sort) == ("SlotLost", "error")
    assert found.belongs_to == ("SourceError", "HeadraceError")
    assert "no longer exists" in found.meaning
    assert found.then.startswith("somebody has to act")
    assert found.cases
    assert all(case.next_step for case in found.cases)
    assert explain("SourceUnavailable").then == "headrace tries again by itself"


def test_a_note_of_a_status_is_explained_like_an_error() -> None:
    found = explain("targetchanged")
    assert (found.name, found.sort, found.belongs_to) == ("TargetChanged", "note", ("status",))
    assert "verify" in found.then
    assert found.cases
    assert {one.name for one in names() if one.sort == "note"} == set(NOTES)


@pytest.mark.parametrize(("asked", "near"), [("SlotLots", "SlotLost"), ("wal-levels", "wal-level")])
def test_a_name_that_nobody_knows_leads_to_the_nearest(asked: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        explain(asked)
    assert f"did you mean {near}" in caught.value.next_step


def test_the_command_says_it_in_text_and_in_json() -> None:
    run = CliRunner().invoke(app, ["explain", "ScnNotFound"])
    assert run.exit_code == 0
    assert "next step" in run.output
    assert "`" not in run.output
    one = json.loads(CliRunner().invoke(app, ["explain", "wal-level", "--json"]).output)
    assert (one["name"], one["sort"]) == ("wal-level", "problem")
    every = json.loads(CliRunner().invoke(app, ["explain", "--json"]).output)
    assert len(every) == len(names())
    listed = CliRunner().invoke(app, ["explain"]).output
    assert all(one["name"] in listed for one in every)
    refused = CliRunner().invoke(app, ["explain", "Nothing"])
    assert refused.exit_code == 2


def test_the_page_is_packed_beside_the_command() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    assert wheel["force-include"] == {"docs/errors.md": "headrace/cli/errors.md"}


def test_shells_can_be_taught_the_commands() -> None:
    # Which shell it is, the command sees from the processes above it.
    headrace = f"{sys.executable} -m headrace.cli.main"
    shell = ["bash", "-c", f"{headrace} --show-completion || exit 1; exit 0"]
    run = subprocess.run(shell, check=True, capture_output=True, text=True)
    assert "COMPLETE=complete_bash" in run.stdout
