"""docs/benchmarks.md says what the kept results say, the lost cases first."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.goals import FIGURES
from benchmarks.page import PAGE, losses, read_results, render
from tests.requirements import req


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


RELAY = "relay"
COUNTS, RATES = (1, 10, 40, 100, 200), (100, 1_000, 2_000)


def figures_of(name: str) -> set[str]:
    """Return the names of the figures that the page shows of a result, with their values."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \| [\d.,]+ \|", section, re.M))


@req("D15")
def test_latency_from_relay_to_consumer_is_published_for_each_rate_and_count_of_consumers() -> None:
    names = {
        f"{since}{share}_ms_{count}x{rate}"
        for since in ("", "readable_")
        for share in ("p50", "p99")
        for count in COUNTS
        for rate in RATES
    }
    assert names <= figures_of(RELAY)


@req("D127", "F18")
def test_the_relay_is_measured_on_the_axes_of_the_paper() -> None:
    result = read_results()[RELAY]
    # The rows of 2.5 KB, give or take what stands beside the text.
    assert result["sizes"]["event_bytes"] == 2_500
    assert result["sizes"]["poll_s"] > 0
    cells = {
        (run["mode"], run["rate"], run["consumers"])
        for run in result["runs"]
        if run["part"] == "latency" and run["p50_ms"] > 0 and run["deliveries"] > 0
    }
    assert cells >= {("push", rate, count) for rate in RATES for count in COUNTS}
    assert cells >= {("pull", rate, count) for rate in RATES for count in COUNTS[:3]}


@req("D128")
def test_throughput_by_consumers_and_what_it_costs_the_relay_are_published() -> None:
    runs = [run for run in read_results()[RELAY]["runs"] if run["part"] == "throughput"]
    ours = {run["consumers"] for run in runs if run["contender"] == "headrace"}
    assert {1, 10} <= ours == {run["consumers"] for run in runs if run["contender"] != "headrace"}
    assert all(run["mb_per_s"] > 0 and run["relay_cpu_s_per_gb"] > 0 for run in runs)
    assert {"relay_cpu_s_per_gb", "mb_per_s_total", "total_vs_arrow_flight"} <= figures_of(RELAY)


@req("D16")
def test_how_many_idle_consumers_and_logs_one_relay_holds_is_published() -> None:
    (idle,) = (run for run in read_results()[RELAY]["runs"] if run["part"] == "idle")
    assert idle["heard_a_heartbeat"] == idle["held"] >= 2_000
    (logs,) = (run for run in read_results()[RELAY]["runs"] if run["part"] == "logs")
    assert logs["logs"] >= 1_000
    shown = {"idle_consumers", "idle_kib_each", "thousand_logs_mib", "thousand_logs_files"}
    assert shown <= figures_of(RELAY)
