"""Many replicators of fifty tables each: what the list and the details of all of them show.

``make bench-control`` has two hundred of them, and measures how soon.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import bench_control
from headrace.replicator.control.plane import ControlPlane
from headrace.testing.standing import standing
from tests.control.asking import Asking, listening
from tests.control.planes import config_of, environment, settings_of
from tests.waiting import until

REPLICATORS, TABLES = 20, 50
STATES = {f"t{number}": ("live", "copying", "failing")[number % 3] for number in range(TABLES)}
PATH = "/v1/contexts/default/replicators"


def test_list_and_details_of_many_replicators_show_every_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
    with ControlPlane(settings_of(tmp_path), environment()) as plane:
        with plane.writing() as writer:
            for number in range(REPLICATORS):
                config = config_of(target={"type": "delta", "path": f"{tmp_path}/lake{number}"})
                writer.deploy("default", f"r{number:02}", config, "/")
        for row in plane.store.replicators():
            standing(plane.folders.of(row).config(row), STATES)
        with listening(plane) as url:
            ask = Asking(url)
            shown = until(lambda: _all_seen(ask), "a picture of each", 120)
            assert shown
            assert [one["name"] for one in shown] == [f"r{n:02}" for n in range(REPLICATORS)]
            whole = {"SNAPSHOTTING": 17, "REPLICATING": 17, "FAILING": 16}
            assert all(one["tables"] == whole for one in shown)
            for one in shown:
                tables = ask.one(f"{PATH}/{one['name']}")["table_list"]
                assert {table["name"] for table in tables} == {f"public.{name}" for name in STATES}


def _all_seen(ask: Asking) -> list[dict[str, object]] | None:
    shown: list[dict[str, object]] = ask.one(PATH)["replicators"]
    return shown if all(one["tables"] for one in shown) else None


@pytest.mark.long
def test_a_quick_measurement_leaves_a_result(tmp_path: Path) -> None:
    assert bench_control.main(["--quick", "--out", str(tmp_path)]) == 0
    kept = json.loads((tmp_path / "control.json").read_text())
    assert kept["sizes"] == {"replicators": 5, "tables": 50, "requests": 20, "rounds": 1}
    assert kept["summary"].keys() >= {"list_p99_ms", "detail_p99_ms", "rss_mib"}
