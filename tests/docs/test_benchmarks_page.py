"""docs/benchmarks.md says what the kept results say, the lost cases first."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

from benchmarks.chart import Axis
from benchmarks.goals import FIGURES
from benchmarks.harness import median
from benchmarks.page import PAGE, PLOTS, losses, read_results, render, written
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


def test_the_page_and_its_plots_are_in_step_with_the_results() -> None:
    wanted = written(read_results())
    assert PAGE in wanted
    assert set(PLOTS.iterdir()) == set(wanted) - {PAGE}
    for file, text in wanted.items():
        assert file.read_text(encoding="utf-8") == text


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


RELAY, FANOUT = "relay", "fanout"
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


@req("D66")
def test_latency_of_one_and_of_forty_consumers_is_kept_and_meets_its_goals() -> None:
    found = read_results()[RELAY]["summary"]
    for name in ("p50_ms_1x1000", "p50_ms_40x1000", "p99_ms_40x1000"):
        most = FIGURES[RELAY][name].most
        assert most is not None
        assert 0 < found[name] <= most, name


@req("D128")
def test_throughput_by_consumers_and_what_it_costs_the_relay_are_published() -> None:
    runs = [run for run in read_results()[FANOUT]["runs"] if run["part"] == "throughput"]
    ours = {run["consumers"] for run in runs if run["contender"] == "headrace"}
    assert {1, 10} <= ours == {run["consumers"] for run in runs if run["contender"] != "headrace"}
    assert all(run["mb_per_s"] > 0 and run["relay_cpu_s_per_gb"] > 0 for run in runs)
    assert {"relay_cpu_s_per_gb", "mb_per_s_total", "total_vs_arrow_flight"} <= figures_of(FANOUT)


SVG = "{http://www.w3.org/2000/svg}"


def points_of(name: str) -> dict[str, dict[float, float]]:
    """Return the points of each line of a plot, as they are told to whoever points at them."""
    page = PAGE.read_text(encoding="utf-8")
    assert f"({PLOTS.name}/{name})" in page
    found: dict[str, dict[float, float]] = {}
    tree = ET.parse(PLOTS / name)
    for dot in tree.iter(f"{SVG}circle"):
        said = dot.findtext(f"{SVG}title") or ""
        line, value, at = re.fullmatch(r"(.+): ([\d.,]+) at ([\d.,]+)", said).groups()  # type: ignore[union-attr]
        found.setdefault(line, {})[_number(at)] = _number(value)
    return found


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def rounded(value: float | None) -> float:
    assert value is not None
    return _number(f"{value:,g}")


def runs_of(result: str = RELAY, **wanted: object) -> list[dict[str, Any]]:
    return [
        run
        for run in read_results()[result]["runs"]
        if all(run.get(name) == value for name, value in wanted.items())
    ]


@req("D15", "D127")
def test_latency_is_drawn_against_consumers_for_each_rate_and_either_way_of_asking() -> None:
    for mode in ("push", "pull"):
        runs = runs_of(part="latency", mode=mode)
        assert points_of(f"relay_latency_{mode}.svg") == {
            f"{share}, {rate:,} events/s": {
                count: rounded(
                    median(
                        [run for run in runs if (run["rate"], run["consumers"]) == (rate, count)],
                        f"{share}_ms",
                    )
                )
                for count in {run["consumers"] for run in runs}
            }
            for rate in RATES
            for share in ("p50", "p99")
        }


@req("D127")
def test_throughput_is_drawn_against_consumers() -> None:
    counts = {run["consumers"] for run in runs_of(FANOUT, part="throughput")}
    assert points_of("fanout_throughput.svg") == {
        name.replace("_", " "): {
            count: rounded(
                median(
                    runs_of(FANOUT, part="throughput", contender=name, consumers=count),
                    "mb_per_s",
                )
            )
            for count in counts
        }
        for name in ("headrace", "arrow_flight", "bare_sockets")
    }


def test_a_line_is_drawn_where_its_values_lie() -> None:
    decades = Axis.decades("ms", [0.8, 9_957.0])
    assert decades.ticks == (0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0)
    assert round(decades.share(100.0), 9) == 0.6
    assert Axis.decades("ms", [3.0, 4.0]).ticks == (1.0, 10.0)
    assert Axis.decades("ms", [10.0]).ticks == (10.0, 100.0)
    plain = Axis.from_zero("MB/s", [902.3, 1_828.0])
    assert plain.ticks[0] == 0
    assert plain.ticks[-2] < 1_828 <= plain.ticks[-1]
    assert plain.share(plain.ticks[-1] / 4) == 0.25
    # The page's own plot: what is larger stands higher, what is more lies further to the right.
    tree = ET.parse(PLOTS / "fanout_throughput.svg")
    line = next(tree.iter(f"{SVG}polyline")).attrib["points"].split()
    places = [tuple(map(float, place.split(","))) for place in line]
    values = points_of("fanout_throughput.svg")["headrace"]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    by_height = sorted(range(len(places)), key=lambda i: -places[i][1])
    assert by_height == sorted(range(len(places)), key=lambda i: values[sorted(values)[i]])


@req("D16")
def test_how_many_idle_consumers_and_logs_one_relay_holds_is_published() -> None:
    (idle,) = (run for run in read_results()[RELAY]["runs"] if run["part"] == "idle")
    assert idle["heard_a_heartbeat"] == idle["held"] >= 2_000
    (logs,) = (run for run in read_results()[RELAY]["runs"] if run["part"] == "logs")
    assert logs["logs"] >= 1_000
    shown = {"idle_consumers", "idle_kib_each", "thousand_logs_mib", "thousand_logs_files"}
    assert shown <= figures_of(RELAY)
