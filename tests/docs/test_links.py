"""The maps lead somewhere: links, paths, tests and names in the documents exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import req

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")),
]
MAPS = ("docs/architecture.md", "docs/paper_map.md")

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_QUOTED = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"headrace(\.\w+)+")
_TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)(?:\[(\w+)\])?")
_PATH = re.compile(r"(?:src|tests|docs|tools)/[\w./-]*")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    return re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings}


@cache
def names_in(path: Path) -> frozenset[str]:
    """Every ``name`` and ``Class.name`` that a module defines."""
    found: set[str] = set()

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    collect(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign):
                found.update(prefix + t.id for t in node.targets if isinstance(t, ast.Name))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(prefix + node.target.id)

    collect(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


def is_defined(dotted: str) -> bool:
    """Whether a dotted name is a package, a module, or something that a module itself defines."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT / "src" / Path(*parts[:length])
        rest = ".".join(parts[length:])
        if path.with_suffix(".py").exists():
            return not rest or rest in names_in(path.with_suffix(".py"))
        if (path / "__init__.py").exists():
            return not rest
    return False


def faults_of(page: str) -> list[str]:
    """Return what a map quotes and nobody has."""
    faults = []
    for quoted in _QUOTED.findall(prose(page)):
        if test := _TEST.fullmatch(quoted):
            file, name, case = test.groups()
            there = (ROOT / file).exists() and name in names_in(ROOT / file)
            if not there or (case and not list((ROOT / file).parent.rglob(f"{case}.txt"))):
                faults.append(quoted)
        elif _NAME.fullmatch(quoted):
            if not is_defined(quoted):
                faults.append(quoted)
        elif _PATH.fullmatch(quoted) and not (ROOT / quoted).exists():
            faults.append(quoted)
    return faults


@req("H23")
@pytest.mark.parametrize("page", MAPS)
def test_everything_that_a_map_quotes_exists(page: str) -> None:
    assert faults_of(page) == []


@req("H23")
def test_every_row_of_the_paper_map_has_code_and_test() -> None:
    rows = [
        line
        for line in text_of("docs/paper_map.md").splitlines()
        if re.match(r"\| (step )?[\dA-Z]\w* \|", line)
    ]
    assert len(rows) > 20
    for row in rows:
        quoted = _QUOTED.findall(row)
        assert any(_NAME.fullmatch(q) for q in quoted), f"no code: {row}"
        assert any(_TEST.fullmatch(q) for q in quoted), f"no test: {row}"


@req("H23")
def test_every_step_of_the_paper_has_code_guard_and_test_and_every_difference_a_test() -> None:
    page = text_of("docs/paper_map.md")
    steps = re.findall(r"^\| step (\d) \|(.*)\|$", page, re.MULTILINE)
    assert [number for number, _ in steps] == [*"1234567"]
    for _, row in steps:
        said = [cell.strip() for cell in row.split("|")]
        assert len(said) == 4, row
        assert all(said), row
    _, _, differences = page.partition("## Realized differently")
    rows = re.findall(r"^\| [A-Z].*\|$", differences, re.MULTILINE)
    assert len(rows) > 10
    for row in rows:
        assert _TEST.search(row.split("|")[-2]), row
    # These three are read otherwise than they are written; the page must say so.
    assert {"P41", "P47", "P48"} <= set(re.findall(r"\(.*?(P\d\d).*?\)", differences))


@req("H23")
def test_a_name_or_test_that_does_not_exist_is_found() -> None:
    assert is_defined("headrace.watermark.reconciler.Reconciler.reconcile")
    assert not is_defined("headrace.watermark.reconciler.Reconciler.nothing")
    assert not is_defined("headrace.watermark.nothing")


@req("H23")
@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_somewhere(page: str) -> None:
    for link in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_every_decision_is_in_the_list() -> None:
    listed = text_of("docs/adr/README.md")
    for path in (ROOT / "docs" / "adr").glob("0*.md"):
        title = path.read_text(encoding="utf-8").splitlines()[0].partition(" ")[2].partition(" ")[2]
        assert f"| [{path.name[:4]}]({path.name}) | {title} |" in listed
