"""What is told of a replicator beside its state: numbers, minutes, lineage and logs, over HTTP and by command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.observe.status import ProcessState, StatusFile
from headrace.registry.file import FileRegistry
from headrace.replicator.control.folders import ReplicatorFolder
from headrace.replicator.control.plane import ControlPlane
from tests.control.asking import OPERATOR, TOKENS, VIEWER, Asking, served
from tests.control.planes import config_of, end_everything, environment
from tests.requirements import req

SHOP = "/v1/contexts/default/replicators/shop"
PAGES = ("metrics", "activity", "lineage", "logs", "logs/apply")
ORDERS = TableSchema(
    TableId("public", "orders"),
    (
        Column("id", pa.int32(), "integer", nullable=False),
        Column("total", pa.decimal128(10, 2), "numeric(10,2)"),
    ),
    ("id",),
    KeyCheck.IMMEDIATE,
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, str]]:
    """Give a control plane with a replicator that was never started, but whose state folder somebody has filled."""
    folder = tmp_path_factory.mktemp("observed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
        try:
            with served(folder, tokens=TOKENS) as (plane, url):
                tables = {"public.orders": {"rename": {"total": "price"}}}
                body = {"config": config_of(tables=tables, lineage={"file": "./told.ndjson"})}
                Asking(url, OPERATOR.secret).does("PUT", SHOP, body, 201)
                shop = plane.store.replicator("default", "shop")
                fill(plane.folders.of(shop))
                # The control plane may have looked just before, and what it saw holds for a second.
                plane.pictures.seen(shop, age_s=0.0)
                yield plane, url
        finally:
            end_everything(folder)


def fill(folder: ReplicatorFolder) -> None:
    schema_id = FileRegistry(folder.state.registry).put(ORDERS)
    folder.state.create()
    said = {
        "state": "live",
        "schema_id": f"{schema_id:016x}",
        "error": None,
        "all_batches": dict.fromkeys(("probe_s", "write_s", "commit_s"), 1.5),
    }
    detail = {"batches": 7, "tables": {"public.orders": said}}
    StatusFile(folder.state.status("apply"), "apply").write(ProcessState.RUNNING, detail)
    folder.state.log("apply").write_text(
        "2026-01-01 00:00:00,001Z INFO headrace.spark.apply: public.orders: 3 rows\n"
        "2026-01-01 00:00:01,001Z WARNING headrace.spark.apply: public.items: cannot be written\n"
        f"a library says {environment()['SHOP_PASSWORD']} of public.orders\n"
    )


@pytest.fixture
def viewer(both: tuple[ControlPlane, str]) -> Asking:
    return Asking(both[1], VIEWER.secret)


@req("C74", "C106")
def test_metrics_are_text_for_prometheus_and_json_for_who_accepts_that(viewer: Asking) -> None:
    scraped = viewer("GET", f"{SHOP}/metrics")
    assert scraped.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    line = 'headrace_apply_batches_total{replicator="shop",namespace="default"} 7'
    assert line in scraped.text.splitlines()
    told = viewer("GET", f"{SHOP}/metrics", headers={"accept": "application/json"}).json
    (batches,) = (one for one in told["samples"] if one["name"] == "headrace_apply_batches_total")
    assert batches["value"] == 7
    assert batches["labels"] == {"replicator": "shop", "namespace": "default"}


@req("C23")
def test_lineage_is_told_of_the_tables_that_the_target_has(viewer: Asking) -> None:
    (table,) = viewer.one(f"{SHOP}/lineage")["tables"]
    assert table["source"] == {
        "namespace": "postgres://db.internal:5432",
        "name": "shop.public.orders",
    }
    assert [(one["column"], one["inputs"]) for one in table["columns"]] == [
        ("id", ["id"]),
        ("price", ["total"]),
    ]
    assert viewer.one(f"{SHOP}/lineage?table=public.items")["tables"] == []


@req("C15")
def test_minutes_of_a_replicator_that_never_ran_are_none(viewer: Asking) -> None:
    for asked in ("", "?hours=48"):
        nothing = {"name": "shop", "minutes": [], "hours": []}
        assert viewer.one(f"{SHOP}/activity{asked}") == nothing
    assert viewer("GET", f"{SHOP}/activity?minutes=0").status == 422


@req("C20", "C70")
def test_a_log_is_taken_whole_by_table_and_level_and_without_secrets(viewer: Asking) -> None:
    whole = viewer("GET", f"{SHOP}/logs/apply")
    assert whole.headers["content-disposition"] == 'attachment; filename="shop-apply.log"'
    assert len(whole.text.splitlines()) == 3
    assert environment()["SHOP_PASSWORD"] not in whole.text
    assert "${env:SHOP_PASSWORD}" in whole.text
    accept = {"accept": "application/x-ndjson"}
    taken = viewer("GET", f"{SHOP}/logs/apply?table=public.orders", headers=accept)
    assert taken.headers["content-disposition"].endswith('"shop-apply.ndjson"')
    entries: list[dict[str, Any]] = [json.loads(line) for line in taken.text.splitlines()]
    # The library's line has no form, and belongs to the one before it.
    assert [one["message"].partition("\n")[0] for one in entries] == [
        "public.orders: 3 rows",
        "public.items: cannot be written",
    ]
    assert entries[0] == {
        "at": "2026-01-01T00:00:00.001Z",
        "level": "INFO",
        "logger": "headrace.spark.apply",
        "process": "apply",
        "message": "public.orders: 3 rows",
    }
    shown = viewer.one(f"{SHOP}/logs?process=apply&level=warning")["lines"]
    assert [line[:10] for line in shown] == ["2026-01-01", "a library "]
    for query in ("logs/shadow", "logs/apply?level=loud", "logs?lines=0"):
        assert viewer("GET", f"{SHOP}/{query}").status == 422


@req("A-16")
@pytest.mark.parametrize("page", PAGES)
def test_of_a_replicator_that_is_not_there_nothing_is_told(viewer: Asking, page: str) -> None:
    answer = viewer("GET", f"/v1/contexts/default/replicators/none/{page}")
    assert (answer.status, answer.error["type"]) == (404, "NotFound")


@req("C106")
@pytest.mark.parametrize("page", PAGES)
def test_who_has_no_token_is_told_nothing(both: tuple[ControlPlane, str], page: str) -> None:
    assert Asking(both[1])("GET", f"{SHOP}/{page}").status == 401


def test_the_file_of_lineage_lies_where_the_deployed_one_does(
    both: tuple[ControlPlane, str],
) -> None:
    plane, _ = both
    folder = plane.folders.of(plane.store.replicator("default", "shop"))
    config = folder.config(plane.store.replicator("default", "shop"))
    assert config.lineage is not None
    # Beside the file that was deployed, as every relative path.
    assert config.lineage.file == Path(plane.settings.base) / "told.ndjson"
