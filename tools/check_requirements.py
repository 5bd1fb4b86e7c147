"""Hold docs/requirements.md and the tests together.

Every requirement has one row in the table of docs/requirements.md: id, text, and the tests that
prove it or the word ``open``. ``open: reason`` says why, behind tests: what is missing of the whole.
Tests name the ids they prove by ``@req("P35", …)``. Without options this fails when a test names an
id that the table does not have, or when the table calls an id done that no test names. With
``--write`` it fills in the last column, and keeps reasons as they are.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "requirements.md"
TESTS = ROOT / "tests"

OPEN = "open"
SHOWN_TESTS = 3

_REASON = re.compile(r"(?:^|; )open: (?P<reason>.+)$")
_ROW = re.compile(r"^\| (?P<id>[A-Z](?:-?\d+)) \| (?P<text>.*?) \| (?P<proof>[^|]*) \|$")


@dataclass(frozen=True, slots=True)
class Mark:
    """One place where a test names a requirement."""

    id: str
    test: str
    """``folder/test_file.py::name``, seen from the folder of tests."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check or rewrite; returns the exit status."""
    parser = argparse.ArgumentParser(description="Requirements against tests.")
    parser.add_argument("--write", action="store_true", help="fill in the column of tests")
    options = parser.parse_args(arguments)

    lines = TABLE.read_text(encoding="utf-8").splitlines()
    found_rows = [found for found in map(_ROW.match, lines) if found]
    rows = {found["id"]: found["proof"] for found in found_rows}
    marks, faults = collect(TESTS)
    times = Counter(found["id"] for found in found_rows)
    faults += [f"docs/requirements.md has {id_} twice" for id_, n in times.items() if n > 1]
    proofs: dict[str, list[str]] = defaultdict(list)
    for mark in marks:
        if mark.id not in rows:
            faults.append(f"{mark.test} names {mark.id}, which docs/requirements.md does not have")
        elif mark.test not in proofs[mark.id]:
            proofs[mark.id].append(mark.test)

    if options.write:
        TABLE.write_text("\n".join(rewritten(lines, proofs)) + "\n", encoding="utf-8")
    else:
        faults += [
            f"docs/requirements.md calls {id_} done, but no test names it"
            for id_, proof in rows.items()
            if not proofs.get(id_) and not _is_open(proof)
        ]
    for fault in faults:
        print(f"requirements: {fault}", file=sys.stderr)
    stale = sum(
        proof != shown(proofs.get(id_, ()), reason_of(proof)) for id_, proof in rows.items()
    )
    if stale and not options.write:
        print(f"requirements: {stale} rows are out of date: make requirements ARGS=--write")
    print(f"requirements: {len(rows)} in all, {sum(map(bool, proofs.values()))} with a test")
    return 1 if faults else 0


def known_ids(table: Path = TABLE) -> frozenset[str]:
    """Every id that the table has."""
    lines = table.read_text(encoding="utf-8").splitlines()
    return frozenset(found["id"] for found in map(_ROW.match, lines) if found)


def rewritten(lines: Sequence[str], proofs: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The table's lines with the last column brought up to date."""
    for line in lines:
        found = _ROW.match(line)
        if found:
            tests = proofs.get(found["id"], ())
            yield f"| {found['id']} | {found['text']} | {shown(tests, reason_of(found['proof']))} |"
        else:
            yield line


def shown(tests: Sequence[str], reason: str = "") -> str:
    """How the column of tests reads."""
    left = f"{OPEN}: {reason}" if reason else ""
    if not tests:
        return left or OPEN
    names = sorted(tests)
    text = ", ".join(f"`{name}`" for name in names[:SHOWN_TESTS])
    more = len(names) - SHOWN_TESTS
    text = f"{text} and {more} more" if more > 0 else text
    return f"{text}; {left}" if left else text


def reason_of(proof: str) -> str:
    """What a column of tests says of why something is open; empty where it says nothing."""
    found = _REASON.search(proof)
    return found["reason"] if found else ""


def _is_open(proof: str) -> bool:
    return proof == OPEN or proof.startswith(f"{OPEN}: ")


def collect(folder: Path) -> tuple[list[Mark], list[str]]:
    """Every mark in the Python files below a folder, and what is wrong with how it is written."""
    marks: list[Mark] = []
    faults: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            faults.append(f"{name}:{error.lineno} is not Python: {error.msg}")
            continue
        for scope, call in _marks_of(tree, name):
            for argument in call.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    marks.append(Mark(argument.value, scope))
                else:
                    faults.append(f"{name}:{call.lineno} names a requirement by other than text")
    return marks, faults


def _marks_of(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.Call]]:
    """Calls of ``req`` with the test they belong to."""
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{scope}::{child.name}"
        if isinstance(child, ast.Call) and _is_req(child.func):
            yield scope, child
        yield from _marks_of(child, inner)


def _is_req(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "req"
    return isinstance(function, ast.Attribute) and function.attr == "req"


if __name__ == "__main__":
    sys.exit(main())
