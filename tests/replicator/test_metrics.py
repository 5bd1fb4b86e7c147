"""Numbers for Prometheus: what a picture says, in names that the guide has, in a form that Prometheus reads."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import ConfigError
from headrace.lake.counts import BOUNDS_S, Delays, TableCounts, Totals
from headrace.lake.frontier import Manifest, TableEntry
from headrace.observe.exposition import Family, text
from headrace.observe.status import ProcessState, ProcessStatus
from headrace.replicator.drops import Drop
from headrace.replicator.metrics import METRICS, families
from headrace.replicator.metrics_server import MetricsServer
from headrace.replicator.objective import Attainment
from headrace.replicator.observe_config import MetricsConfig
from headrace.replicator.picture import Picture, TablePicture
from headrace.sources.trigger.kept import KeptChanges
from tests.requirements import req

ROOT = Path(__file__).parents[2]

DELAYS = Delays().plus(np.array([0.05, 0.1, 0.3, 7.0, 1e6]))
ORDERS = TableCounts(9, 11, 12, 13, 1, 2, 14, 60, 7_000, 3, DELAYS)
STEPS = {"probe_s": 1.5, "write_s": 2.0, "commit_s": 0.5}
APPLY = ProcessStatus(
    "apply",
    1,
    ProcessState.RUNNING,
    1,
    {"batches": 4, "tables": {"public.orders": {"all_batches": STEPS}}},
)
KEPT = KeptChanges("kept", 5_000, 3, 8, 30, 400, 1.5, 2).to_json()
CAPTURE = ProcessStatus("capture", 2, ProcessState.FAILED, 1, {"changes": 77, "slot": KEPT})
PICTURE = Picture(
    (
        TablePicture("public.orders", "live", 5, 6, 70, 9, lag_s=2.5, counts=ORDERS),
        TablePicture("public.items", "waiting", 0, 0, 0, 0),
    ),
    captured_scn=20,
    covered_scn=21,
    frontier_scn=9,
    lag_changes=70,
    lag_s=2.5,
    log_bytes=1_000,
    log_budget_bytes=8_000,
    roles={"apply": APPLY, "capture": CAPTURE},
    frontier_changes=60,
    frontier=Manifest(
        9,
        3_000_000,
        {"public.orders": TableEntry(1, 9, 1, "live", counts=ORDERS)},
        4_000_000,
        60,
        Totals(DELAYS),
    ),
    objective=Attainment(0.99, 120.0, 86_400, 100, 98, 0),
    restarts={"apply": 2},
    drops=(Drop("public.items", 500.0, 3, 600, 0),),
)
LINE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? (\+Inf|-?[0-9.e+-]+)')


def read(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples of a page in the text form, which each has its kind announced."""
    found, kinds = {}, {}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kinds[name] = line.split()
        elif not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            assert re.sub("_(bucket|sum|count)$", "", name) in kinds or name in kinds, name
            pairs = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))
            assert (name, pairs) not in found
            found[name, pairs] = float(value)
    return found


def value(
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str
) -> float:
    return samples[name, frozenset({"replicator": "shop", **labels}.items())]


@req("C11", "C74", "C14")
def test_every_table_has_its_numbers_and_all_together_have_theirs() -> None:
    samples = read(text(families("shop", PICTURE)))
    wanted = {"inserts": 11, "updates": 12, "deletes": 13, "truncates": 1, "ddl": 2}
    wanted |= {"copied_rows": 14, "changes": 60, "bytes": 7_000, "errors": 3}
    for name, number in wanted.items():
        assert value(samples, f"headrace_{name}_total", table="public.orders") == number
        assert value(samples, f"headrace_{name}_total", table="public.items") == 0
    assert value(samples, "headrace_replicator_errors_total") == 3
    assert value(samples, "headrace_lag_changes", table="public.orders") == 70
    assert value(samples, "headrace_lag_seconds", table="public.orders") == 2.5
    assert value(samples, "headrace_table_phase", table="public.orders", phase="live") == 1
    assert value(samples, "headrace_table_phase", table="public.orders", phase="failing") == 0
    assert value(samples, "headrace_stage_up", stage="apply") == 1
    assert value(samples, "headrace_stage_up", stage="capture") == 0
    assert value(samples, "headrace_stage_restarts_total", stage="apply") == 2
    assert value(samples, "headrace_apply_seconds_total", table="public.orders", step="write") == 2
    assert value(samples, "headrace_slot_retained_bytes") == 5_000
    assert value(samples, "headrace_fetch_unread_transactions") == 3
    assert value(samples, "headrace_fetch_queries_total") == 30
    assert value(samples, "headrace_fetch_rows_total") == 400
    assert value(samples, "headrace_fetch_seconds_total") == 1.5
    assert value(samples, "headrace_fetch_slow_queries_total") == 2
    assert value(samples, "headrace_objective_attained") == 0.98
    assert value(samples, "headrace_objective_missed") == 1
    # What is not there has no number.
    assert (
        "headrace_lag_seconds",
        frozenset({("replicator", "shop"), ("table", "public.items")}),
    ) not in samples


def test_delays_are_a_histogram_whose_classes_hold_their_bounds() -> None:
    samples = read(text(families("shop", PICTURE)))
    for name, labels in (
        ("headrace_freshness_seconds", {"table": "public.orders"}),
        ("headrace_replicator_freshness_seconds", {}),
    ):
        shown = {
            bound: value(samples, f"{name}_bucket", le=bound, **labels)
            for bound in [f"{bound:g}" for bound in BOUNDS_S[:-1]] + ["86400", "+Inf"]
        }
        assert (shown["0.1"], shown["0.25"], shown["0.5"], shown["5"], shown["10"]) == (
            2,
            2,
            3,
            3,
            4,
        )
        assert (shown["86400"], shown["+Inf"]) == (4, 5)
        assert value(samples, f"{name}_count", **labels) == 5
        assert value(samples, f"{name}_sum", **labels) == 1_000_007.45


def test_delays_come_to_the_same_however_they_are_cut() -> None:
    delays = np.random.default_rng(1).exponential(30, 1_000)
    whole, parts = Delays().plus(delays), Delays()
    for part in np.array_split(delays, 37):
        parts = parts.plus(part)
    assert parts.counts == whole.counts
    assert parts.sum_s == pytest.approx(whole.sum_s, abs=0.1)
    assert whole.cumulative()[-1] == (float("inf"), 1_000)
    for bound, count in whole.cumulative():
        assert count == int((delays <= bound).sum())
    assert Delays.from_json(json.loads(json.dumps(whole.to_json()))) == whole


def test_every_metric_is_shown_with_the_labels_that_it_is_said_to_have() -> None:
    found = {family.name: family for family in families("shop", PICTURE, "plant")}
    assert list(found) == list(METRICS)
    for name, (kind, labels, said) in METRICS.items():
        assert (found[name].kind, found[name].help) == (kind, said)
        for sample in found[name].samples:
            assert set(sample.labels) - {"le"} == {"replicator", "namespace", *labels}
        assert name.endswith("_total") == (kind == "counter")


def test_a_replicator_that_never_ran_has_its_numbers_too() -> None:
    nothing = replace(
        PICTURE,
        tables=(),
        roles={},
        frontier=None,
        objective=None,
        restarts={},
        lag_s=None,
        drops=None,
    )
    samples = read(text(families("shop", nothing)))
    assert value(samples, "headrace_replicator_errors_total") == 0
    assert not any("freshness" in name or "objective" in name for name, _ in samples)


@req("P69")
def test_a_table_whose_operations_fell_is_told_from_the_others() -> None:
    samples = read(text(families("shop", PICTURE)))
    for table, fell in (("public.orders", 0), ("public.items", 1)):
        assert value(samples, "headrace_activity_dropped", table=table) == fell
    unwatched = read(text(families("shop", replace(PICTURE, drops=None))))
    assert not any("dropped" in name for name, _ in unwatched)


def test_labels_may_hold_anything() -> None:
    family = Family("headrace_x", "gauge", "One.")
    family.add(0.5, {"table": 'a"b\\c\nd'})
    assert text([family]).splitlines()[-1] == r'headrace_x{table="a\"b\\c\nd"} 0.5'


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer(
        MetricsConfig(listen="127.0.0.1:0"), lambda: families("shop", PICTURE)
    ) as one:
        yield one


def test_the_page_is_served_and_no_other(server: MetricsServer) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        page = answer.read().decode()
    assert page == text(families("shop", PICTURE))
    for path, method in (("/", "GET"), ("/metrics", "POST")):
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(request)


def test_an_address_that_is_taken_is_named(server: MetricsServer) -> None:
    other = MetricsServer(MetricsConfig(listen=f"127.0.0.1:{server.port}"), list)
    with pytest.raises(ConfigError, match=rf"metrics\.listen: 127\.0\.0\.1:{server.port}"):
        other.__enter__()


def test_the_guide_names_every_metric_and_no_other() -> None:
    guide = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = guide.partition("\n### Metrics\n")[2].partition("\n## ")[0]
    rows = re.findall(
        r"^\| `(headrace_\w+)` \| (\w+) \| ([^|]*) \| (.+) \|$", section, re.MULTILINE
    )
    assert [
        (name, kind, re.findall(r"`(\w+)`", labels), said) for name, kind, labels, said in rows
    ] == [(name, kind, list(labels), said) for name, (kind, labels, said) in METRICS.items()]


@req("P69")
def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    board = json.loads((ROOT / "deploy" / "grafana" / "headrace.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    names = {name for expression in asked for name in re.findall(r"\bheadrace_\w+", expression)}
    for name in names:
        base = re.sub("_(bucket|sum|count)$", "", name)
        kind = METRICS[name if name in METRICS else base][0]
        assert (kind == "histogram") == (name not in METRICS), name
    # Each operation of a table is somewhere to be seen, and so is whether it is late.
    for name in ("errors_total", "lag_seconds", "activity_dropped"):
        assert f"headrace_{name}" in names
    for name in ("inserts", "updates", "deletes", "truncates"):
        assert any(f"headrace_{name}_total" in one and "by (table)" in one for one in asked), name
    used = {label for expression in asked for label in re.findall(r"(\w+)\s*=~?\s*\"", expression)}
    assert used <= {"replicator", "namespace", "table", "phase", "stage", "step", "le"}
