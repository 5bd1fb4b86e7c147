"""docs/benchmarks.md says what the kept results say, the lost cases first."""

from __future__ import annotations

from typing import Any

from benchmarks.goals import FIGURES
from benchmarks.page import PAGE, losses, read_results, render


def result(**summary: float) -> dict[str, Any]:
    return {
        "commit": "0123456789abcdef",
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {
            "cores": 2,
            "processor": "a processor",
            "memory_gib": 8,
            "python": "3.11",
            "load_before": 0.1,
        },
        "seed": 1,
        "sizes": {"rows": 1000, "settings": {"connect": "what is set"}},
        "runs": [
            {"load": "w2", "contender": "headrace", "round": 0, "rows_per_s": 1234},
            {"load": "w2", "contender": "headrace", "round": 1, "rows_per_s": 1236},
        ],
        "summary": summary,
    }


def test_the_page_is_in_step_with_the_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(read_results())


def test_a_missed_goal_and_a_ratio_below_one_are_named_first() -> None:
    results = {"capture": result(narrow_vs_pg_recvlogical=0.97, rss_mib=100, wide_vs_any=0.5)}
    lost = losses(results)
    assert len(lost) == 2
    assert "`narrow_vs_pg_recvlogical` = 0.97, goal ≥ 1" in lost[0]
    assert "`wide_vs_any` = 0.5" in lost[1]
    page = render(results)
    assert page.index("0.97, goal") < page.index("## capture")
    assert losses({"capture": result(narrow_vs_pg_recvlogical=1.2, rss_mib=100)}) == []


def test_every_figure_and_the_medians_behind_it_are_shown() -> None:
    page = render({"new": result(never_described=42.5)})
    assert "| `never_described` | 42.5 |  |  |  |" in page
    assert "| w2 | headrace | 2 | 1,235 |" in page
    assert "`0123456789ab`" in page
    assert "- `connect`: what is set" in page


def test_goals_stand_for_either_direction() -> None:
    assert FIGURES["capture"]["rss_mib"].is_met(513) is False
    assert FIGURES["capture"]["narrow_vs_debezium_json"].is_met(3.0) is True
    assert FIGURES["freshness"]["delta_p50_s"].is_met(1.0) is None
