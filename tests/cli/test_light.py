"""headrace installed without its extras: what consumers need works, and what does not says what is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

from tests.changelog.windows import TABLE, window
from tests.client.logs import LogFolder

ROOT = Path(__file__).parents[2]

WITHOUT = """
import sys
forbidden = set(sys.argv.pop(1).split(","))
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in forbidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def installed_by(requirements: list[str]) -> set[str]:
    """Return the distributions that come with these, extras aside."""
    found: set[str] = set()
    wanted = [name_of(each) for each in requirements]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            try:
                needs = requires(name) or []
            except PackageNotFoundError:
                # For another platform.
                needs = []
            wanted += [name_of(each) for each in needs if "extra ==" not in each]
    return found


def absent() -> str:
    """Return the top-level modules of this environment that a light installation lacks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    there = installed_by(project["dependencies"]) | {"headrace"}
    modules = packages_distributions()
    return ",".join(
        module
        for module, owners in modules.items()
        if not any(name_of(owner) in there for owner in owners)
    )


def light(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that finds only what a light installation has."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, absent(), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_blocked_process_has_no_platform_at_all() -> None:
    for module in ("psycopg", "pyspark", "polars", "starlette", "sqlalchemy"):
        assert f"No module named '{module}'" in light(f"import {module}").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["version"],
        ["run", "--help"],
        ["tail", "--help"],
        ["consume", "--help"],
        ["serve", "--help"],
    ],
)
def test_commands_answer_without_the_platform(arguments: list[str]) -> None:
    done = light("from headrace.cli.main import app; app()", *arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["headrace.client", "headrace.outputs"])
def test_what_consumers_import_needs_no_platform(module: str) -> None:
    done = light(f"import {module}")
    assert done.returncode == 0, done.stderr


def test_changes_are_shown_and_consumed_without_the_platform(
    log: LogFolder, relay: str, tmp_path: Path
) -> None:
    log.register(TABLE)
    log.append(window(1))
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\n"
        "source: {type: postgres, url: 'postgresql://u@h/db', tables: ['public.*']}\n"
        "target: {type: delta, path: ./lake}\n"
        f"relay: {{listen: '{relay.removeprefix('http://')}'}}\n"
    )
    up = ("--from", "oldest", "--upto", "newest")
    for words in (
        ("tail", relay, "--format", "json", *up),
        ("tail", str(file), "--format", "json", *up),
        ("consume", "ndjson", relay, *up),
    ):
        done = light("from headrace.cli.main import app; app()", *words)
        assert done.returncode == 0, done.stderr
        assert '"scn":1,"ord":1' in done.stdout


def test_a_control_plane_is_asked_without_the_platform(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("name: shop\n")
    nobody = ("--server", "http://127.0.0.1:1")
    for words in (("replicators", *nobody), ("deploy", str(file), *nobody)):
        done = light("from headrace.cli.main import app; app()", *words)
        assert done.returncode == 2
        assert "gives no answer" in done.stderr


def test_a_command_that_needs_the_platform_says_how_to_get_it(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("name: shop\n")
    done = light("from headrace.cli.main import app; app()", "run", str(file))
    assert done.returncode == 2
    assert "which is not installed" in done.stderr
    assert "pip install 'headrace[platform]'" in done.stderr
    assert "Traceback" not in done.stderr
