"""``make bench-docs``: writes docs/benchmarks.md and its plots from the results, and nothing else.

In: benchmarks/results/*.json. Out: a page with each summary beside its goals, the medians behind it, and first of all
the cases we lose; and the plots that it shows. ``--check`` says whether all of it is in step and changes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.goals import figure
from benchmarks.harness import RESULTS, median
from benchmarks.plots import plots

__all__ = ["PAGE", "PLOTS", "losses", "read_results", "render", "written"]

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PLOTS = PAGE.parent / "plots"

_HEAD = """# Benchmarks

Written by `make bench-docs` from `benchmarks/results/*.json`; do not edit. Each result names the commit, the
machine and the sizes it was measured with, and holds every single run. Ratios are medians of pairs measured in turn
in one run; bigger is better unless the goal says otherwise. Where a figure stands for several loads it is the worst
of them.
"""

# What tells the runs of a result apart, in the order of the columns.
_KEYS = (
    "part",
    "server",
    "scenario",
    "load",
    "transport",
    "rate",
    "consumers",
    "mode",
    "heap",
    "contender",
)
_NOT_MEASURED = {*_KEYS, "round", "changes", "rows", "events"}

Result = Mapping[str, Any]


def read_results(folder: Path = RESULTS) -> dict[str, Result]:
    """Return every kept result by name."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def losses(results: Mapping[str, Result]) -> list[str]:
    """Return a line for every goal that is missed and every ratio to a peer below 1."""
    lines = []
    for name, result in results.items():
        for metric, value in result["summary"].items():
            known = figure(name, metric)
            met = known.is_met(value)
            # What a day does to itself is no ratio to anybody else.
            behind = "_vs_" in metric and not metric.endswith("_vs_early") and value < 1
            if met is False or behind:
                goal = f", goal {known.goal}" if known.goal else ""
                meaning = f": {known.meaning}" if known.meaning else ""
                lines.append(f"- {name}, `{metric}` = {_number(value)}{goal}{meaning}")
    return lines


def render(results: Mapping[str, Result]) -> str:
    """Return the page."""
    lost = losses(results) or ["None in the results that are kept."]
    parts = [_HEAD, "## What we lose\n\n" + "\n".join(lost) + "\n"]
    drawn = plots(results)
    for name, result in results.items():
        shown = [
            f"![{title}]({PLOTS.name}/{file})"
            for file, (title, _) in drawn.items()
            if file.startswith(f"{name}_")
        ]
        parts.append(_section(name, result, shown))
    return "\n".join(parts)


def written(results: Mapping[str, Result]) -> dict[Path, str]:
    """Return the page and its plots by the files that they are kept in."""
    drawn = {PLOTS / file: text for file, (_, text) in plots(results).items()}
    return {PAGE: render(results), **drawn}


def _section(name: str, result: Result, shown: Sequence[str]) -> str:
    machine = result["machine"]
    where = (
        f"{result['date'][:10]}, commit `{result['commit'][:12]}`, {machine['cores']} cores of "
        f"{machine['processor']}, {machine['memory_gib']} GiB, Python {machine['python']}, "
        f"load {machine['load_before']} before."
    )
    lines = [f"## {name}", "", where, ""]
    lines += _sizes(result["sizes"])
    lines += [line for plot in shown for line in ("", plot)]
    lines += ["", "| figure | value | goal | met | meaning |", "|---|---:|---|---|---|"]
    for metric, value in result["summary"].items():
        known = figure(name, metric)
        met = {True: "yes", False: "**no**", None: ""}[known.is_met(value)]
        lines.append(f"| `{metric}` | {_number(value)} | {known.goal} | {met} | {known.meaning} |")
    lines += ["", *_medians(result["runs"])]
    failed = [run for run in result["runs"] if "failed" in run]
    lines += [f"- no figure: {_about(run)}: {run['failed']}" for run in failed]
    return "\n".join(lines).rstrip("\n") + "\n"


def _sizes(sizes: Mapping[str, Any]) -> list[str]:
    plain = [f"{key} {_text(value)}" for key, value in sizes.items() if not isinstance(value, dict)]
    lines = ["Measured with " + ", ".join(plain) + "."]
    for key, value in sizes.items():
        if isinstance(value, dict):
            lines += ["", f"{key.replace('_', ' ')}:", ""]
            lines += [f"- `{name}`: {_text(text)}" for name, text in value.items()]
    return lines


def _medians(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return tables of medians, one for each part whose runs measured the same."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        if "contender" in run and "failed" not in run:
            groups.setdefault(tuple(run.get(key) for key in _KEYS), []).append(run)
    by_part: dict[Any, list[tuple[tuple[Any, ...], list[Mapping[str, Any]]]]] = {}
    for key, some in groups.items():
        by_part.setdefault(key[0], []).append((key, some))
    lines: list[str] = []
    for part, rows in by_part.items():
        lines += [f"### {part}", ""] if part else []
        lines += [*_table(rows), ""]
    return lines


def _table(rows: Sequence[tuple[tuple[Any, ...], Sequence[Mapping[str, Any]]]]) -> list[str]:
    keys = [
        at
        for at, name in enumerate(_KEYS)
        if name != "part" and any(k[at] is not None for k, _ in rows)
    ]
    measured = list(
        dict.fromkeys(
            field
            for _, some in rows
            for run in some
            for field, value in run.items()
            if field not in _NOT_MEASURED and isinstance(value, int | float)
        )
    )
    names = [_KEYS[at] for at in keys]
    lines = [
        "| "
        + " | ".join([*names, "runs", *(field.replace("_", " ") for field in measured)])
        + " |",
        "|" + "---|" * len(names) + "---:|" * (1 + len(measured)),
    ]
    for key, some in rows:
        cells = [_text(key[at]) if key[at] is not None else "" for at in keys]
        values = [median(some, field) for field in measured]
        shown = ["" if value is None else _number(value) for value in values]
        lines.append("| " + " | ".join([*cells, str(len(some)), *shown]) + " |")
    return lines


def _about(run: Mapping[str, Any]) -> str:
    return " ".join(str(run[key]) for key in _KEYS if key in run)


def _text(value: Any) -> str:
    return _number(value) if isinstance(value, int | float) else str(value)


def _number(value: float) -> str:
    """Return a number with as many digits as it deserves."""
    if isinstance(value, int) or (value == int(value) and abs(value) >= 100):
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or say that it is out of step."""
    parser = argparse.ArgumentParser(
        prog="make bench-docs", description="Write docs/benchmarks.md from the kept results."
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 when it differs"
    )
    given = parser.parse_args(arguments)
    wanted = written(read_results())
    held = {file: file.read_text(encoding="utf-8") for file in wanted if file.exists()}
    left_over = sorted(set(PLOTS.glob("*.svg")) - set(wanted))
    if held == wanted and not left_over:
        print(f"{PAGE.name} and its plots are in step with the results")
        return 0
    if given.check:
        print(
            f"{PAGE.name} or a plot differs from the results: run make bench-docs", file=sys.stderr
        )
        return 1
    PLOTS.mkdir(exist_ok=True)
    for file, text in wanted.items():
        file.write_text(text, encoding="utf-8")
    for file in left_over:
        file.unlink()
    print(f"{PAGE.name} and {len(wanted) - 1} plots written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
