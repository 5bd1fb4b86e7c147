"""The harness on a real server: what a contender is charged for is what was played."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import (
    bench_apply,
    bench_apply_memory,
    bench_beside,
    bench_capture,
    bench_chain,
    bench_chunks,
    bench_control,
    bench_fanout,
    bench_growth,
    bench_memory,
    bench_mysql,
    bench_relay,
    bench_sender,
    contenders,
    harness,
    latency,
)
from benchmarks.debezium import jars
from benchmarks.processes import Child, anonymous_mib
from benchmarks.server import BenchServer
from benchmarks.workloads import WORKLOADS, record
from headrace.sources.postgres.lsn import parse_lsn
from headrace.spark.jars import parse_lock


@pytest.fixture(scope="module")
def server() -> Iterator[BenchServer]:
    with BenchServer() as running:
        running.start_empty()
        yield running


@pytest.mark.postgres
def test_both_read_the_same_stretch_again_and_again(server: BenchServer) -> None:
    # Long enough for the server to be asked, every 20 ms, how it is being read.
    changes = 100_000
    region = record(server, WORKLOADS["w2"], changes)
    assert region.changes == changes
    for transport in ("unix", "tcp"):
        # Raises when the change log does not hold exactly what was played.
        ours, options = contenders.headrace(server, region, transport)
        theirs = contenders.pg_recvlogical(server, region, transport, options)
        bare = contenders.bare(server, region, transport)
        assert 0 < bare["run_s"] < bare["process_s"]
        assert "proto_version" in options
        assert ours["changes"] == theirs["changes"] == changes
        assert 0 < ours["run_s"] < ours["process_s"]
        assert ours["rss_mib"] > 10
    assert server.value("SELECT count(*) FROM pg_replication_slots") == 1


@pytest.mark.postgres
def test_a_bare_client_sees_every_commit_after_it_was_made(server: BenchServer) -> None:
    latency.prepare(server)
    found = latency.bare_latency(server, 0, 3)
    # None is left out, and the clock of none lies after the moment at which it was read.
    assert found["events"] == 20
    assert 0 < found["p50_ms"] < 3000


@pytest.mark.postgres
def test_a_region_ends_between_small_transactions(server: BenchServer) -> None:
    server.run("CREATE TABLE small (id int PRIMARY KEY)")
    server.begin_region("small", ("small",))
    before = parse_lsn(server.value("SELECT pg_current_wal_insert_lsn()"))
    server.run("INSERT INTO small SELECT generate_series(1, 10)")
    region = server.end_region("small", ("small",), 10)
    assert before < region.until < parse_lsn(server.value("SELECT pg_current_wal_flush_lsn()"))
    server.drop_slot("small")


def test_a_child_is_charged_for_its_own_memory_and_time() -> None:
    code = (
        "import sys; b = bytearray(b'x') * (64 << 20); print('held', flush=True); sys.stdin.read()"
    )
    child = Child([sys.executable, "-c", code])
    child.until_said("held", 60)
    child.until(lambda: anonymous_mib(child.pid) >= 64, 60, "its memory is counted")
    usage = child.end()
    assert 64 <= usage.rss_mib < 128
    assert 0 < usage.cpu_s < usage.wall_s + 1


def test_a_child_that_fails_is_no_figure() -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        Child.run([sys.executable, "-c", "raise SystemExit(3)"], 60)


def test_a_benchmark_that_is_stopped_comes_to_what_keeps_its_figures() -> None:
    measured = []
    handler = signal.getsignal(signal.SIGTERM)
    with harness.until_stopped(harness.Steps("test", 2)):
        measured.append(1)
        signal.raise_signal(signal.SIGTERM)
        measured.append(2)
    assert measured == [1]
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.parametrize("connector", jars.CONNECTORS)
def test_the_lock_holds_one_version_of_everything_debezium_needs(connector: str) -> None:
    locked = parse_lock(jars.lock(connector).read_text(encoding="utf-8"))
    own = {jar.coordinate for jar in locked if jar.coordinate.startswith("io.debezium:debezium-")}
    version = jars.version(connector)
    assert {coordinate.rpartition(":")[2] for coordinate in own} == {version}
    assert f"io.debezium:debezium-connector-{connector}:{version}" in own
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in locked)
    assert len({jar.file_name for jar in locked}) == len(locked)


@pytest.mark.parametrize(
    "bench",
    [
        bench_apply,
        bench_apply_memory,
        bench_beside,
        bench_capture,
        bench_chain,
        bench_chunks,
        bench_control,
        bench_fanout,
        bench_growth,
        bench_memory,
        bench_mysql,
        bench_relay,
        bench_sender,
    ],
)
def test_every_benchmark_explains_itself(bench: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["--help"])  # type: ignore[attr-defined]
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "--quick" in said
    assert "make bench-" in said


@pytest.mark.long
@pytest.mark.postgres
def test_a_quick_run_leaves_a_result_of_the_agreed_form(tmp_path: Path) -> None:
    arguments = [
        "--quick",
        "--without-debezium",
        "--loads",
        "w2",
        "w4",
        "w5",
        "--out",
        str(tmp_path),
    ]
    assert bench_capture.main(arguments) == 0
    arguments = ["--quick", "--without-debezium", "--without-adbc", "--out", str(tmp_path)]
    assert bench_chunks.main(arguments) == 0
    assert bench_memory.main(["--quick", "--out", str(tmp_path)]) == 0
    for name, metric in (
        ("capture", "narrow_vs_pg_recvlogical"),
        ("chunks", "log_p99_ratio_during_dump"),
        ("memory", "open_rss_mib"),
    ):
        result = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        assert list(result) == ["commit", "date", "machine", "seed", "sizes", "runs", "summary"]
        assert result["summary"][metric] > 0


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.spark
def test_the_whole_chain_and_batches_beside_others_can_be_tried(tmp_path: Path) -> None:
    assert bench_chain.main(["--quick", "--out", str(tmp_path)]) == 0
    assert bench_apply.main(["--quick", "--out", str(tmp_path)]) == 0
    assert bench_growth.main(["--quick", "--out", str(tmp_path)]) == 0
    assert bench_apply_memory.main(["--quick", "--out", str(tmp_path)]) == 0
    for name, metric in (
        ("chain", "changes_per_s"),
        ("apply_memory", "10k_python_mib"),
        ("apply", "uniform_10k_vs_delta_rs"),
        ("growth", "newest_10k_600k_rows_probe_share"),
    ):
        result = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        assert result["summary"][metric] > 0


@pytest.mark.long
def test_the_relay_can_be_measured(tmp_path: Path) -> None:
    assert bench_relay.main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "relay.json").read_text(encoding="utf-8"))
    assert result["summary"]["p50_ms_4x500"] > 0
    assert result["summary"]["idle_consumers"] == 50


@pytest.mark.long
@pytest.mark.postgres
def test_what_a_capture_loses_can_be_measured(tmp_path: Path) -> None:
    assert bench_beside.main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "beside.json").read_text(encoding="utf-8"))
    assert result["summary"]["capture_consumers_vs_burners"] > 0


@pytest.mark.postgres
def test_what_the_server_does_can_be_measured(tmp_path: Path) -> None:
    assert bench_sender.main(["--quick", "--loads", "w1", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "sender.json").read_text(encoding="utf-8"))["summary"]
    assert found["w1_vs_pg_recvlogical"] > 0
    for beside in ("", "_pg_recvlogical", "_bare"):
        shares = [found[f"w1_sender_{share}{beside}"] for share in ("runs", "ready", "waits")]
        assert sum(shares) == pytest.approx(1, abs=0.01)


def test_what_a_relay_sends_can_be_measured(tmp_path: Path) -> None:
    assert bench_fanout.main(["--quick", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "fanout.json").read_text(encoding="utf-8"))
    for metric in ("total_vs_arrow_flight", "vs_bare_sockets_2", "filtered_bytes_less"):
        assert result["summary"][metric] > 0


@pytest.mark.long
def test_binary_logs_can_be_measured(tmp_path: Path) -> None:
    arguments = ["--quick", "--servers", "mariadb", "--loads", "narrow", "--out", str(tmp_path)]
    assert bench_mysql.main([*arguments, "--without", "java-connector", "debezium"]) == 0
    result = json.loads((tmp_path / "mysql.json").read_text(encoding="utf-8"))
    for metric in (
        "mariadb_narrow_vs_raw",
        "mariadb_narrow_vs_go_mysql",
        "mariadb_narrow_vs_python_mysql_replication",
        "mariadb_narrow_into_log_rows_per_s",
        "mariadb_chunks_vs_connectorx",
        "mariadb_chunks_vs_drain",
        "mariadb_drain_vs_connectorx",
        "mariadb_chunks_waiting_share",
    ):
        assert result["summary"][metric] > 0
