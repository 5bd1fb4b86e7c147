"""From single runs to the figures that stand for them: the worst load counts, and so does every pair."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import bench_chunks, capture_summary
from benchmarks.harness import median, paired, select

Record = dict[str, Any]


def backlog(
    load: str, contender: str, rates: list[int], transport: str = "tcp", **more: Any
) -> list[Record]:
    return [
        {
            "part": "backlog",
            "load": load,
            "transport": transport,
            "contender": contender,
            "round": round_,
            "rows_per_s": rate,
            "cpu_s_per_million": 1e6 / rate / 10,
            "rss_mib": 100.0,
            "start_s": 1.0,
            **more,
        }
        for round_, rate in enumerate(rates)
    ]


def test_a_ratio_is_the_median_of_pairs_of_one_round() -> None:
    ours = backlog("w2", "headrace", [100, 400, 90])
    theirs = backlog("w2", "pg_recvlogical", [100, 200, 100])
    assert paired(ours, theirs, "rows_per_s") == 1.0
    # The ratio of the medians would be the same here; of the first and last round alone it is not.
    assert paired(ours[:1] + ours[2:], theirs, "rows_per_s") == pytest.approx(0.95)
    assert paired(ours, [], "rows_per_s") is None
    assert median(ours, "steady_rows_per_s") is None


def test_the_worst_narrow_load_and_transport_stands_for_all() -> None:
    records = [
        *backlog("w2", "headrace", [200]),
        *backlog("w2", "pg_recvlogical", [100]),
        *backlog("w2", "headrace", [70], "unix"),
        *backlog("w2", "pg_recvlogical", [100], "unix"),
        *backlog("w4", "headrace", [40]),
        *backlog("w4", "pg_recvlogical", [100]),
    ]
    found = capture_summary.summarise(records)
    assert found["w2_tcp_vs_pg_recvlogical"] == 2.0
    assert found["narrow_vs_pg_recvlogical"] == pytest.approx(0.7)
    assert found["wide_vs_pg_recvlogical"] == pytest.approx(0.4)


def test_a_load_that_the_server_alone_takes_time_for_is_told_apart() -> None:
    records = [
        # 200 a second at 5,000 s of the server for a million: it is at work all the time.
        *backlog("w2", "headrace", [200, 200], "unix", server_cpu_s_per_million=5_000.0),
        *backlog("w2", "bare client", [250], "unix"),
        *backlog("w4", "headrace", [100], "unix", server_cpu_s_per_million=2_500.0),
        *backlog("w3f", "headrace", [10], "unix"),
    ]
    found = capture_summary.summarise(records)
    assert found["w2_unix_server_share"] == pytest.approx(1.0)
    assert found["w4_unix_server_share"] == pytest.approx(0.25)
    assert "w3f_unix_server_share" not in found
    assert found["cpu_s_per_million_rows_unix"] == pytest.approx(500)
    assert found["cpu_s_per_million_rows_unix_bare"] == pytest.approx(400)


def test_debezium_is_met_at_its_best_setting() -> None:
    records = [
        *backlog("w2", "headrace", [300]),
        *backlog("w2", "debezium connect", [100], steady_rows_per_s=140),
        *backlog("w2", "debezium connect-default", [120], steady_rows_per_s=130),
        *backlog("w2", "debezium json", [50]),
        *backlog("w2", "debezium json-plain", [60]),
    ]
    found = capture_summary.summarise(records)
    assert found["narrow_vs_debezium_connect"] == 2.5
    assert found["narrow_vs_debezium_connect_steady"] == pytest.approx(300 / 140)
    assert found["narrow_vs_debezium_json"] == 5.0


def test_the_smallest_heap_that_keeps_the_rate_is_the_one_that_counts() -> None:
    heaps = {"4g": (100, 900.0), "256m": (96, 300.0), "64m": (50, 120.0)}
    records = backlog("w2", "headrace", [100]) + [
        {
            "part": "heap",
            "load": "w2",
            "contender": "debezium connect-default",
            "round": 0,
            "heap": heap,
            "rows_per_s": rate,
            "rss_mib": memory,
        }
        for heap, (rate, memory) in heaps.items()
    ]
    found = capture_summary.summarise(records)
    assert found["debezium_smallest_rss_mib"] == 300.0
    assert found["memory_debezium_over_ours"] == 3.0


def test_results_use_the_agreed_names() -> None:
    capture = [
        *backlog("w2", "headrace", [300]),
        *backlog("w2", "pg_recvlogical", [300]),
        *backlog("w4", "headrace", [300]),
        *backlog("w4", "pg_recvlogical", [300]),
        *backlog("w2", "debezium connect", [100], steady_rows_per_s=140),
        {"part": "rates", "contender": "headrace", "round": 0, "rate": 1000}
        | {"p50_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0},
    ]
    assert {
        "narrow_vs_pg_recvlogical",
        "wide_vs_pg_recvlogical",
        "cpu_s_per_million_rows",
        "narrow_vs_debezium_connect",
        "rss_mib",
        "p99_ms_1000tps",
    } <= set(capture_summary.summarise(capture))
    chunks = [
        {"load": load, "contender": contender, "round": 0, "rows_per_s": 100}
        | {"p99_ms_before": 2.0, "p99_ms_during": 3.0}
        for load in ("idle", "steady")
        for contender in ("headrace", "adbc", "selects", "debezium signals-1024")
    ]
    found = bench_chunks.summarise(chunks)
    assert found["log_p99_ratio_during_dump"] == found["log_p99_ratio_during_selects"] == 1.5
    assert {"idle_vs_adbc", "idle_vs_debezium_incremental"} <= set(found)


def test_runs_are_chosen_by_every_field() -> None:
    runs = backlog("w2", "headrace", [1]) + backlog("w4", "headrace", [2])
    assert [run["rows_per_s"] for run in select(runs, load="w4", contender="headrace")] == [2]
